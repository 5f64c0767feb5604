"""Whether the correct class is among the best k."""

from __future__ import annotations

from typing import Any

from graphc.errors import AttributeValueError, DTypeError
from graphc.ir.dtypes import INT32, is_floating, is_integer
from graphc.ir.node import Tensor
from graphc.ops.arrays.along_axis import take_along_axis
from graphc.ops.arrays.shape import expand_dims
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, dim_value, to_dtype
from graphc.ops.core.precision import wide_integer
from graphc.ops.elementwise.comparison import (
    greater,
    greater_equal,
    isfinite,
    less,
    logical_and,
    where,
)
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import TensorLike

__all__ = ["in_top_k"]


def in_top_k(labels: TensorLike, scores: TensorLike, k: int, *, name: str | None = None) -> Tensor:
    """Whether fewer than `k` classes have a higher score than the correct class.

    Args:
        labels: [...], integers: the correct class of each example.
        scores: [..., classes], floating.
        k: the number of best classes.
        name: of the node.

    Returns:
        [...], bool. Classes that tie with the last of the best k count among them. A label whose
            score is not finite, or that is not a class, does not.

    Raises:
        ShapeError: shapes that do not fit.
        DTypeError: labels that are not integers, scores that are not floating.
        AttributeValueError: `k` is not a positive int.

    Source: TensorFlow's `tf.math.in_top_k`.

    Examples:
        >>> run(gc.nn.in_top_k([0, 1], [[0.9, 0.1], [0.9, 0.1]], 1))
        Array([ True, False], dtype=bool)
    """
    labels, scores = convert(labels), convert(scores)
    _check(labels, scores, k)
    labels = to_dtype(labels, wide_integer(labels.dtype))
    known = logical_and(greater_equal(labels, 0), less(labels, dim_value(scores.shape[-1])))
    own = take_along_axis(scores, expand_dims(where(known, labels, 0), -1), -1)
    better = reduce_sum(to_dtype(greater(scores, own), INT32), -1)
    good = logical_and(less(better, k), isfinite(own[..., 0]))
    return logical_and(good, known, name=name)


def _check(labels: Tensor, scores: Tensor, k: Any) -> None:
    if not is_integer(labels.dtype) or not is_floating(scores.dtype):
        refuse(
            "in_top_k: labels must be integers and scores floating, got "
            f"{labels.dtype.name} and {scores.dtype.name}",
            hint="the labels come first: in_top_k(labels, scores, k)"
            if is_floating(labels.dtype) and is_integer(scores.dtype)
            else None,
            error=DTypeError,
            labels=labels,
            scores=scores,
        )
    pairs = zip(labels.shape, scores.shape, strict=False)
    if scores.ndim != labels.ndim + 1 or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
    ):
        refuse(
            "in_top_k: scores must be [..., classes], with one axis more than labels",
            labels=labels,
            scores=scores,
        )
    if type(k) is not int or k < 1:
        refuse(f"in_top_k: k must be a positive int, got {k!r}", error=AttributeValueError)
