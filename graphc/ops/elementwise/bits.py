"""Bit patterns: shifts, and bits reinterpreted as another dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from graphc.ir.dtypes import BOOL, DType, as_dtype, is_complex
from graphc.ir.opdef import Attr, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.declaring import Given, Operands, declared, elementwise_operator, record
from graphc.ops.core.emit import convert, promote_operands
from graphc.ops.elementwise.integers import of_integers
from graphc.typing import DTypeLike, TensorLike

__all__ = ["bitcast", "left_shift", "right_shift"]


def _right(x: Any, n: Any) -> Any:
    unsigned = np.issubdtype(x.dtype, np.unsignedinteger)
    return lax.shift_right_logical(x, n) if unsigned else lax.shift_right_arithmetic(x, n)


_MANY = "No bits remain if n is at least their number. "


@of_integers("LeftShift", lax.shift_left, np.left_shift, remark=_MANY)
def left_shift(x: TensorLike, n: TensorLike, *, name: str | None = None) -> Given:
    """The bits of integers shifted left by `n`, elementwise with broadcasting.

    Raises:
        DTypeError: an operand does not hold integers.

    Examples:
        >>> run(gc.left_shift([1, 3], 2))
        Array([ 4, 12], dtype=int32)
    """
    return promote_operands(x, n)


@of_integers("RightShift", _right, np.right_shift, remark=_MANY)
def right_shift(x: TensorLike, n: TensorLike, *, name: str | None = None) -> Given:
    """The bits of integers shifted right by `n`, elementwise with broadcasting.

    Signed integers keep their sign.

    Raises:
        DTypeError: an operand does not hold integers.

    Source: numpy.right_shift.

    Examples:
        >>> run(gc.right_shift([8, 3], 1))
        Array([4, 1], dtype=int32)
    """
    return promote_operands(x, n)


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


@elementwise_operator(
    "Bitcast",
    lambda x, *, dtype: lax.bitcast_convert_type(x, dtype),
    infer=_infer_bitcast,
    attrs={
        "dtype": Attr("dtype", check=_is_plain, must="be integer or floating, of 8 bits or more")
    },
    differentiable=False,
    fold=lambda x, *, dtype: x.view(dtype),
    dtypes="Integer and floating dtypes.",
)
def bitcast(x: TensorLike, dtype: DTypeLike, *, name: str | None = None) -> Given:
    """The bits of `x`, reinterpreted as another dtype of the same width, in the shape of `x`.

    Raises:
        DTypeError: the dtypes have different numbers of bits, or are bool or complex.

    Examples:
        >>> run(gc.bitcast([1.0], "int32"))
        Array([1065353216], dtype=int32)
    """
    tensor, wanted = convert(x), as_dtype(dtype)
    if tensor.type.dtype == wanted:
        return tensor
    return Operands(tensor, dtype=wanted)


# Records by name, for passes and for rules of other families.
BITCAST = record(bitcast)

OPS: tuple[OpDef, ...] = declared(__name__)
