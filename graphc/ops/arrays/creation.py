"""New tensors: filled with one value, or with indices and ranges.

A filled tensor is a broadcast scalar constant, so the program holds one number for any size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim, DimExpr, Shape
from graphc.ir.dtypes import BOOL, FLOAT32, INT32, DType, as_dtype
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import broadcast_to
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.cost_rules import moves_only
from graphc.ops.core.defining import without_gradient
from graphc.ops.core.emit import constant, convert, dim_value, emit_one, to_dtype
from graphc.ops.core.layout_rules import replicated
from graphc.ops.core.shape_argument import shape_first
from graphc.ops.core.sizes import SHAPE
from graphc.typing import DTypeLike, ShapeLike, TensorLike

__all__ = [
    "arange",
    "full",
    "full_like",
    "iota",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


def _infer_iota(ctx: InferContext, *, shape: Shape, axis: int, dtype: DType) -> TensorType:
    ctx.require(0 <= axis < len(shape), f"axis {axis} is out of range for rank {len(shape)}")
    ctx.require(dtype != BOOL, "dtype must be numeric, got bool", dtype=True)
    return TensorType(dtype, shape)


IOTA = without_gradient(
    "Iota() -> y",
    attrs={"shape": SHAPE, "axis": Attr("int"), "dtype": Attr("dtype")},
    infer=_infer_iota,
    lower=lambda ctx, *, shape, axis, dtype: lax.broadcasted_iota(dtype, ctx.shape(shape), axis),
    layout=replicated,
    fold=lambda *, shape, axis, dtype: np.broadcast_to(
        np.arange(shape[axis]).reshape([-1] + [1] * (len(shape) - axis - 1)).astype(dtype), shape
    ),
    cost=moves_only,
    doc="Each element's index along `axis`. Numeric dtypes. Source: jax.lax.broadcasted_iota.",
)


@shape_first
def iota(
    shape: ShapeLike, axis: int = 0, dtype: DTypeLike = INT32, *, name: str | None = None
) -> Tensor:
    """A tensor of `shape` whose elements are their index along `axis` (counted from 0).

    Raises:
        ShapeError: `axis` is out of range.
        DTypeError: `dtype` is bool.

    Source: jax.lax.broadcasted_iota.

    Examples:
        >>> run(gc.iota((2, 3), axis=1))
        Array([[0, 1, 2],
               [0, 1, 2]], dtype=int32)
    """
    dims = as_dims("Iota", shape)
    place = axis + len(dims) if axis < 0 else axis
    return emit_one(IOTA, (), name, shape=dims, axis=place, dtype=as_dtype(dtype))


def arange(
    start: Dim | float,
    stop: Dim | float | None = None,
    step: float = 1,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`start`, `start + step`, ... before `stop`; `arange(n)` counts from 0.

    Args:
        start: an int, a named size or a float.
        stop: an int, a named size or a float.
        step: an int or a float, not 0.
        dtype: numeric; by default int32, or float32 if one of the numbers is a float.

    Raises:
        AttributeValueError: a bound is neither a number nor a named size, a named size is combined
            with floats, or the step is 0.

    Source: numpy.arange.

    Examples:
        >>> run(gc.arange(2, 8, 2))
        Array([2, 4, 6], dtype=int32)
    """
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, (float, np.floating)) for v in (start, stop, step)):
        return _float_range(start, stop, step, FLOAT32 if dtype is None else dtype, name)
    dtype = INT32 if dtype is None else dtype
    first, last, by = as_dims("Iota", (start, stop, step))
    if not isinstance(by, int) or by == 0:
        refuse(f"Iota: step must be an int, not 0, got {step!r}", error=AttributeValueError)
    span = last - first if by > 0 else first - last
    count = (span + (abs(by) - 1)) // abs(by)
    if isinstance(count, int):
        count = max(count, 0)
    plain = by == 1 and first == 0
    result = iota((count,), 0, dtype, name=name if plain else None)
    if by != 1:
        result = result * by
    if isinstance(first, DimExpr):
        result = result + dim_value(first, result.dtype)
    elif first != 0:
        result = result + first
    return result


def _float_range(start: Any, stop: Any, step: Any, dtype: Any, name: str | None) -> Tensor:
    numbers = (start, stop, step)
    if step == 0 or not all(isinstance(v, (int, float, np.number)) for v in numbers):
        refuse(
            f"arange: takes numbers and a step other than 0, got {numbers}",
            error=AttributeValueError,
            hint="named sizes combine with ints only: gc.arange(n) * step",
        )
    return constant(np.arange(*numbers).astype(as_dtype(dtype)), name=name)


def full(
    shape: ShapeLike,
    fill_value: TensorLike,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """A tensor of `shape` (ints and named sizes) that holds `fill_value` everywhere.

    Args:
        shape: the shape.
        fill_value: a number, array or tensor that broadcasts to it.
        dtype: by default that of `fill_value`.

    Source: numpy.full.

    Examples:
        >>> run(gc.full((2, 2), 7))
        Array([[7, 7],
               [7, 7]], dtype=int32)
    """
    value = convert(fill_value) if dtype is None else to_dtype(fill_value, as_dtype(dtype))
    dims = as_dims("BroadcastTo", shape)
    if value.type.shape == dims and name is None:
        return value
    return broadcast_to(value, dims, name=name)


@shape_first
def zeros(shape: ShapeLike, dtype: DTypeLike = FLOAT32, *, name: str | None = None) -> Tensor:
    """Zeros of `shape` (ints and named sizes). All dtypes. Source: numpy.zeros.

    Examples:
        >>> run(gc.zeros((2,), "int32"))
        Array([0, 0], dtype=int32)
    """
    return full(shape, 0, dtype, name=name)


@shape_first
def ones(shape: ShapeLike, dtype: DTypeLike = FLOAT32, *, name: str | None = None) -> Tensor:
    """Ones of `shape` (ints and named sizes). All dtypes. Source: numpy.ones.

    Examples:
        >>> run(gc.ones((2,)))
        Array([1., 1.], dtype=float32)
    """
    return full(shape, 1, dtype, name=name)


def full_like(
    x: TensorLike,
    fill_value: TensorLike,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`fill_value` in the shape of `x`, and its dtype by default. Source: numpy.full_like.

    Examples:
        >>> run(gc.full_like([1, 2], 7))
        Array([7, 7], dtype=int32)
    """
    x = convert(x)
    return full(x.type.shape, fill_value, x.type.dtype if dtype is None else dtype, name=name)


def zeros_like(x: TensorLike, dtype: DTypeLike | None = None, *, name: str | None = None) -> Tensor:
    """Zeros in the shape of `x`, and its dtype by default. Source: numpy.zeros_like.

    Examples:
        >>> run(gc.zeros_like([3, 4]))
        Array([0, 0], dtype=int32)
    """
    return full_like(x, 0, dtype, name=name)


def ones_like(x: TensorLike, dtype: DTypeLike | None = None, *, name: str | None = None) -> Tensor:
    """Ones in the shape of `x`, and its dtype by default. Source: numpy.ones_like.

    Examples:
        >>> run(gc.ones_like([3, 4]))
        Array([1, 1], dtype=int32)
    """
    return full_like(x, 1, dtype, name=name)


OPS: tuple[OpDef, ...] = (IOTA,)
