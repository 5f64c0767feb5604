"""Operators that look along one axis: positions of extremes, running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from graphc.ir.dtypes import BOOL, INT32, DType, as_dtype, is_integer
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.axes import normalize_axis
from graphc.ops.broadcasting import Adjoints, infer_numeric, infer_ordered
from graphc.ops.emit import convert, emit_one, to_dtype
from graphc.ops.layout_rules import map_axis
from graphc.ops.shape import reshape

_AXIS = Attr("int", check=lambda axis: axis >= 0, must="be counted from the front")


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

    return OpDef(
        name=name,
        signature="x -> y",
        attrs={
            "axis": _AXIS,
            "dtype": Attr("dtype", default=INT32, check=is_integer, must="be an integer dtype"),
        },
        infer=_infer_position,
        lower=lower,
        differentiable=False,
        layout=map_axis(_place_position),
        fold=lambda x, *, axis, dtype: np.asarray(fold(x, axis=axis)).astype(dtype),
        doc=f"The position of the first of the {word} elements along `axis`, as `dtype`; of the "
        "first NaN where there is one. Real dtypes and bool.",
    )


ARG_MAX = _position("ArgMax", lax.argmax, np.argmax, "greatest")
ARG_MIN = _position("ArgMin", lax.argmin, np.argmin, "smallest")


def _infer_cumsum(ctx: InferContext, x: TensorType, *, axis: int, reverse: bool) -> TensorType:
    infer_numeric(ctx, x)
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    return x


def _fold_cumsum(x: np.ndarray[Any, Any], *, axis: int, reverse: bool) -> Any:
    if not reverse:
        return np.cumsum(x, axis, dtype=x.dtype)
    return np.flip(np.cumsum(np.flip(x, axis), axis, dtype=x.dtype), axis)


def _cumsum_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    return [cumsum(dy, node.attrs["axis"], reverse=not node.attrs["reverse"])]


CUM_SUM = OpDef(
    name="CumSum",
    signature="x -> y",
    attrs={"axis": _AXIS, "reverse": Attr("bool", default=False, doc="sum from the far end")},
    infer=_infer_cumsum,
    lower=lambda ctx, x, *, axis, reverse: lax.cumsum(x, axis, reverse=reverse),
    gradient=_cumsum_gradient,
    layout=map_axis(lambda node, axis: None if axis == node.attrs["axis"] else axis, linear=True),
    fold=_fold_cumsum,
    doc="The sums of the elements up to each one along `axis`, in x's dtype. Numeric dtypes.",
)


def _emit_position(op: OpDef, x: Any, axis: int | None, dtype: Any, name: str | None) -> Tensor:
    tensor = convert(x)
    if axis is None:
        tensor, axis = reshape(tensor, (-1,)), 0
    axis = normalize_axis(op.name, tensor, axis)
    return emit_one(op, (tensor,), name, axis=axis, dtype=as_dtype(dtype))


def argmax(
    x: Any, axis: int | None = None, *, dtype: Any = INT32, name: str | None = None
) -> Tensor:
    """The position of the greatest element along `axis`, the first of equal ones.

    `axis` None counts through all elements, in row-major order.

    Raises:
        AttributeValueError: the axis is out of range, or `dtype` not an integer's.
        ShapeError: there are no elements.

    Source: numpy.argmax.
    """
    return _emit_position(ARG_MAX, x, axis, dtype, name)


def argmin(
    x: Any, axis: int | None = None, *, dtype: Any = INT32, name: str | None = None
) -> Tensor:
    """The position of the smallest element along `axis`, the first of equal ones.

    `axis` None counts through all elements, in row-major order.

    Raises:
        AttributeValueError: the axis is out of range, or `dtype` not an integer's.
        ShapeError: there are no elements.

    Source: numpy.argmin.
    """
    return _emit_position(ARG_MIN, x, axis, dtype, name)


def cumsum(
    x: Any, axis: int | None = None, *, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The sums of the elements up to each one along `axis`; `reverse` sums from the far end.

    `axis` None flattens first. Bools are summed as int32; other dtypes stay.

    Raises:
        AttributeValueError: the axis is out of range.

    Source: numpy.cumsum.
    """
    tensor = convert(x)
    if tensor.type.dtype == BOOL:
        tensor = to_dtype(tensor, INT32)
    if axis is None:
        tensor, axis = reshape(tensor, (-1,)), 0
    axis = normalize_axis("CumSum", tensor, axis)
    return emit_one(CUM_SUM, (tensor,), name, axis=axis, reverse=bool(reverse))


OPS: tuple[OpDef, ...] = (ARG_MAX, ARG_MIN, CUM_SUM)
