"""Local response normalisation, and its gradient with the windowed sums written once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax

from graphc.ir.costs import CostRule, size_of
from graphc.ir.dtypes import is_floating
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import require_one_dtype
from graphc.ops.core.defining import adjoint_of, at_least, define
from graphc.ops.core.emit import convert, emit, emit_one
from graphc.ops.core.layout_rules import not_last, same_axis
from graphc.ops.core.precision import summed
from graphc.typing import TensorLike

__all__ = ["local_response_norm"]


def _finite(default: float, doc: str) -> Attr:
    return Attr("float", default=default, check=math.isfinite, must="be finite", doc=doc)


_ATTRS = {
    "radius": at_least(
        0, "be an int of at least 0", default=5, doc="how many channels on each side are neighbours"
    ),
    "bias": _finite(1.0, "added to the sum"),
    "alpha": _finite(1.0, "factor of the sum"),
    "beta": _finite(0.5, "the exponent"),
}


# -- sums over neighbours -------------------------------------------------------------------

# Up to this number of neighbours, a sum of shifted copies, which XLA fuses with its neighbours, is
# faster on CPU than a reduce_window (8 x 13 x 13 x 256, radius 5: 0.9 ms against 1.6 ms; a running
# sum takes 2.1 ms, a product with a banded matrix 2.2 ms).
_SHIFTS = 17


def _neighbours(x: Any, radius: int) -> Any:
    """The sum of each element of the last axis and the `radius` elements on each side of it."""
    zero, last, width = np.zeros((), x.dtype), x.ndim - 1, 2 * radius + 1
    if width > _SHIFTS:
        return lax.reduce_window(
            x,
            zero,
            lax.add,
            window_dimensions=(*[1] * last, width),
            window_strides=(1,) * x.ndim,
            padding=(*[(0, 0)] * last, (radius, radius)),
        )
    padded = lax.pad(x, zero, [*[(0, 0, 0)] * last, (radius, radius, 0)])
    size = x.shape[-1]
    total = x
    for start in [i for i in range(width) if i != radius]:
        total = total + lax.slice_in_dim(padded, start, start + size, axis=last)
    return total


def _inverse_power(x: Any, beta: float) -> Any:
    """x^-beta. The usual exponents use roots, which are faster than a logarithm."""
    if beta == 0.5:
        return lax.rsqrt(x)
    if beta == 0.75:
        root = lax.rsqrt(x)
        return root * lax.sqrt(root)
    return lax.pow(x, np.array(-beta, x.dtype))


def _scale(x: Any, radius: int, bias: float, alpha: float) -> Any:
    return _neighbours(x * x, radius) * alpha + bias


# -- the operators --------------------------------------------------------------------------


def _infer(ctx: InferContext, x: TensorType, **attrs: Any) -> TensorType:
    ctx.require_dtype([x], is_floating, "floating")
    ctx.require(x.rank > 1, f"x must be [batch, ..., channels], got {x.rank} axes")
    return x


def _infer_gradient(ctx: InferContext, x: TensorType, dy: TensorType, **attrs: Any) -> TensorType:
    _infer(ctx, x)
    require_one_dtype(ctx, x, dy)
    ctx.require(x.rank == dy.rank, f"x and dy differ in rank: {x} and {dy}")
    for a, b in zip(x.shape, dy.shape, strict=True):
        ctx.unify(a, b, "sizes of x and dy")
    return x


def _lower_gradient(
    ctx: LowerContext, x: Any, dy: Any, *, radius: int, bias: float, alpha: float, beta: float
) -> Any:
    scale = _scale(x, radius, bias, alpha)
    own = dy * _inverse_power(scale, beta)
    return own - (2 * alpha * beta) * x * _neighbours(own * x / scale, radius)


def _cost(neighbours: int, others: int) -> CostRule:
    """The cost of sums over neighbours, and of other operations on each element."""
    return lambda ctx, node: (
        (neighbours * int(node.attrs["radius"]) + others) * size_of(node.inputs[0])
    )


LOCAL_RESPONSE_NORM = define(
    "LocalResponseNorm(x) -> y",
    precision="inside",
    attrs=_ATTRS,
    infer=_infer,
    lower=summed(
        lambda ctx, x, *, radius, bias, alpha, beta: (
            x * _inverse_power(_scale(x, radius, bias, alpha), beta)
        )
    ),
    gradient=lambda ctx, node, dy: [
        emit(LOCAL_RESPONSE_NORM_GRADIENT, (node.inputs[0], dy), **node.attrs)
    ],
    layout=same_axis(not_last),
    cost=_cost(2, 5),  # the square, its sum over neighbours, a scale, a power and a product
    doc="x [batch, ..., channels] / (bias + alpha * the sum of the squares of the channel and of "
    "`radius` channels on each side of it)^beta. Floating dtypes. Source: Krizhevsky, Sutskever & "
    "Hinton, ImageNet classification with deep convolutional neural networks, 2012.",
)


LOCAL_RESPONSE_NORM_GRADIENT: OpDef = adjoint_of(
    LOCAL_RESPONSE_NORM,
    "LocalResponseNormGradient(x, dy) -> dx",
    infer=_infer_gradient,
    lower=summed(_lower_gradient),
    cost=_cost(4, 11),  # two sums over neighbours
    doc="The adjoint of LocalResponseNorm's x, with the sums over neighbours of x^2 and of the "
    "adjoint computed once each. Floating dtypes.",
)


def local_response_norm(
    x: TensorLike,
    radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
    *,
    name: str | None = None,
) -> Tensor:
    """`x` divided by (bias + alpha * the sum of the squares of neighbouring channels)^beta.

    Args:
        x: [batch, ..., channels], floating.
        radius: how many channels on each side are neighbours.
        bias, alpha, beta: as above.
        name: of the node.

    Returns:
        Of the shape and dtype of `x`; computed in float32 if it is narrower.

    Raises:
        ShapeError: `x` has fewer than two axes.
        DTypeError: `x` is not floating.
        AttributeValueError: the radius is not an int of at least 0.

    Source: Krizhevsky, Sutskever & Hinton, ImageNet classification with deep convolutional
    neural networks, 2012; TensorFlow's `tf.nn.local_response_normalization`.

    Examples:
        >>> gc.nn.local_response_norm(gc.ones((1, 4, 4, 8))).shape
        (1, 4, 4, 8)
    """
    attrs = {"radius": radius, "bias": float(bias), "alpha": float(alpha), "beta": float(beta)}
    return emit_one(LOCAL_RESPONSE_NORM, (convert(x),), name=name, **attrs)


OPS: tuple[OpDef, ...] = (LOCAL_RESPONSE_NORM, LOCAL_RESPONSE_NORM_GRADIENT)
