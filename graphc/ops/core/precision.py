"""What lowerings share to stay within the range and precision of their dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import BOOL, BY_SHORT, FLOAT32, INT32, DType, is_floating


def wide(dtype: DType) -> DType:
    """The dtype to compute in: float32 for narrower floating dtypes."""
    return FLOAT32 if is_floating(dtype) and dtype.itemsize < FLOAT32.itemsize else dtype


def wide_integer(dtype: DType) -> DType:
    """The integer dtype to count in: int32 for narrower ones, which may not reach the sizes."""
    return INT32 if dtype.itemsize < INT32.itemsize else dtype


def shifted(x: Any, axis: int) -> Any:
    """`x` less its maximum along `axis`: its exponentials do not overflow.

    No derivative flows through the maximum: what the softmax family computes does not depend on
    it.
    """
    return x - lax.stop_gradient(jnp.max(x, axis=axis, keepdims=True))


Lowering = Callable[..., Any]

_WIDER: dict[DType, DType] = {
    BY_SHORT["i4"]: BY_SHORT["i8"],
    BY_SHORT["u4"]: BY_SHORT["u8"],
    **{dtype: FLOAT32 for short, dtype in BY_SHORT.items() if short.startswith("f8")},
}
_FOR_SUMS: dict[DType, DType] = {**_WIDER, BY_SHORT["f16"]: FLOAT32, BY_SHORT["bf16"]: FLOAT32}


def in_wider(lower: Lowering, wider_of: Mapping[DType, DType] = _WIDER) -> Lowering:
    """`lower`, with operands of a narrow dtype widened before and the results narrowed after."""

    def lowered(ctx: Any, *values: Any, **attrs: Any) -> Any:
        narrow = values[0].dtype
        wider = wider_of.get(narrow)
        if wider is None:
            return lower(ctx, *values, **attrs)
        operands = [v.astype(wider) if v.dtype == narrow else v for v in values]
        return jax.tree.map(
            lambda r: r.astype(narrow) if r.dtype == wider else r, lower(ctx, *operands, **attrs)
        )

    return lowered


def summed(lower: Lowering) -> Lowering:
    """`in_wider`, and 16-bit floats too in float32: what sums many elements must not round each."""
    return in_wider(lower, _FOR_SUMS)


_INTEGERS: Callable[[DType], Any] = jnp.iinfo
_FLOATS: Callable[[DType], Any] = jnp.finfo


def highest(dtype: DType) -> Any:
    """What no value of `dtype` exceeds: infinity, the greatest integer, True."""
    if dtype == BOOL:
        return np.True_
    return dtype.type(np.inf if is_floating(dtype) else _INTEGERS(dtype).max)


def lowest(dtype: DType) -> Any:
    """What no value of `dtype` is below: minus infinity, the least integer, False."""
    if dtype == BOOL:
        return np.False_
    return dtype.type(-np.inf if is_floating(dtype) else _INTEGERS(dtype).min)


def greatest_finite(dtype: DType) -> float:
    """The greatest number of a floating dtype; the least is as far below 0."""
    return float(_FLOATS(dtype).max)
