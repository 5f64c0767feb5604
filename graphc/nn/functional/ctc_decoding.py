"""CTC decoding of sequences from the most likely class of each step."""

from __future__ import annotations

from typing import Any

from graphc.errors import AttributeValueError, DTypeError
from graphc.ir.dtypes import INT32, is_floating
from graphc.ir.node import Tensor
from graphc.nn.functional.masks import as_lengths, sequence_mask
from graphc.ops.arrays.along_axis import take_along_axis
from graphc.ops.arrays.padding import pad
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.activation import log_softmax
from graphc.ops.elementwise.comparison import logical_and, logical_not, not_equal, where
from graphc.ops.reductions.axiswise import argmax
from graphc.ops.reductions.reduction import reduce_max, reduce_sum
from graphc.ops.reductions.sorting import argsort
from graphc.typing import TensorLike

__all__ = ["ctc_greedy_decode"]


def ctc_greedy_decode(
    logits: TensorLike,
    lengths: TensorLike | None = None,
    blank: int = 0,
    *,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The labels of the single most likely alignment: repeated classes are merged, and blanks are
    removed.

    Args:
        logits: [batch, time, classes], floating.
        lengths: [batch], integers: the number of valid steps; all by default.
        blank: the class that is not a label.
        name: of the node that gives the labels.

    Returns:
        The labels [batch, time], int32, padded with -1; their number [batch], int32; and
        the logarithm of the probability of that alignment [batch].

    Raises:
        ShapeError: a wrong rank, or a wrong number of lengths.
        DTypeError: logits that are not floating, or lengths that are not integers.
        AttributeValueError: `blank` is not a class.

    Source: Graves et al., 2006, doi:10.1145/1143844.1143891; TensorFlow's
    `tf.nn.ctc_greedy_decoder`, whose blank is the last class.

    Examples:
        >>> labels, lengths, scores = gc.nn.ctc_greedy_decode([[[0.0, 5.0, 0.0], [0.0, 0.0, 5.0]]])
        >>> run((labels, lengths))
        (Array([[1, 2]], dtype=int32), Array([2], dtype=int32))
    """
    logits = convert(logits)
    _check(logits, blank)
    log_p = log_softmax(to_dtype(logits, wide(logits.dtype)))
    likeliest, best = argmax(log_p, -1), reduce_max(log_p, -1)
    before = pad(likeliest, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    counts = logical_and(not_equal(likeliest, before), not_equal(likeliest, blank))
    if lengths is not None:
        known = as_lengths("ctc_greedy_decode", lengths, logits.shape[0], logits.shape[1])
        inside = sequence_mask(known, logits.shape[1])
        counts, best = logical_and(counts, inside), where(inside, best, 0)
    number = reduce_sum(to_dtype(counts, INT32), -1)
    # The classes that count come first. Both parts keep their order.
    gathered = take_along_axis(likeliest, argsort(logical_not(counts), -1), -1)
    labels = where(sequence_mask(number, logits.shape[1]), gathered, -1, name=name)
    return labels, number, to_dtype(reduce_sum(best, -1), logits.dtype)


def _check(logits: Tensor, blank: Any) -> None:
    if logits.ndim != 3:
        refuse("ctc_greedy_decode: logits must be [batch, time, classes]", logits=logits)
    if not is_floating(logits.dtype):
        refuse("ctc_greedy_decode: logits must be floating", error=DTypeError, logits=logits)
    classes = logits.shape[-1]
    if type(blank) is not int or blank < 0 or (isinstance(classes, int) and blank >= classes):
        refuse(
            f"ctc_greedy_decode: blank must be one of the classes, counted from 0, got {blank!r}",
            error=AttributeValueError,
            logits=logits,
        )
