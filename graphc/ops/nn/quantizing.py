"""Quantisation: floats as integers on an even grid, and back.

An integer q represents (q - zero_point) * scale. Source: Jacob et al., Quantization and Training of
Neural Networks for Efficient Integer-Arithmetic-Only Inference, CVPR 2018 (arXiv:1712.05877).
"""

from __future__ import annotations

from typing import Any, Unpack

import ml_dtypes
import numpy as np
from jax import numpy as jnp

from graphc.ir.dims import Shape
from graphc.ir.dtypes import DType, as_dtype, is_floating
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded, of_elements
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import ones_like
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import Adjoints, require_one_dtype
from graphc.ops.core.cost_rules import times_result
from graphc.ops.core.defining import Record, define
from graphc.ops.core.emit import convert, emit_one, promote_inexact
from graphc.ops.core.layout_rules import replicated
from graphc.ops.core.precision import summed, wide
from graphc.typing import DTypeLike, TensorLike

__all__ = ["dequantize", "quantize"]

QUANTIZED = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32")
_WORDS = f"one of {', '.join(QUANTIZED)}"
AXIS = Attr("int", default=None, doc="the axis with one scale for each index; None: one for all")


# -- what fake quantisation shares --------------------------------------------------------------


def check_grid(ctx: InferContext, x: Shape, axis: int | None, **grids: TensorType) -> None:
    """The numbers that describe a grid: scalars, or vectors along `axis`."""
    ctx.require(axis is None or axis < len(x), f"axis {axis} is out of range for rank {len(x)}")
    for label, grid in grids.items():
        if axis is None:
            hint = "pass axis= for one number for each index along an axis"
            ctx.require(not grid.shape, f"{label} must be a scalar, got {grid}", hint=hint)
        elif grid.shape:
            words = f"{label} must be a scalar, or a vector along axis {axis}, got {grid}"
            ctx.require(len(grid.shape) == 1, words)
            ctx.unify(grid.shape[0], x[axis], f"the sizes of {label} and of axis {axis}")


def along(value: Any, rank: int, axis: int | None) -> Any:
    """A JAX vector, reshaped to broadcast along `axis` of an operand of `rank`."""
    return jnp.expand_dims(value, [i for i in range(rank) if i != axis]) if value.ndim else value


@of_elements
def _grid_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Elementwise in the first operand. The grid is replicated unless its own axis is sharded."""
    first = operands[0]
    if not isinstance(first, Sharded):
        return replicated(ctx, node, *operands)
    cut: Layout = Sharded(0) if first.axis == node.attrs["axis"] else REPLICATED
    grid = [cut if t.type.shape else REPLICATED for t in node.inputs[1:]]
    return LayoutPlan([first, *grid], [first])


def grid_operator(schema: str, *, operations: int, **fields: Unpack[Record]) -> OpDef:
    """The record of an operator that is elementwise in its first operand, with `operations` for
    each element; the others describe the grid, along `axis`. The arguments are those of `define`.
    """
    fields["attrs"] = {**fields.get("attrs", {}), "axis": AXIS}
    fields["layout"] = _grid_layout
    fields["cost"] = times_result(operations)
    return define(schema, precision="wide", **fields)


def summed_along(ctx: GradientContext, adjoint: Tensor, axis: int | None, like: Tensor) -> Tensor:
    """The adjoint of `like`, a vector that was broadcast along `axis` or a scalar."""
    kept = axis if like.type.shape else None
    axes = tuple(i for i in range(len(adjoint.type.shape)) if i != kept)
    result: Tensor = ctx.ops.reduce_sum(adjoint, axis=axes) if axes else adjoint
    return result


def canonical(op: str, x: Tensor, axis: Any) -> int | None:
    """`axis` of `x`, counted from the front; None stays None."""
    return None if axis is None else normalize_axis(op, x, axis)


# -- to integers and back ----------------------------------------------------------------------


def _infer_quantize(
    ctx: InferContext,
    x: TensorType,
    scale: TensorType,
    zero_point: TensorType,
    *,
    dtype: DType,
    axis: int | None,
) -> TensorType:
    ctx.require_dtype([x, scale], is_floating, "floating")
    require_one_dtype(ctx, x, scale)
    _check_zero_point(ctx, zero_point, dtype)
    check_grid(ctx, x.shape, axis, scale=scale, zero_point=zero_point)
    return TensorType(dtype, x.shape)


def _check_zero_point(ctx: InferContext, zero_point: TensorType, dtype: DType) -> None:
    ctx.require(
        zero_point.dtype == dtype,
        f"zero_point must be {dtype.name}, as the integers are, got {zero_point.dtype.name}",
        hint=f'gc.cast(zero_point, "{dtype.name}")',
        dtype=True,
    )


def _lower_quantize(
    ctx: LowerContext, x: Any, scale: Any, zero_point: Any, *, dtype: DType, axis: int | None
) -> Any:
    scale, zero_point = (along(v, x.ndim, axis) for v in (scale, zero_point))
    zero = _widened(zero_point).astype(x.dtype)
    places = jnp.rint(x / scale) + zero
    return _saturated(jnp.where(jnp.isnan(places), zero, places), dtype)


def _widened(q: Any) -> Any:
    """Integers as int32, because XLA converts int32 to all dtypes."""
    return q.astype(np.int32)


def _saturated(whole: Any, dtype: DType) -> Any:
    """Integral floats as integers of `dtype`, clamped to its range."""
    limits: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    top = np.asarray(limits.max, whole.dtype)
    if float(top) > int(limits.max):  # float32 rounds 2^31 - 1 up
        top = np.nextafter(top, top.dtype.type(0))
    inside = jnp.clip(whole, np.asarray(limits.min, whole.dtype), top).astype(np.int32)
    return jnp.where(whole > top, np.int32(limits.max), inside).astype(dtype)


QUANTIZE = grid_operator(
    "Quantize(x, scale, zero_point) -> q",
    attrs={"dtype": Attr("dtype", check=lambda d: d.name in QUANTIZED, must=f"be {_WORDS}")},
    infer=_infer_quantize,
    lower=summed(_lower_quantize),
    differentiable=False,
    operations=5,
    doc="round(x / scale) + zero_point as integers of `dtype`. Ties round to even, values beyond "
    "the range are clamped, and NaN gives zero_point. One scale and zero_point for all, or one "
    "for each index along `axis`. x and scale of one floating dtype, zero_point of `dtype`. "
    "Source: Jacob et al., CVPR 2018.",
)


def _infer_dequantize(
    ctx: InferContext, q: TensorType, scale: TensorType, zero_point: TensorType, *, axis: int | None
) -> TensorType:
    ctx.require_dtype([q], lambda dtype: dtype.name in QUANTIZED, _WORDS)
    ctx.require(
        is_floating(scale.dtype), f"scale must be floating, got {scale.dtype.name}", dtype=True
    )
    _check_zero_point(ctx, zero_point, q.dtype)
    check_grid(ctx, q.shape, axis, scale=scale, zero_point=zero_point)
    return TensorType(scale.dtype, q.shape)


def _lower_dequantize(
    ctx: LowerContext, q: Any, scale: Any, zero_point: Any, *, axis: int | None
) -> Any:
    scale, zero_point = (along(v, q.ndim, axis) for v in (scale, zero_point))
    q, zero_point = _widened(q), _widened(zero_point)
    float_ = wide(np.dtype(scale.dtype))
    # With equal signs their difference is an int32; with opposite signs floats lose no digits.
    exact = (q ^ zero_point) >= 0
    steps = jnp.where(
        exact, (q - zero_point).astype(float_), q.astype(float_) - zero_point.astype(float_)
    )
    return (steps * scale.astype(float_)).astype(scale.dtype)


def _dequantize_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    q, scale, zero_point = node.inputs
    axis = node.attrs["axis"]
    steps = emit_one(DEQUANTIZE, (q, ones_like(scale), zero_point), axis=axis)
    return [None, summed_along(ctx, dy * steps, axis, scale), None]


DEQUANTIZE = grid_operator(
    "Dequantize(q, scale, zero_point) -> x",
    infer=_infer_dequantize,
    lower=_lower_dequantize,
    gradient=_dequantize_gradient,
    operations=2,
    doc="(q - zero_point) * scale, of the dtype of scale. One scale and zero_point for all, or "
    f"one for each index along `axis`. q and zero_point of one dtype, {_WORDS}; scale floating. "
    "Source: Jacob et al., CVPR 2018.",
)


# -- functions ---------------------------------------------------------------------------------


def quantize(
    x: TensorLike,
    scale: TensorLike,
    zero_point: TensorLike = 0,
    *,
    dtype: DTypeLike = "int8",
    axis: int | None = None,
    name: str | None = None,
) -> Tensor:
    """`x` as integers: `round(x / scale) + zero_point`, within the range of `dtype`.

    Ties round to the even integer. Values beyond the range are clamped to it. NaN gives the zero
    point. Computed in the dtype of `x`, or in float32 if that is narrower.

    Args:
        x: floating; integers are converted to float32.
        scale: the distance between neighbours, greater than 0: a scalar, or a vector with `axis`.
        zero_point: the integer that represents 0, of `dtype`: a scalar, or a vector with `axis`.
        dtype: int4, uint4, int8, uint8, int16, uint16 or int32.
        axis: the axis of `x` with one scale and zero point for each index; None: one for all.

    Raises:
        DTypeError: `zero_point` is a tensor of another dtype, or a number that does not fit.
        ShapeError: `scale` or `zero_point` is neither a scalar nor a vector of the size of the
            axis.

    Source: Jacob et al., CVPR 2018.

    Examples:
        >>> run(gc.quantize([-1.0, 2.1], scale=0.25))
        Array([-4,  8], dtype=int8)
    """
    operand, step = promote_inexact(x, scale)
    wanted, place = as_dtype(dtype), canonical("Quantize", operand, axis)
    zero = _zero_point(zero_point, wanted)
    return emit_one(QUANTIZE, (operand, step, zero), name, dtype=wanted, axis=place)


def _zero_point(value: Any, dtype: DType) -> Tensor:
    """The zero point as a tensor. A Python int is converted to `dtype`; other values must have
    it."""
    bare = not hasattr(value, "dtype") and np.asarray(value).dtype.kind in "iu"
    return convert(value, dtype if bare else None)


def dequantize(
    q: TensorLike,
    scale: TensorLike,
    zero_point: TensorLike = 0,
    *,
    axis: int | None = None,
    name: str | None = None,
) -> Tensor:
    """`(q - zero_point) * scale`, of the dtype of `scale`: reverses `quantize`.

    Args:
        q: int4, uint4, int8, uint8, int16, uint16 or int32.
        scale: floating: a scalar, or a vector with `axis`. Gradients pass to it.
        zero_point: of the dtype of `q`: a scalar, or a vector with `axis`.
        axis: the axis of `q` with one scale and zero point for each index; None: one for all.

    Raises:
        DTypeError: `q` has another dtype, or the dtype of `zero_point` differs from that of `q`.
        ShapeError: `scale` or `zero_point` is neither a scalar nor a vector of the size of the
            axis.

    Source: Jacob et al., CVPR 2018.

    Examples:
        >>> run(gc.dequantize(np.array([-4, 8], np.int8), scale=0.25))
        Array([-1.,  2.], dtype=float32)
    """
    operand = convert(q)
    (step,) = promote_inexact(scale)
    place = canonical("Dequantize", operand, axis)
    zero = _zero_point(zero_point, operand.type.dtype)
    return emit_one(DEQUANTIZE, (operand, step, zero), name, axis=place)


OPS: tuple[OpDef, ...] = (QUANTIZE, DEQUANTIZE)
