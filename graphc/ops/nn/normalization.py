"""Batch and layer normalisation, and the moments that batch normalisation needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from jax import lax
from jax import numpy as jnp

from graphc.ir.dims import product
from graphc.ir.dtypes import FLOAT32, is_floating
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.axes import normalize_axes
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.cost_rules import times_operand
from graphc.ops.core.defining import Record, define
from graphc.ops.core.emit import convert, dim_value, emit, emit_one, promote_operands, to_dtype
from graphc.ops.core.layout_rules import SUM, map_axis, not_last, replicated
from graphc.ops.core.precision import wide
from graphc.ops.reductions.reduction import reduce_mean
from graphc.ops.reductions.reduction_rules import AXES
from graphc.typing import TensorLike

__all__ = ["batch_norm", "layer_norm", "moments"]

EPSILON = Attr(
    "float",
    check=lambda v: v >= 0,
    must="be a float of at least 0",
    doc="added to the variance",
)


def check_channels(ctx: InferContext, x: TensorType, *parameters: TensorType) -> None:
    """Parameters are [channels] of one dtype: that of x, or float32 if x is narrower."""
    ctx.require_dtype([x, *parameters], is_floating, "floating")
    ctx.require(x.rank > 1, f"x must have two axes or more, got {x.rank}")
    for position, parameter in enumerate(parameters, start=1):
        label = ctx.op.operand_label(position)
        ctx.require(parameter.rank == 1, f"{label} must be [channels], got {parameter.rank} axes")
        ctx.unify(x.shape[-1], parameter.shape[0], f"channels of x and {label}")
        dtypes = (x.dtype, wide(x.dtype))
        ctx.require(
            parameter.dtype == parameters[0].dtype and parameter.dtype in dtypes,
            f"{label} must be {' or '.join(sorted({d.name for d in dtypes}))}, as the other "
            f"parameters, got {parameter.dtype.name}",
            dtype=True,
        )


def norm_operator(schema: str, *, operations: int, **fields: Unpack[Record]) -> OpDef:
    """The record of an operator that normalises, or of its adjoints, with `operations` for each
    element of x. The arguments are those of `define`."""
    fields["attrs"] = {"epsilon": EPSILON, **fields.get("attrs", {})}
    fields["cost"] = times_operand(operations)
    return define(schema, precision="inside", **fields)


# -- batch normalisation --------------------------------------------------------------------


def _infer_norm(
    ctx: InferContext, x: TensorType, *parameters: TensorType, epsilon: float
) -> TensorType:
    check_channels(ctx, x, *parameters)
    return x


def _lower_batch_norm(
    ctx: LowerContext, x: Any, mean: Any, variance: Any, scale: Any, offset: Any, *, epsilon: float
) -> Any:
    # The mean is subtracted first. Folding it into the offset would cause cancellation if it is
    # large.
    factor = lax.rsqrt(variance + epsilon) * scale
    y = (lax.convert_element_type(x, mean.dtype) - mean) * factor + offset
    return lax.convert_element_type(y, x.dtype)


def _batch_norm_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, mean, variance, scale, _ = node.inputs
    axes = tuple(range(x.ndim - 1))
    adjoint = to_dtype(dy, mean.dtype)
    inverse = ctx.ops.rsqrt(variance + node.attrs["epsilon"])
    factor = inverse * scale
    # The sums of two passes give the adjoints of all four parameters.
    total = ctx.ops.reduce_sum(adjoint, axis=axes)
    product = ctx.ops.reduce_sum(adjoint * (to_dtype(x, mean.dtype) - mean), axis=axes)
    return [
        to_dtype(adjoint * factor, x.dtype),
        -(total * factor),
        product * (factor * inverse * inverse * -0.5),
        product * inverse,
        total,
    ]


def _batch_norm_layout(
    ctx: LayoutContext, node: Node, x: Layout, *parameters: Layout
) -> LayoutPlan:
    if not isinstance(x, Sharded):
        return replicated(ctx, node, x, *parameters)
    own = Sharded(0) if x.axis == node.inputs[0].ndim - 1 else REPLICATED
    return LayoutPlan([x] + [own] * len(parameters), [x])


BATCH_NORM = norm_operator(
    "BatchNorm(x, mean, variance, scale, offset) -> y",
    infer=_infer_norm,
    lower=_lower_batch_norm,
    gradient=_batch_norm_gradient,
    layout=_batch_norm_layout,
    operations=4,
    doc="(x - mean) / sqrt(variance + epsilon) * scale + offset for each channel: x [..., "
    "channels], the others [channels]. Floating dtypes; the parameters may be float32 if x is "
    "narrower. Source: Ioffe & Szegedy, 2015, arXiv:1502.03167.",
)


def _infer_variance(
    ctx: InferContext, x: TensorType, mean: TensorType, *, axes: tuple[int, ...], count: Any
) -> TensorType:
    ctx.require_dtype([x], is_floating, "floating")
    shape = tuple(1 if i in axes else dim for i, dim in enumerate(x.shape))
    ctx.unify_types(mean, TensorType(x.dtype, shape), "mean")
    return mean


def _variance_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, mean = node.inputs
    scaled = dy * 2 / dim_value(node.attrs["count"], x.dtype)
    # The derivative with respect to the mean is -2 times the mean deviation, which is 0.
    return [(x - mean) * scaled, None]


def _variance_layout(ctx: LayoutContext, node: Node, x: Layout, mean: Layout) -> LayoutPlan:
    if not isinstance(x, Sharded):
        return replicated(ctx, node, x, mean)
    if x.axis in node.attrs["axes"]:
        return LayoutPlan([x, REPLICATED], [SUM], fill={0: 1})  # no derivative by the mean
    return LayoutPlan([x, x], [x])


VARIANCE = define(
    "Variance(x, mean) -> variance",
    precision="wide",
    attrs={
        "axes": AXES["axes"],
        "count": Attr("dim", doc="how many elements each variance is over"),
    },
    infer=_infer_variance,
    lower=lambda ctx, x, mean, *, axes, count: (
        jnp.sum(lax.square(x - lax.stop_gradient(mean)), axis=axes, keepdims=True)
        / jnp.asarray(ctx.dim(count), x.dtype)
    ),
    gradient=_variance_gradient,
    layout=_variance_layout,
    cost=times_operand(3),
    doc="The mean of (x - mean)^2 along `axes`, which stay with size 1. `mean` must be the mean "
    "of x along them, and no derivative flows through it: it would be 0. Floating dtypes.",
)


# -- layer normalisation --------------------------------------------------------------------


def _normalized(x: Any, epsilon: float) -> tuple[Any, Any]:
    """The rows of x normalised to mean 0 and variance 1, and the factor that scales them."""
    size = jnp.asarray(x.shape[-1], x.dtype)
    centred = x - jnp.sum(x, axis=-1, keepdims=True) / size
    variance = jnp.sum(lax.square(centred), axis=-1, keepdims=True) / size
    factor = lax.rsqrt(variance + epsilon)
    return centred * factor, factor


def _lower_layer_norm(ctx: LowerContext, x: Any, scale: Any, offset: Any, *, epsilon: float) -> Any:
    dtype = wide(x.dtype)
    rows, _ = _normalized(lax.convert_element_type(x, dtype), epsilon)
    return lax.convert_element_type(
        rows * lax.convert_element_type(scale, dtype) + lax.convert_element_type(offset, dtype),
        x.dtype,
    )


def _layer_norm_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, scale, _ = node.inputs
    adjoints: tuple[Tensor, ...] = emit(LAYER_NORM_GRADIENT, (x, scale, dy), **node.attrs)
    return list(adjoints)


def infer_norm_gradient(
    ctx: InferContext, x: TensorType, scale: TensorType, dy: TensorType, **attrs: Any
) -> tuple[TensorType, ...]:
    """The types of the adjoints of x, scale and offset."""
    check_channels(ctx, x, scale)
    ctx.unify_types(dy, x, "dy")
    return x, scale, scale


def in_dtypes(x: Any, scale: Any, *adjoints: Any) -> tuple[Any, ...]:
    """The adjoints of x, scale and offset, in the dtypes of these."""
    dtypes = (x.dtype, scale.dtype, scale.dtype)
    return tuple(map(lax.convert_element_type, adjoints, dtypes))


def _lower_layer_norm_gradient(
    ctx: LowerContext, x: Any, scale: Any, dy: Any, *, epsilon: float
) -> tuple[Any, ...]:
    dtype = wide(x.dtype)
    adjoint = lax.convert_element_type(dy, dtype)
    # The same expressions as in the forward pass: XLA computes them once.
    rows, factor = _normalized(lax.convert_element_type(x, dtype), epsilon)
    along = adjoint * lax.convert_element_type(scale, dtype)
    size = jnp.asarray(x.shape[-1], dtype)
    mean = jnp.sum(along, axis=-1, keepdims=True) / size
    projection = jnp.sum(along * rows, axis=-1, keepdims=True) / size
    dx = factor * (along - mean - rows * projection)
    axes = tuple(range(x.ndim - 1))
    dscale, doffset = jnp.sum(adjoint * rows, axis=axes), jnp.sum(adjoint, axis=axes)
    return in_dtypes(x, scale, dx, dscale, doffset)


def _layer_norm_gradient_layout(
    ctx: LayoutContext, node: Node, x: Layout, scale: Layout, dy: Layout
) -> LayoutPlan:
    for layout in (x, dy):
        if isinstance(layout, Sharded) and layout.axis != node.inputs[0].ndim - 1:
            return LayoutPlan(
                [layout, REPLICATED, layout], [layout, SUM, SUM], fill={0: "sum", 2: "sum"}
            )
    return replicated(ctx, node, x, scale, dy)


LAYER_NORM = norm_operator(
    "LayerNorm(x, scale, offset) -> y",
    infer=_infer_norm,
    lower=_lower_layer_norm,
    gradient=_layer_norm_gradient,
    layout=map_axis(lambda node, axis: axis if not_last(node, axis) else None),
    operations=8,
    doc="x [..., channels] with mean 0 and variance 1 along the last axis (epsilon is added to "
    "the variance), times scale plus offset, both [channels]. Floating dtypes; narrow ones are "
    "computed in float32. Source: Ba, Kiros & Hinton, 2016, arXiv:1607.06450.",
)

LAYER_NORM_GRADIENT = norm_operator(
    "LayerNormGradient(x, scale, dy) -> dx, dscale, doffset",
    infer=infer_norm_gradient,
    lower=_lower_layer_norm_gradient,
    layout=_layer_norm_gradient_layout,
    operations=14,
    doc="The adjoints of LayerNorm's operands. x and dy [..., channels], scale [channels].",
)


# -- functions ------------------------------------------------------------------------------


def batch_norm(
    x: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    scale: TensorLike,
    offset: TensorLike,
    epsilon: float = 1e-5,
    *,
    name: str | None = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset for each channel.

    Args:
        x: [..., channels], floating.
        mean, variance, scale, offset: [channels], of the dtype of `x`, or float32 if that is
            narrower.

    Returns:
        Of the shape and dtype of `x`.

    Examples:
        >>> run(gc.nn.batch_norm([[1.0], [3.0]], [2.0], [1.0], [1.0], [0.0]))
        Array([[-1.],
               [ 1.]], dtype=float32)
    """
    parameters = promote_operands(mean, variance, scale, offset)
    return emit_one(BATCH_NORM, (convert(x), *parameters), name=name, epsilon=epsilon)


def moments(
    x: TensorLike, axes: int | Sequence[int] | None = None, *, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """The mean and the variance (over the count, not count - 1) of `x` along `axes`.

    `x` is read twice, so that no large numbers are subtracted from each other. In a data-parallel
    run, these are the moments of the whole batch.

    Args:
        x: floating.
        axes: the axes to average over; all by default.
        keepdims: keep the axes with size 1.

    Returns:
        mean, variance: of the dtype of `x`; float32 for a narrower one.

    Examples:
        >>> run(gc.nn.moments([1.0, 3.0]))
        (Array(2., dtype=float32), Array(1., dtype=float32))
    """
    x = convert(x)
    kept = normalize_axes("Variance", x, axes)
    x = to_dtype(x, FLOAT32) if is_floating(x.dtype) and wide(x.dtype) != x.dtype else x
    mean = reduce_mean(x, axis=kept, keepdims=True)
    count = product(x.shape[i] for i in kept)
    variance = emit_one(VARIANCE, (x, mean), axes=kept, count=count)
    if keepdims:
        return mean, variance
    shape = tuple(dim for i, dim in enumerate(x.shape) if i not in kept)
    return reshape(mean, shape), reshape(variance, shape)


def batch_norm_training(
    x: Any, scale: Any, offset: Any, epsilon: float = 1e-5, *, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation with the statistics of `x` itself. The gradient flows through them.

    Args:
        x: [..., channels], floating; the statistics are over all axes except the last.
        scale, offset: [channels], of the dtype of `x`, or float32 if that is narrower.

    Returns:
        y, of the type of `x`; mean and variance, [channels], for moving averages.
    """
    x = convert(x)
    mean, variance = moments(x, tuple(range(x.ndim - 1)))
    return batch_norm(x, mean, variance, scale, offset, epsilon, name=name), mean, variance


def layer_norm(
    x: TensorLike,
    scale: TensorLike,
    offset: TensorLike,
    epsilon: float = 1e-5,
    *,
    name: str | None = None,
) -> Tensor:
    """`x` with mean 0 and variance 1 along the last axis, times `scale` plus `offset`.

    Args:
        x: [..., channels], floating.
        scale, offset: [channels], of the dtype of `x`, or float32 if that is narrower.

    Returns:
        Of the shape and dtype of `x`.

    Examples:
        >>> run(gc.nn.layer_norm([[1.0, 3.0]], [1.0, 1.0], [0.0, 0.0]))
        Array([[-1.,  1.]], dtype=float32)
    """
    operands = (convert(x), *promote_operands(scale, offset))
    return emit_one(LAYER_NORM, operands, name=name, epsilon=epsilon)


OPS: tuple[OpDef, ...] = (BATCH_NORM, VARIANCE, LAYER_NORM, LAYER_NORM_GRADIENT)
