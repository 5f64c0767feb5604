"""Losses of classes. Operands are passed by keyword, because they are easy to confuse."""

from __future__ import annotations

from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.nn.functional.pairs import refuse_column
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import cast, convert, dim_value, promote_operands
from graphc.ops.elementwise.activation import log_softmax
from graphc.ops.elementwise.arithmetic import add, maximum, multiply
from graphc.ops.elementwise.powers import square
from graphc.ops.elementwise.transcendental import exp, softplus
from graphc.ops.nn import loss
from graphc.ops.reductions.reduction import reduce_mean, reduce_sum
from graphc.typing import TensorLike

__all__ = [
    "hinge_loss",
    "l2_loss",
    "sigmoid_cross_entropy",
    "sigmoid_focal_loss",
    "smooth_labels",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
    "weighted_cross_entropy",
]


def softmax_cross_entropy(
    *, logits: TensorLike, labels: TensorLike, label_smoothing: float = 0.0, name: str | None = None
) -> Tensor:
    """Cross-entropy of the softmax of `logits` against distributions, over the last axis.

    Args:
        logits: [..., classes], floating.
        labels: [..., classes]; rows that sum to 1.
        label_smoothing: see `smooth_labels`.
        name: of the node.

    Returns:
        [...]: one loss per row; average it with `gc.reduce_mean`.

    Raises:
        ShapeError: shapes that differ.

    Examples:
        >>> run(gc.nn.softmax_cross_entropy(logits=[[0.0, 0.0]], labels=[[1.0, 0.0]]))
        Array([0.6931], dtype=float32)
    """
    if label_smoothing:
        labels = smooth_labels(labels, label_smoothing)
    return loss.softmax_cross_entropy(logits, labels, name=name)


def sparse_softmax_cross_entropy(
    *, logits: TensorLike, labels: TensorLike, label_smoothing: float = 0.0, name: str | None = None
) -> Tensor:
    """Cross-entropy of the softmax of `logits` against class numbers.

    Args:
        logits: [..., classes], floating.
        labels: [...], integers in [0, classes). A label out of range gives NaN, and is an error
            in runs with `CompileOptions(check_numerics=True)`.
        label_smoothing: as if the labels were distributions, see `smooth_labels`.
        name: of the node.

    Returns:
        [...]: one loss per row; average it with `gc.reduce_mean`.

    Raises:
        ShapeError: leading sizes that differ.
        DTypeError: labels that are not integers.

    Examples:
        >>> run(gc.nn.sparse_softmax_cross_entropy(logits=[[0.0, 0.0], [9.0, 0.0]], labels=[1, 0]))
        Array([0.6931, 0.0001], dtype=float32)
    """
    if not label_smoothing:
        return loss.sparse_softmax_cross_entropy(logits, labels, name=name)
    _check_smoothing(label_smoothing)
    sharp = loss.sparse_softmax_cross_entropy(logits, labels)
    even = -reduce_mean(log_softmax(logits), axis=-1)
    return add(sharp * (1 - label_smoothing), even * label_smoothing, name=name)


def smooth_labels(labels: TensorLike, smoothing: float, *, name: str | None = None) -> Tensor:
    """labels * (1 - smoothing) + smoothing / classes: no class is ever certain.

    Args:
        labels: [..., classes], floating; rows that sum to 1.
        smoothing: in [0, 1].
        name: of the node.

    Raises:
        AttributeValueError: a smoothing out of range.

    Source: Szegedy et al., 2016, arXiv:1512.00567.

    Examples:
        >>> run(gc.nn.smooth_labels([[1.0, 0.0]], 0.1))
        Array([[0.95, 0.05]], dtype=float32)
    """
    _check_smoothing(smoothing)
    labels = convert(labels)
    even = smoothing / cast(dim_value(labels.shape[-1]), labels.dtype)
    return add(labels * (1 - smoothing), even, name=name)


def _check_smoothing(smoothing: float) -> None:
    if not 0 <= smoothing <= 1:
        refuse(f"label smoothing must lie in [0, 1], got {smoothing!r}", error=AttributeValueError)


def sigmoid_cross_entropy(
    *, logits: TensorLike, labels: TensorLike, name: str | None = None
) -> Tensor:
    """Cross-entropy of the sigmoid of `logits` against probabilities, elementwise.

    Args:
        logits: floating, any shape.
        labels: in [0, 1], of a shape that broadcasts with it.
        name: of the node.

    Returns:
        One loss per element.

    Examples:
        >>> run(gc.nn.sigmoid_cross_entropy(logits=[0.0, 5.0], labels=[1.0, 1.0]))
        Array([0.6931, 0.0067], dtype=float32)
    """
    logits, labels = promote_operands(logits, labels)
    refuse_column("sigmoid_cross_entropy", logits=logits, labels=labels)
    return loss.sigmoid_cross_entropy(logits, labels, name=name)


def weighted_cross_entropy(
    *, logits: TensorLike, labels: TensorLike, pos_weight: TensorLike, name: str | None = None
) -> Tensor:
    """`sigmoid_cross_entropy` that multiplies the term of the label 1 by `pos_weight`, elementwise.

    Args:
        logits: floating, any shape.
        labels: in [0, 1], of a shape that broadcasts with it.
        pos_weight: a number or tensor that broadcasts with it. Above 1, the model gives fewer false
            negatives; below 1, fewer false positives.
        name: of the node.

    Returns:
        One loss per element.

    Source: TensorFlow's `weighted_cross_entropy_with_logits`.

    Examples:
        >>> run(gc.nn.weighted_cross_entropy(logits=[0.0], labels=[1.0], pos_weight=2.0))
        Array([1.3863], dtype=float32)
    """
    logits, labels, weight = promote_operands(logits, labels, pos_weight)
    refuse_column("weighted_cross_entropy", logits=logits, labels=labels)
    missed = (1 + (weight - 1) * labels) * softplus(-logits)  # finite for logits of any size
    return add((1 - labels) * logits, missed, name=name)


def sigmoid_focal_loss(
    *,
    logits: TensorLike,
    labels: TensorLike,
    gamma: float = 2.0,
    alpha: float | None = None,
    name: str | None = None,
) -> Tensor:
    """Sigmoid cross-entropy with less weight on elements that are already classified well.

    Args:
        logits: floating, any shape.
        labels: 0 or 1, of a shape that broadcasts with it.
        gamma: the loss of an element is multiplied by (1 - p)^gamma, where p is the probability
            that the model gives to the correct class.
        alpha: the weight of the elements labelled 1. The others have the weight 1 - alpha. By
            default, all weights are 1.
        name: of the node.

    Returns:
        One loss per element.

    Source: Lin et al., 2017, arXiv:1708.02002.

    Examples:
        >>> run(gc.nn.sigmoid_focal_loss(logits=[0.0, 5.0], labels=[1.0, 1.0]))
        Array([0.1733, 0.    ], dtype=float32)
    """
    logits, labels = promote_operands(logits, labels)
    refuse_column("sigmoid_focal_loss", logits=logits, labels=labels)
    crossed = loss.sigmoid_cross_entropy(logits, labels)
    # log(1 - p) is -softplus(logits) where the label is 1, and -softplus(-logits) where it is 0.
    missed = exp(softplus(logits * (2 * labels - 1)) * -gamma)
    focal = multiply(crossed, missed, name=name if alpha is None else None)
    if alpha is None:
        return focal
    return multiply(focal, labels * alpha + (1 - labels) * (1 - alpha), name=name)


def hinge_loss(*, logits: TensorLike, labels: TensorLike, name: str | None = None) -> Tensor:
    """max(1 - logits * labels, 0), elementwise.

    Args:
        logits: floating, any shape.
        labels: -1 or 1, of a shape that broadcasts with it.
        name: of the node.

    Examples:
        >>> run(gc.nn.hinge_loss(logits=[2.0, 0.5], labels=[1.0, 1.0]))
        Array([0. , 0.5], dtype=float32)
    """
    logits, labels = promote_operands(logits, labels)
    refuse_column("hinge_loss", logits=logits, labels=labels)
    return maximum(1 - logits * labels, 0, name=name)


def l2_loss(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Half the sum of the squares of `x`, a scalar: for weight decay.

    Examples:
        >>> run(gc.nn.l2_loss([1.0, 3.0]))
        Array(5., dtype=float32)
    """
    half = square(convert(x)) * 0.5
    return reduce_sum(half, name=name)
