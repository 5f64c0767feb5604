"""Losses by keyword: which operand is which is easy to confuse; and sums of squares."""

from __future__ import annotations

from typing import Any

from graphc.ir.node import Tensor
from graphc.ops import loss
from graphc.ops.emit import convert
from graphc.ops.powers import square
from graphc.ops.reduction import reduce_sum


def softmax_cross_entropy(*, logits: Any, labels: Any, name: str | None = None) -> Tensor:
    """Cross-entropy of the softmax of `logits` against distributions, over the last axis.

    Args:
        logits: [..., classes], floating.
        labels: [..., classes]; rows that sum to 1.
        name: of the node.

    Returns:
        [...]: one loss per row; average it with `gc.reduce_mean`.

    Raises:
        ShapeError: shapes that differ.
    """
    return loss.softmax_cross_entropy(logits, labels, name=name)


def sparse_softmax_cross_entropy(*, logits: Any, labels: Any, name: str | None = None) -> Tensor:
    """Cross-entropy of the softmax of `logits` against class numbers.

    Args:
        logits: [..., classes], floating.
        labels: [...], integers in [0, classes); one out of range gives NaN.
        name: of the node.

    Returns:
        [...]: one loss per row; average it with `gc.reduce_mean`.

    Raises:
        ShapeError: leading sizes that differ.
        DTypeError: labels that are not integers.
    """
    return loss.sparse_softmax_cross_entropy(logits, labels, name=name)


def sigmoid_cross_entropy(*, logits: Any, labels: Any, name: str | None = None) -> Tensor:
    """Cross-entropy of the sigmoid of `logits` against probabilities, elementwise.

    Args:
        logits: floating, any shape.
        labels: in [0, 1], of a shape that broadcasts with it.
        name: of the node.

    Returns:
        One loss per element.
    """
    return loss.sigmoid_cross_entropy(logits, labels, name=name)


def l2_loss(x: Any, *, name: str | None = None) -> Tensor:
    """Half the sum of the squares of `x`, a scalar: for weight decay."""
    half = square(convert(x)) * 0.5
    return reduce_sum(half, name=name)
