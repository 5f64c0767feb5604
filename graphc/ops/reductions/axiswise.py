"""Operators along one axis: positions of extremes, cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from graphc.ir.dims import Dim
from graphc.ir.dtypes import BOOL, INT32, DType, as_dtype, is_integer
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import one_axis, reshape
from graphc.ops.arrays.slicing import pad_with
from graphc.ops.core.axes import AXIS, normalize_axis
from graphc.ops.core.broadcasting import (
    Adjoints,
    infer_floating,
    infer_numeric,
    infer_ordered,
    infer_real,
)
from graphc.ops.core.cost_rules import times_operand
from graphc.ops.core.defining import define
from graphc.ops.core.emit import convert, emit_one, promote_inexact, to_dtype
from graphc.ops.core.layout_rules import map_axis, not_along, same_axis
from graphc.ops.core.precision import wide
from graphc.typing import DTypeLike, TensorLike

__all__ = ["argmax", "argmin", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"]


def _infer_position(ctx: InferContext, x: TensorType, *, axis: int, dtype: DType) -> TensorType:
    infer_ordered(ctx, x)
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    ctx.require(x.shape[axis] != 0, "there are no elements to choose from")
    return TensorType(dtype, x.shape[:axis] + x.shape[axis + 1 :])


def _place_position(node: Node, axis: int) -> int | None:
    reduced: int = node.attrs["axis"]
    return None if axis == reduced else axis - (axis > reduced)


def _position(
    name: str, function: Callable[..., Any], fold: Callable[..., Any], word: str
) -> OpDef:
    def lower(ctx: LowerContext, x: Any, *, axis: int, dtype: DType) -> Any:
        if x.dtype == BOOL:
            x = lax.convert_element_type(x, np.uint8)
        return function(x, axis, dtype)

    return define(
        f"{name}(x) -> y",
        precision="follow",
        attrs={
            "axis": AXIS,
            "dtype": Attr("dtype", default=INT32, check=is_integer, must="be an integer dtype"),
        },
        infer=_infer_position,
        lower=lower,
        differentiable=False,
        layout=map_axis(_place_position),
        cost=times_operand(1),
        fold=lambda x, *, axis, dtype: np.asarray(fold(x, axis=axis)).astype(dtype),
        doc=f"The position of the first of the {word} elements along `axis`, as `dtype`; of the "
        "first NaN if there is one. Real dtypes and bool.",
    )


ARG_MAX = _position("ArgMax", lax.argmax, np.argmax, "greatest")
ARG_MIN = _position("ArgMin", lax.argmin, np.argmin, "smallest")


def _cumulative(
    name: str,
    infer: Callable[..., TensorType],
    function: Callable[..., Any],
    accumulate: Callable[..., Any],
    words: str,
    *,
    gradient: Callable[..., Adjoints] | None = None,
    linear: bool = False,
    operations: int = 1,
) -> OpDef:
    """An operator that combines the elements up to each one. `accumulate` is the NumPy function,
    with `operations` operations for each element."""

    def infer_cumulative(
        ctx: InferContext, x: TensorType, *, axis: int, reverse: bool
    ) -> TensorType:
        ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
        return infer(ctx, x)

    def fold(x: np.ndarray[Any, Any], *, axis: int, reverse: bool) -> Any:
        if not reverse:
            return accumulate(x, axis, dtype=x.dtype)
        return np.flip(accumulate(np.flip(x, axis), axis, dtype=x.dtype), axis)

    return define(
        f"{name}(x) -> y",
        precision="wide",
        attrs={"axis": AXIS, "reverse": Attr("bool", default=False, doc="begin at the end")},
        infer=infer_cumulative,
        lower=lambda ctx, x, *, axis, reverse: function(x, axis, reverse=reverse),
        gradient=gradient,
        layout=same_axis(not_along, linear=linear),
        cost=times_operand(operations),
        fold=fold,
        doc=f"The {words} the elements up to each one along `axis`, in x's dtype; `reverse`: "
        f"from each one on.",
    )


def _in_wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """A cumulative function of JAX that computes narrow floats in float32."""
    return lambda x, axis, *, reverse: function(
        x.astype(wide(x.dtype)), axis, reverse=reverse
    ).astype(x.dtype)


def _accumulate_in_wide(accumulate: Callable[..., Any]) -> Callable[..., Any]:
    """A cumulative function of NumPy that computes narrow floats in float32."""
    return lambda x, axis, dtype: accumulate(x.astype(wide(dtype)), axis).astype(dtype)


CUM_SUM = _cumulative(
    "CumSum",
    infer_numeric,
    _in_wide(lax.cumsum),
    _accumulate_in_wide(np.add.accumulate),
    "sums of",
    gradient=lambda ctx, node, dy: [
        cumsum(dy, node.attrs["axis"], reverse=not node.attrs["reverse"])
    ],
    linear=True,
)
CUM_PROD = _cumulative(
    "CumProd",
    infer_numeric,
    _in_wide(lax.cumprod),
    _accumulate_in_wide(np.multiply.accumulate),
    "products of",
)
CUM_MAX = _cumulative(
    "CumMax",
    infer_real,
    lax.cummax,
    np.maximum.accumulate,
    "greatest of",
)
CUM_MIN = _cumulative("CumMin", infer_real, lax.cummin, np.minimum.accumulate, "smallest of")


CUM_LOG_SUM_EXP = _cumulative(
    "CumLogSumExp",
    infer_floating,
    _in_wide(lax.cumlogsumexp),
    _accumulate_in_wide(np.logaddexp.accumulate),
    "logarithms of the sums of the exponentials of",
    operations=5,
)


def _emit_position(
    op: OpDef, x: Any, axis: int | None, keepdims: bool, dtype: Any, name: str | None
) -> Tensor:
    tensor = convert(x)
    kept: tuple[Dim, ...] = (1,) * tensor.ndim
    if axis is None:
        tensor, axis = reshape(tensor, (-1,)), 0
    else:
        axis = normalize_axis(op.name, tensor, axis)
        kept = (*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :])
    if not keepdims:
        return emit_one(op, (tensor,), name, axis=axis, dtype=as_dtype(dtype))
    return reshape(emit_one(op, (tensor,), axis=axis, dtype=as_dtype(dtype)), kept, name=name)


def argmax(
    x: TensorLike,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    dtype: DTypeLike = INT32,
    name: str | None = None,
) -> Tensor:
    """The position of the greatest element along `axis`, the first of equal ones.

    With `axis` None, the position is that in row-major order. `keepdims` keeps axes of size 1.

    Raises:
        AttributeValueError: the axis is out of range, or `dtype` is not an integer dtype.
        ShapeError: there are no elements.

    Source: numpy.argmax.

    Examples:
        >>> run(gc.argmax([[1, 5], [7, 2]], axis=1))
        Array([1, 0], dtype=int32)
    """
    return _emit_position(ARG_MAX, x, axis, keepdims, dtype, name)


def argmin(
    x: TensorLike,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    dtype: DTypeLike = INT32,
    name: str | None = None,
) -> Tensor:
    """The position of the smallest element along `axis`; otherwise as `argmax`.

    Source: numpy.argmin.

    Examples:
        >>> run(gc.argmin([[1, 5], [7, 2]], axis=1))
        Array([0, 1], dtype=int32)
    """
    return _emit_position(ARG_MIN, x, axis, keepdims, dtype, name)


def cumsum(
    x: TensorLike,
    axis: int | None = None,
    *,
    reverse: bool = False,
    exclusive: bool = False,
    name: str | None = None,
) -> Tensor:
    """The sums of the elements up to each one along `axis`; `reverse` sums from the end.

    `exclusive` leaves out the element itself: the first result is 0. `axis` None flattens first.
    Bools are summed as int32; other dtypes stay.

    Raises:
        AttributeValueError: the axis is out of range.

    Source: numpy.cumsum.

    Examples:
        >>> run(gc.cumsum([1, 2, 3]))
        Array([1, 3, 6], dtype=int32)
    """
    first = 0 if exclusive else None
    return _emit_cumulative(CUM_SUM, _countable(x), axis, reverse, name, first)


def cumprod(
    x: TensorLike,
    axis: int | None = None,
    *,
    reverse: bool = False,
    exclusive: bool = False,
    name: str | None = None,
) -> Tensor:
    """The products of the elements up to each one along `axis`; `reverse` starts at the end.

    `exclusive` leaves out the element itself: the first result is 1. `axis` None flattens first.
    Bools are multiplied as int32; other dtypes stay.

    Raises:
        AttributeValueError: the axis is out of range.

    Source: numpy.cumprod.

    Examples:
        >>> run(gc.cumprod([1, 2, 3]))
        Array([1, 2, 6], dtype=int32)
    """
    first = 1 if exclusive else None
    return _emit_cumulative(CUM_PROD, _countable(x), axis, reverse, name, first)


def cummax(
    x: TensorLike, axis: int | None = None, *, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The greatest of the elements up to each one along `axis`; `reverse` starts at the end.

    `axis` None flattens first. All results from the first NaN on are NaN.

    Raises:
        AttributeValueError: the axis is out of range.
        DTypeError: bools or complex numbers.

    Source: numpy.maximum.accumulate, jax.lax.cummax.

    Examples:
        >>> run(gc.cummax([1, 3, 2, 5]))
        Array([1, 3, 3, 5], dtype=int32)
    """
    return _emit_cumulative(CUM_MAX, convert(x), axis, reverse, name)


def cummin(
    x: TensorLike, axis: int | None = None, *, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The smallest of the elements up to each one along `axis`; `reverse` starts at the end.

    `axis` None flattens first. All results from the first NaN on are NaN.

    Raises:
        AttributeValueError: the axis is out of range.
        DTypeError: bools or complex numbers.

    Source: numpy.minimum.accumulate, jax.lax.cummin.

    Examples:
        >>> run(gc.cummin([4, 2, 3, 1]))
        Array([4, 2, 2, 1], dtype=int32)
    """
    return _emit_cumulative(CUM_MIN, convert(x), axis, reverse, name)


def cumlogsumexp(
    x: TensorLike, axis: int | None = None, *, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The logarithm of `cumsum(exp(x))` along `axis`, without overflow; integers give float32.

    `axis` None flattens first.

    Raises:
        AttributeValueError: the axis is out of range.
        DTypeError: complex numbers.

    Source: numpy.logaddexp.accumulate, jax.lax.cumlogsumexp.

    Examples:
        >>> run(gc.cumlogsumexp([0.0, 0.0]))
        Array([0.    , 0.6931], dtype=float32)
    """
    (tensor,) = promote_inexact(x)
    return _emit_cumulative(CUM_LOG_SUM_EXP, tensor, axis, reverse, name)


def _countable(x: Any) -> Tensor:
    tensor = convert(x)
    return to_dtype(tensor, INT32) if tensor.type.dtype == BOOL else tensor


def _emit_cumulative(
    op: OpDef,
    tensor: Tensor,
    axis: int | None,
    reverse: bool,
    name: str | None,
    first: int | None = None,
) -> Tensor:
    """With `first`, each result excludes its own element, and the first result is `first`."""
    tensor, axis = one_axis(op.name, tensor, axis)
    if first is not None:
        shift = (-1, 1, 0) if reverse else (1, -1, 0)
        pads = [shift if i == axis else (0, 0, 0) for i in range(tensor.ndim)]
        tensor = pad_with(tensor, first, pads)
    return emit_one(op, (tensor,), name, axis=axis, reverse=bool(reverse))


OPS: tuple[OpDef, ...] = (
    ARG_MAX,
    ARG_MIN,
    CUM_SUM,
    CUM_PROD,
    CUM_MAX,
    CUM_MIN,
    CUM_LOG_SUM_EXP,
)
