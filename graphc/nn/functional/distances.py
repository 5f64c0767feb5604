"""Losses between numbers, between vectors, and between distributions.

Operands are passed by keyword, as in the losses of classes. Elementwise losses give one loss per
element; average them with `gc.reduce_mean`.
"""

from __future__ import annotations

import math

from graphc.ir.node import Tensor
from graphc.nn.functional.pairs import refuse_column
from graphc.ops.core.emit import promote_inexact, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import absolute, maximum, minimum, multiply, subtract
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.elementwise.powers import rsqrt, sqrt, square
from graphc.ops.elementwise.transcendental import exp, log, softplus
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import TensorLike

__all__ = [
    "absolute_error",
    "cosine_distance",
    "cosine_similarity",
    "huber_loss",
    "kl_divergence",
    "log_cosh_loss",
    "poisson_loss",
    "squared_error",
    "triplet_loss",
]

_EPSILON = 1e-12  # the least squared length of a vector


def _compared(op: str, predictions: TensorLike, labels: TensorLike) -> tuple[Tensor, Tensor]:
    predictions, labels = promote_inexact(predictions, labels)
    refuse_column(op, predictions=predictions, labels=labels)
    return predictions, labels


def squared_error(
    *, predictions: TensorLike, labels: TensorLike, name: str | None = None
) -> Tensor:
    """(predictions - labels)^2, elementwise; shapes broadcast.

    Examples:
        >>> run(gc.nn.squared_error(predictions=[1.0, 2.0], labels=[1.0, 4.0]))
        Array([0., 4.], dtype=float32)
    """
    predictions, labels = _compared("squared_error", predictions, labels)
    return square(predictions - labels, name=name)


def absolute_error(
    *, predictions: TensorLike, labels: TensorLike, name: str | None = None
) -> Tensor:
    """|predictions - labels|, elementwise; shapes broadcast.

    Examples:
        >>> run(gc.nn.absolute_error(predictions=[1.0, 2.0], labels=[1.0, 4.0]))
        Array([0., 2.], dtype=float32)
    """
    predictions, labels = _compared("absolute_error", predictions, labels)
    return absolute(predictions - labels, name=name)


def huber_loss(
    *, predictions: TensorLike, labels: TensorLike, delta: float = 1.0, name: str | None = None
) -> Tensor:
    """Half the squared error where the error is at most `delta`, linear beyond.

    Elementwise; shapes broadcast. Source: Huber, 1964, doi:10.1214/aoms/1177703732.

    Examples:
        >>> run(gc.nn.huber_loss(predictions=[0.5, 3.0], labels=[0.0, 0.0]))
        Array([0.125, 2.5  ], dtype=float32)
    """
    predictions, labels = _compared("huber_loss", predictions, labels)
    error = absolute(predictions - labels)
    near = minimum(error, delta)
    return multiply(error - near * 0.5, near, name=name)


def log_cosh_loss(
    *, predictions: TensorLike, labels: TensorLike, name: str | None = None
) -> Tensor:
    """log(cosh(predictions - labels)), elementwise, without overflow; shapes broadcast.

    Examples:
        >>> run(gc.nn.log_cosh_loss(predictions=[0.0, 1.0], labels=[0.0, 0.0]))
        Array([0.    , 0.4338], dtype=float32)
    """
    predictions, labels = _compared("log_cosh_loss", predictions, labels)
    error = predictions - labels
    return subtract(error + softplus(error * -2), math.log(2), name=name)


def poisson_loss(
    *, log_predictions: TensorLike, labels: TensorLike, name: str | None = None
) -> Tensor:
    """exp(log_predictions) - labels * log_predictions: -log of the Poisson probability of counts.

    Elementwise; shapes broadcast. A term that depends on the labels only, log(labels!), is left
    out.

    Examples:
        >>> run(gc.nn.poisson_loss(log_predictions=[0.0], labels=[2.0]))
        Array([1.], dtype=float32)
    """
    rates, labels = promote_inexact(log_predictions, labels)
    refuse_column("poisson_loss", log_predictions=rates, labels=labels)
    return subtract(exp(rates), labels * rates, name=name)


def cosine_similarity(
    x: TensorLike,
    y: TensorLike,
    axis: int = -1,
    epsilon: float = _EPSILON,
    *,
    name: str | None = None,
) -> Tensor:
    """The cosine of the angle between vectors.

    Args:
        x, y: floating, of shapes that broadcast.
        axis: the axis of the vectors.
        epsilon: the least squared length of a vector: one of zeros gives 0.
        name: of the node.

    Returns:
        In [-1, 1], without `axis`.

    Examples:
        >>> run(gc.nn.cosine_similarity([[1.0, 0.0]], [[2.0, 0.0]]))
        Array([1.], dtype=float32)
    """
    x, y = promote_inexact(x, y)
    return to_dtype(_cosine(x, y, axis, epsilon, name), x.dtype)


def _cosine(x: Tensor, y: Tensor, axis: int, epsilon: float, name: str | None = None) -> Tensor:
    """`cosine_similarity` in the dtype to compute in."""
    rows = [to_dtype(v, wide(v.dtype)) for v in (x, y)]
    units = [
        v * rsqrt(maximum(reduce_sum(square(v), axis=axis, keepdims=True), epsilon)) for v in rows
    ]
    return reduce_sum(units[0] * units[1], axis=axis, name=name)


def cosine_distance(
    *, predictions: TensorLike, labels: TensorLike, axis: int = -1, name: str | None = None
) -> Tensor:
    """1 - `cosine_similarity`, without `axis`.

    Examples:
        >>> run(gc.nn.cosine_distance(predictions=[[1.0, 0.0]], labels=[[0.0, 2.0]]))
        Array([1.], dtype=float32)
    """
    x, y = promote_inexact(predictions, labels)
    return to_dtype(subtract(1.0, _cosine(x, y, axis, _EPSILON), name=name), x.dtype)


def kl_divergence(
    *, log_predictions: TensorLike, labels: TensorLike, axis: int = -1, name: str | None = None
) -> Tensor:
    """The Kullback-Leibler divergence of a distribution from predicted logarithms of one.

    Args:
        log_predictions: logarithms of probabilities, as from `log_softmax`; floating.
        labels: of a shape that broadcasts with it; probabilities that sum to 1 along `axis`.
        axis: of the classes.
        name: of the node.

    Returns:
        sum(labels * (log(labels) - log_predictions)), without `axis`; a label of 0 counts 0.

    Source: Kullback & Leibler, 1951, doi:10.1214/aoms/1177729694.

    Examples:
        >>> run(gc.nn.kl_divergence(log_predictions=np.log([[0.5, 0.5]]), labels=[[1.0, 0.0]]))
        Array([0.6931], dtype=float64)
    """
    log_p, labels = promote_inexact(log_predictions, labels)
    log_labels = log(where(equal(labels, 0), 1, labels))
    return reduce_sum(labels * (log_labels - log_p), axis=axis, name=name)


def triplet_loss(
    *,
    anchors: TensorLike,
    positives: TensorLike,
    negatives: TensorLike,
    margin: float = 1.0,
    epsilon: float = 1e-6,
    name: str | None = None,
) -> Tensor:
    """max(|anchor - positive| - |anchor - negative| + margin, 0) of vectors.

    Args:
        anchors, positives, negatives: [..., depth], floating, of shapes that broadcast.
        margin: how much nearer a positive has to be than a negative.
        epsilon: added to squared distances, to make them differentiable at 0.
        name: of the node.

    Returns:
        [...].

    Source: Schroff, Kalenichenko & Philbin, 2015, arXiv:1503.03832.

    Examples:
        >>> run(
        ...     gc.nn.triplet_loss(
        ...         anchors=[[0.0, 0.0]], positives=[[0.0, 1.0]], negatives=[[3.0, 0.0]]
        ...     )
        ... )
        Array([0.], dtype=float32)
    """
    anchors, positives, negatives = promote_inexact(anchors, positives, negatives)
    near, far = (
        sqrt(reduce_sum(square(anchors - others), axis=-1) + epsilon)
        for others in (positives, negatives)
    )
    return maximum(near - far + margin, 0, name=name)
