"""Batch normalisation by the statistics of one piece of the batch: a replica's, a micro-batch's."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.errors import GradientError
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.defining import at_least
from graphc.ops.core.emit import convert, emit, promote_operands
from graphc.ops.core.layout_rules import SUM, replicated
from graphc.ops.core.precision import wide
from graphc.ops.nn.normalization import (
    check_channels,
    in_dtypes,
    infer_norm_gradient,
    norm_operator,
)
from graphc.ops.structure.collective import axis_name_of
from graphc.ops.structure.state import stop_gradient

# A piece may contain padding after its rows, or only padding. Then: (axis, size of the whole).
_REAL = Attr(
    "ints",
    default=(),
    check=lambda v: len(v) in (0, 2),
    must="be the axis and the size of a batch that does not divide by the replicas, or nothing",
)
_Real = tuple[int, ...]


class _Piece(NamedTuple):
    """A piece of the batch.

    Attributes:
        count: the number of elements of each channel in the real rows, at least 1.
        is_real: which elements are real; None: all of them.
    """

    count: Any
    is_real: Any = None

    @staticmethod
    def of(ctx: LowerContext, x: Any, real: _Real) -> _Piece:
        size = x.size // x.shape[-1]
        if not real:
            return _Piece(size)
        axis, whole = real
        length = x.shape[axis]
        here = jnp.clip(whole - lax.axis_index(axis_name_of(ctx)) * length, 0, length)
        places = lax.broadcasted_iota(np.int32, x.shape, axis)
        return _Piece(jnp.maximum(here * (size // length), 1), places < here)

    def total(self, rows: Any) -> Any:
        """The sum over the real rows, for each channel."""
        return jnp.sum(rows, axis=tuple(range(rows.ndim - 1)), where=self.is_real)


def _normalized(x: Any, epsilon: float, piece: _Piece) -> tuple[Any, Any, Any, Any]:
    """(rows with mean 0 and variance 1, 1 / deviation, mean, variance), in a wide dtype."""
    rows = lax.convert_element_type(x, wide(x.dtype))
    mean = piece.total(rows) / piece.count
    variance = piece.total(lax.square(rows - mean)) / piece.count
    inverse = lax.rsqrt(variance + epsilon)
    return (rows - mean) * inverse, inverse, mean, variance


def _infer(
    ctx: InferContext, x: TensorType, *parameters: TensorType, **attrs: Any
) -> tuple[TensorType, ...]:
    check_channels(ctx, x, *parameters)
    return x, parameters[0], parameters[0]


def _lower(
    ctx: LowerContext, x: Any, scale: Any, offset: Any, *, epsilon: float, parts: int, real: _Real
) -> tuple[Any, ...]:
    piece = _Piece.of(ctx, x, real)
    rows, _, mean, variance = _normalized(x, epsilon, piece)
    y = lax.convert_element_type(rows * scale + offset, x.dtype)
    # For a piece without rows both are 0, so they add nothing to the averages.
    statistics = (lax.convert_element_type(v / parts, scale.dtype) for v in (mean, variance))
    return (y, *statistics)


def _gradient(ctx: GradientContext, node: Node, *adjoints: Tensor | None) -> Adjoints:
    dy, *of_statistics = adjoints
    if any(adjoint is not None for adjoint in of_statistics):
        raise GradientError(
            f"LocalBatchNorm {node.name!r}: its mean and variance are averages over pieces of the "
            "batch, and have no gradient",
            source=node.source,
            hint="put gc.stop_gradient around them",
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
    attrs = {"parts": node.attrs["parts"] * math.ceil(ctx.replicas), **_real(ctx, node, x)}
    return LayoutPlan([x, REPLICATED, REPLICATED], [x, SUM, SUM], attrs, fill={})


def _real(ctx: LayoutContext, node: Node, x: Sharded) -> dict[str, _Real]:
    """The attribute that tells which rows of the pieces are real, if not all are."""
    whole = node.inputs[0].type.shape[x.axis]
    if isinstance(ctx.replicas, Fraction) and isinstance(whole, int):
        return {"real": (x.axis, whole)}
    return {}


LOCAL_BATCH_NORM = norm_operator(
    "LocalBatchNorm(x, scale, offset) -> y, mean, variance",
    attrs={
        "parts": at_least(
            1, "be the number of pieces that the statistics are averaged over", default=1
        ),
        "real": _REAL,
    },
    infer=_infer,
    lower=_lower,
    gradient=_gradient,
    layout=_layout,
    operations=8,
    doc="x [..., channels] with mean 0 and variance 1 over all axes but the last, times scale "
    "plus offset, both [channels]. If the batch is split into pieces, over devices or "
    "micro-batches, each piece is normalised by its own mean and variance; the results `mean` and "
    "`variance` are averages over the pieces. Floating dtypes; narrow ones are computed in "
    "float32. Source: Ioffe & Szegedy, 2015, arXiv:1502.03167.",
)


def _lower_gradient(
    ctx: LowerContext, x: Any, scale: Any, dy: Any, *, epsilon: float, real: _Real
) -> tuple[Any, ...]:
    # The same expressions as in the forward pass: XLA computes them once.
    piece = _Piece.of(ctx, x, real)
    rows, inverse, _, _ = _normalized(x, epsilon, piece)
    adjoint = lax.convert_element_type(dy, rows.dtype)
    of_scale, of_offset = piece.total(adjoint * rows), piece.total(adjoint)
    size = piece.count
    dx = (scale * inverse) * (adjoint - of_offset / size - rows * (of_scale / size))
    return in_dtypes(x, scale, dx, of_scale, of_offset)


def _gradient_layout(
    ctx: LayoutContext, node: Node, x: Layout, scale: Layout, dy: Layout
) -> LayoutPlan:
    for layout in (x, dy):
        if isinstance(layout, Sharded):
            if layout.axis == node.inputs[0].ndim - 1:
                return LayoutPlan([layout, Sharded(0), layout], [layout, Sharded(0), Sharded(0)])
            attrs = _real(ctx, node, layout) or None
            return LayoutPlan(
                [layout, REPLICATED, layout],
                [layout, SUM, SUM],
                attrs,
                fill={0: "sum", 2: "sum"},
            )
    return replicated(ctx, node, x, scale, dy)


LOCAL_BATCH_NORM_GRADIENT = norm_operator(
    "LocalBatchNormGradient(x, scale, dy) -> dx, dscale, doffset",
    attrs={"real": _REAL},
    infer=infer_norm_gradient,
    lower=_lower_gradient,
    layout=_gradient_layout,
    operations=14,
    doc="The adjoints of x, scale and offset of LocalBatchNorm, which normalises x piece by "
    "piece, from the adjoint of y. Floating dtypes.",
)


def local_batch_norm(
    x: Any, scale: Any, offset: Any, epsilon: float, *, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation in training, by the statistics of each piece of the batch.

    A piece is the part of one device in a data-parallel run, or one micro-batch of
    `gc.minimize(accumulate=)`. Otherwise it is the whole batch.

    Args:
        x: [..., channels], floating, of rank 2 or more.
        scale, offset: [channels], of x's dtype, or float32 if x is narrower.
        epsilon: added to the variance.

    Returns:
        (y, mean, variance): y of x's type; mean and variance [channels], averages over the pieces,
        treated as constants by `gc.gradients`.

    Raises:
        ShapeError, DTypeError: the operands do not fit.

    Source: Ioffe and Szegedy, 2015, arXiv:1502.03167.
    """
    x = convert(x)
    scale, offset = promote_operands(scale, offset)
    y, mean, variance = emit(
        LOCAL_BATCH_NORM, (x, scale, offset), name=name, epsilon=float(epsilon)
    )
    return y, stop_gradient(mean), stop_gradient(variance)


OPS: tuple[OpDef, ...] = (LOCAL_BATCH_NORM, LOCAL_BATCH_NORM_GRADIENT)
