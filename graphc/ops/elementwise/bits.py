"""Bit patterns: shifts, and the bits of one dtype read as another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from graphc.ir.dtypes import BOOL, DType, as_dtype, is_complex, is_integer
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import binary, infer_of
from graphc.ops.core.emit import convert, emit_one, promote_operands
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.precision import in_wider

__all__ = ["bitcast", "left_shift", "right_shift"]


def _right(x: Any, n: Any) -> Any:
    unsigned = np.issubdtype(x.dtype, np.unsignedinteger)
    return lax.shift_right_logical(x, n) if unsigned else lax.shift_right_arithmetic(x, n)


def _shift(name: str, lower: Callable[[Any, Any], Any], fold: np.ufunc, doc: str) -> OpDef:
    return OpDef(
        name=name,
        signature="x, n -> y",
        precision="wide",
        infer=infer_of(is_integer, "integers"),
        lower=in_wider(binary(lower)),
        differentiable=False,
        layout=elementwise,
        fold=fold,
        doc=f"{doc} All bits are gone where n is their number or more. Integer dtypes.",
    )


LEFT_SHIFT = _shift(
    "LeftShift", lax.shift_left, np.left_shift, "The bits of x moved up by n places, zeros behind."
)
RIGHT_SHIFT = _shift(
    "RightShift",
    _right,
    np.right_shift,
    "The bits of x moved down by n places; before them zeros, or where x is below 0, ones.",
)


def _is_plain(dtype: DType) -> bool:
    """Whether a dtype's bits fill its bytes."""
    return dtype != BOOL and not is_complex(dtype) and dtype.name not in ("int4", "uint4")


def _infer_bitcast(ctx: InferContext, x: TensorType, *, dtype: DType) -> TensorType:
    ctx.require_dtype([x], _is_plain, "integer or floating, of 8 bits or more")
    ctx.require(
        dtype.itemsize == x.dtype.itemsize,
        f"{x.dtype.name} and {dtype.name} have different numbers of bits",
        dtype=True,
    )
    return TensorType(dtype, x.shape)


def _lower_bitcast(ctx: LowerContext, x: Any, *, dtype: DType) -> Any:
    return lax.bitcast_convert_type(x, dtype)


BITCAST = OpDef(
    name="Bitcast",
    signature="x -> y",
    precision="wide",
    attrs={
        "dtype": Attr("dtype", check=_is_plain, must="be integer or floating, of 8 bits or more")
    },
    infer=_infer_bitcast,
    lower=_lower_bitcast,
    differentiable=False,
    layout=elementwise,
    fold=lambda x, *, dtype: x.view(dtype),
    doc="The bits of x read as `dtype`, which has as many. Integer and floating dtypes.",
)


def left_shift(x: Any, n: Any, *, name: str | None = None) -> Tensor:
    """The bits of integers moved up by `n` places, elementwise with broadcasting.

    Raises:
        DTypeError: operands that are no integers.
    """
    return emit_one(LEFT_SHIFT, promote_operands(x, n), name)


def right_shift(x: Any, n: Any, *, name: str | None = None) -> Tensor:
    """The bits of integers moved down by `n` places, elementwise with broadcasting.

    Signed integers keep their sign.

    Raises:
        DTypeError: operands that are no integers.

    Source: numpy.right_shift.
    """
    return emit_one(RIGHT_SHIFT, promote_operands(x, n), name)


def bitcast(x: Any, dtype: Any, *, name: str | None = None) -> Tensor:
    """The bits of `x` read as another dtype of as many bits; of the shape of `x`.

    Raises:
        DTypeError: the dtypes have different numbers of bits, or are bool or complex.
    """
    tensor, wanted = convert(x), as_dtype(dtype)
    if tensor.type.dtype == wanted:
        return tensor
    return emit_one(BITCAST, (tensor,), name, dtype=wanted)


OPS: tuple[OpDef, ...] = (LEFT_SHIFT, RIGHT_SHIFT, BITCAST)
