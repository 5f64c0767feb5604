"""Batch normalisation by the statistics of one piece of the batch: a replica's, a micro-batch's."""

from __future__ import annotations

from typing import Any

from jax import lax
from jax import numpy as jnp

from graphc.errors import GradientError
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.broadcasting import Adjoints
from graphc.ops.emit import convert, emit, promote_operands
from graphc.ops.layout_rules import SUM, replicated
from graphc.ops.normalization import EPSILON, check_channels
from graphc.ops.stable import wide
from graphc.ops.state import stop_gradient


def _normalized(x: Any, epsilon: float) -> tuple[Any, Any, Any, Any]:
    """(rows with mean 0 and variance 1, 1 / deviation, mean, variance), in a wide dtype."""
    rows = lax.convert_element_type(x, wide(x.dtype))
    axes = tuple(range(x.ndim - 1))
    mean = jnp.mean(rows, axis=axes)
    variance = jnp.mean(lax.square(rows - mean), axis=axes)
    inverse = lax.rsqrt(variance + epsilon)
    return (rows - mean) * inverse, inverse, mean, variance


def _infer(
    ctx: InferContext, x: TensorType, *parameters: TensorType, epsilon: float, parts: int
) -> tuple[TensorType, ...]:
    check_channels(ctx, x, *parameters)
    return x, parameters[0], parameters[0]


def _lower(
    ctx: LowerContext, x: Any, scale: Any, offset: Any, *, epsilon: float, parts: int
) -> tuple[Any, ...]:
    rows, _, mean, variance = _normalized(x, epsilon)
    y = lax.convert_element_type(rows * scale + offset, x.dtype)
    statistics = (lax.convert_element_type(v / parts, scale.dtype) for v in (mean, variance))
    return (y, *statistics)


def _gradient(ctx: GradientContext, node: Node, *adjoints: Tensor | None) -> Adjoints:
    dy, *of_statistics = adjoints
    if any(adjoint is not None for adjoint in of_statistics):
        raise GradientError(
            f"LocalBatchNorm {node.name!r}: its mean and variance are averages over pieces of the "
            "batch, and have no gradient",
            source=node.source,
            mend="put gc.stop_gradient around them",
        )
    if dy is None:
        return [None] * 3
    x, scale, _ = node.inputs
    found: tuple[Tensor, ...] = emit(
        LOCAL_BATCH_NORM_GRADIENT, (x, scale, dy), epsilon=node.attrs["epsilon"]
    )
    return list(found)


def _layout(ctx: LayoutContext, node: Node, x: Layout, *parameters: Layout) -> LayoutPlan:
    if not isinstance(x, Sharded):
        return replicated(ctx, node, x, *parameters)
    if x.axis == node.inputs[0].ndim - 1:
        return LayoutPlan([x, Sharded(0), Sharded(0)], [x, Sharded(0), Sharded(0)])
    parts = node.attrs["parts"] * ctx.replicas
    return LayoutPlan([x, REPLICATED, REPLICATED], [x, SUM, SUM], {"parts": parts})


LOCAL_BATCH_NORM = OpDef(
    name="LocalBatchNorm",
    signature="x, scale, offset -> y, mean, variance",
    precision="inside",
    attrs={
        "epsilon": EPSILON,
        "parts": Attr(
            "int",
            default=1,
            check=lambda v: v > 0,
            must="be how many pieces the statistics are averaged over",
        ),
    },
    infer=_infer,
    lower=_lower,
    gradient=_gradient,
    layout=_layout,
    doc="x [..., channels] with mean 0 and variance 1 over all axes but the last, times scale plus "
    "offset, both [channels]. Where the batch is cut into pieces, over devices or micro-batches, "
    "each is normalised by its own mean and variance; the results `mean` and `variance` are "
    "averages over the pieces. Floating dtypes; narrow ones are computed in float32. Source: Ioffe "
    "& Szegedy, 2015, arXiv:1502.03167.",
)


def _infer_gradient(
    ctx: InferContext, x: TensorType, scale: TensorType, dy: TensorType, *, epsilon: float
) -> tuple[TensorType, ...]:
    check_channels(ctx, x, scale)
    ctx.require(dy == x, f"dy must be {x}, got {dy}")
    return x, scale, scale


def _lower_gradient(
    ctx: LowerContext, x: Any, scale: Any, dy: Any, *, epsilon: float
) -> tuple[Any, ...]:
    # The same expressions as in the forward pass: XLA computes them once.
    rows, inverse, _, _ = _normalized(x, epsilon)
    adjoint = lax.convert_element_type(dy, rows.dtype)
    axes = tuple(range(x.ndim - 1))
    of_scale, of_offset = jnp.sum(adjoint * rows, axis=axes), jnp.sum(adjoint, axis=axes)
    size = x.size // x.shape[-1]
    dx = (scale * inverse) * (adjoint - of_offset / size - rows * (of_scale / size))
    return (
        lax.convert_element_type(dx, x.dtype),
        lax.convert_element_type(of_scale, scale.dtype),
        lax.convert_element_type(of_offset, scale.dtype),
    )


def _gradient_layout(
    ctx: LayoutContext, node: Node, x: Layout, scale: Layout, dy: Layout
) -> LayoutPlan:
    for layout in (x, dy):
        if isinstance(layout, Sharded):
            if layout.axis == node.inputs[0].ndim - 1:
                return LayoutPlan([layout, Sharded(0), layout], [layout, Sharded(0), Sharded(0)])
            return LayoutPlan([layout, REPLICATED, layout], [layout, SUM, SUM])
    return replicated(ctx, node, x, scale, dy)


LOCAL_BATCH_NORM_GRADIENT = OpDef(
    name="LocalBatchNormGradient",
    signature="x, scale, dy -> dx, dscale, doffset",
    precision="inside",
    attrs={"epsilon": EPSILON},
    infer=_infer_gradient,
    lower=_lower_gradient,
    layout=_gradient_layout,
    doc="The adjoints of LocalBatchNorm: of x, which it normalises piece by piece, of scale and of "
    "offset, from that of y. Floating dtypes.",
)


def local_batch_norm(
    x: Any, scale: Any, offset: Any, epsilon: float, *, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation in training, by the statistics of each piece of the batch.

    A piece is what one device of a data-parallel run has, or one micro-batch of
    `gc.minimize(accumulate=)`; without these it is the batch.

    Args:
        x: [..., channels], floating, of rank 2 or more.
        scale, offset: [channels], of x's dtype, or float32 beside a narrower x.
        epsilon: added to the variance.

    Returns:
        (y, mean, variance): y of x's type; mean and variance [channels], averages over the pieces,
        treated as constants by `gc.gradients`.

    Raises:
        ShapeError, DTypeError: operands that do not fit.

    Source: Ioffe and Szegedy, 2015, arXiv:1502.03167.
    """
    x = convert(x)
    scale, offset = promote_operands(scale, offset)
    y, mean, variance = emit(
        LOCAL_BATCH_NORM, (x, scale, offset), name=name, epsilon=float(epsilon)
    )
    return y, stop_gradient(mean), stop_gradient(variance)


OPS: tuple[OpDef, ...] = (LOCAL_BATCH_NORM, LOCAL_BATCH_NORM_GRADIENT)
