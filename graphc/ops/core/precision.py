"""Helpers of lowerings: wider dtypes for computing, and the limits of dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import (
    BOOL,
    BY_SHORT,
    FLOAT32,
    INT32,
    DType,
    is_floating,
    is_inexact,
    scalar_of,
)


def wide(dtype: DType) -> DType:
    """The dtype to compute in: float32 for narrower floating dtypes."""
    return FLOAT32 if is_floating(dtype) and dtype.itemsize < FLOAT32.itemsize else dtype


def wide_integer(dtype: DType) -> DType:
    """The integer dtype for counting: int32 for narrower ones, which may overflow."""
    return INT32 if dtype.itemsize < INT32.itemsize else dtype


def shifted(x: Any, axis: int) -> Any:
    """`x` minus its maximum along `axis`, so that its exponentials do not overflow.

    The maximum has no derivative: the results of the softmax family do not depend on it.
    """
    if isinstance(x.shape[axis], int) and x.shape[axis] == 0:  # it has no maximum
        return x
    return x - lax.stop_gradient(jnp.max(x, axis=axis, keepdims=True))


Lowering = Callable[..., Any]

_WIDER: dict[DType, DType] = {
    BY_SHORT["i4"]: BY_SHORT["i8"],
    BY_SHORT["u4"]: BY_SHORT["u8"],
    **{dtype: FLOAT32 for short, dtype in BY_SHORT.items() if short.startswith("f8")},
}
_FOR_SUMS: dict[DType, DType] = {**_WIDER, BY_SHORT["f16"]: FLOAT32, BY_SHORT["bf16"]: FLOAT32}


def in_wider(lower: Lowering, wider_of: Mapping[DType, DType] = _WIDER) -> Lowering:
    """`lower` in a wider dtype: narrow operands are converted before, and the results after."""

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
    """`in_wider`, also for 16-bit floats: a sum of many elements must not round each term."""
    return in_wider(lower, _FOR_SUMS)


_INTEGERS: Callable[[DType], Any] = jnp.iinfo
_FLOATS: Callable[[DType], Any] = jnp.finfo


def highest(dtype: DType) -> Any:
    """The upper bound of `dtype`: infinity, the greatest integer, or True."""
    if dtype == BOOL:
        return np.True_
    return scalar_of(np.inf if is_inexact(dtype) else _INTEGERS(dtype).max, dtype)


def lowest(dtype: DType) -> Any:
    """The lower bound of `dtype`: minus infinity, the least integer, or False."""
    if dtype == BOOL:
        return np.False_
    return scalar_of(-np.inf if is_inexact(dtype) else _INTEGERS(dtype).min, dtype)


def greatest_finite(dtype: DType) -> float:
    """The greatest finite number of a floating dtype; the least is its negative."""
    return float(_FLOATS(dtype).max)
