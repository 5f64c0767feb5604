"""Connectionist temporal classification: labels of sequences whose alignment is not known."""

from __future__ import annotations

import math
from typing import Any

from graphc.errors import AttributeValueError, DTypeError
from graphc.ir.dims import Dim
from graphc.ir.dtypes import is_floating, is_integer
from graphc.ir.node import Tensor
from graphc.nn.functional.masks import lengths_or_all, sequence_mask
from graphc.ops.arrays.along_axis import take_along_axis
from graphc.ops.arrays.creation import full_like, iota
from graphc.ops.arrays.padding import pad
from graphc.ops.arrays.shape import broadcast_to, expand_dims, reshape, transpose
from graphc.ops.arrays.stacking import stack
from graphc.ops.control.scan import scan
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.core.precision import wide, wide_integer
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.activation import log_softmax
from graphc.ops.elementwise.comparison import equal, less, logical_or, not_equal, where
from graphc.ops.reductions.reduction import logsumexp
from graphc.typing import TensorLike

__all__ = ["ctc_loss"]

_NEVER = -1e30  # the logarithm of 0, finite: a difference of two of them is not NaN


def ctc_loss(
    *,
    logits: TensorLike,
    labels: TensorLike,
    logit_lengths: TensorLike | None = None,
    label_lengths: TensorLike | None = None,
    blank: int = 0,
    name: str | None = None,
) -> Tensor:
    """-log of the probability of the labels, summed over all their alignments with the logits.

    An alignment gives each step a label or the blank. Equal labels in a row are one label unless a
    blank separates them. Blanks are left out.

    Args:
        logits: [batch, time, classes], floating.
        labels: [batch, labels], integers: class numbers, none of them the blank.
        logit_lengths: [batch], integers: the number of valid steps; all by default.
        label_lengths: [batch], integers: the number of valid labels; all by default. Labels and
            lengths out of range are errors in runs with `CompileOptions(check_numerics=True)`.
        blank: the class that is not a label.
        name: of the last node.

    Returns:
        [batch]; infinite, with a gradient of 0, if there are too few steps for the labels.

    Raises:
        ShapeError: ranks or batch sizes do not fit.
        DTypeError: labels or lengths are not integers, or logits are not floating.
        AttributeValueError: `blank` is not a class.

    Source: Graves et al., 2006, doi:10.1145/1143844.1143891; `optax.ctc_loss`.

    Examples:
        >>> run(gc.nn.ctc_loss(logits=gc.zeros((1, 2, 3)), labels=[[1, 2]]))
        Array([2.1972], dtype=float32)
    """
    logits, labels = convert(logits), convert(labels)
    _check(logits, labels, blank)
    batch, time, _ = logits.shape
    log_p = log_softmax(to_dtype(logits, wide(logits.dtype)))
    counts = lengths_or_all("ctc_loss", label_lengths, labels, labels.shape[1])
    states, jumps = _states(_valid_labels(labels, counts, blank, logits.shape[2]), blank)
    places = broadcast_to(expand_dims(states, 1), (batch, time, states.shape[1]))
    emitted = transpose(take_along_axis(log_p, places, mode="clip"), (1, 0, 2))
    steps = lengths_or_all("ctc_loss", logit_lengths, logits, time)
    is_valid = transpose(sequence_mask(steps, time))
    found = _log_probability(emitted, is_valid, jumps, counts)
    lost = where(less(found, _NEVER / 2), math.inf, -found, name=name)
    return to_dtype(lost, logits.dtype)


def _valid_labels(labels: Tensor, counts: Tensor, blank: int, classes: Dim) -> Tensor:
    """The labels with blanks beyond the end of each sequence."""
    labels = to_dtype(labels, wide_integer(labels.dtype))  # `blank` must fit
    labels = where(sequence_mask(counts, labels.shape[1]), labels, blank)
    return in_range(labels, 0, classes, "labels", of="ctc_loss")


def _log_probability(emitted: Tensor, is_valid: Tensor, jumps: Tensor, counts: Tensor) -> Tensor:
    """The forward algorithm: log of the summed probability of all alignments, [batch].

    `emitted` [time, batch, states] has the logarithm of each state's probability at each step.
    """

    def step(before: Tensor, at: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        after = _advanced(before, jumps) + at[0]
        return where(expand_dims(at[1], -1), after, before), None

    place = iota(emitted.shape[1:], 1)
    never = to_dtype(_NEVER, emitted.dtype)
    start = where(equal(place, 0), 0, never)
    last, _ = scan(step, start, (emitted, is_valid))
    # An alignment ends in the last blank or in the last label.
    end = expand_dims(to_dtype(counts, place.dtype) * 2, -1)
    ended = logical_or(equal(place, end), equal(place, end - 1))
    return logsumexp(where(ended, last, never), axis=-1)


def _check(logits: Tensor, labels: Tensor, blank: int) -> None:
    if logits.ndim != 3 or labels.ndim != 2:
        refuse(
            "ctc_loss: logits must be [batch, time, classes] and labels [batch, labels], got "
            f"{logits.ndim} and {labels.ndim} axes",
            hint="x[None] adds a batch of one; the time is the second axis, not the first",
            logits=logits,
            labels=labels,
        )
    if not is_floating(logits.dtype) or not is_integer(labels.dtype):
        refuse(
            "ctc_loss: logits must be floating and labels integers, got "
            f"{logits.dtype.name} and {labels.dtype.name}",
            error=DTypeError,
            logits=logits,
            labels=labels,
        )
    rows = logits.shape[0], labels.shape[0]
    if rows[0] != rows[1] and all(isinstance(size, int) for size in rows):
        refuse(
            f"ctc_loss: {rows[0]} sequences of logits and {rows[1]} of labels",
            logits=logits,
            labels=labels,
        )
    classes = logits.shape[2]
    if blank < 0 or (isinstance(classes, int) and blank >= classes):
        refuse(
            f"ctc_loss: blank must be one of {classes!s} classes, got {blank!r}",
            error=AttributeValueError,
            logits=logits,
        )


def _states(labels: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """The states: the labels with a blank before each and at the end, [batch, 2 * labels + 1]; and
    which states may directly follow the state two places before: a label that follows a different
    label, without the blank between them."""
    differs = not_equal(labels, _shifted(labels, blank))
    return _between(full_like(labels, blank), labels, blank), _between(
        full_like(differs, False), differs, False
    )


def _between(blanks: Tensor, labels: Tensor, last: Any) -> Tensor:
    batch, count = labels.shape
    pairs = reshape(stack([blanks, labels], -1), (batch, 2 * count))
    return pad(pairs, ((0, 0), (0, 1)), constant_values=last)


def _shifted(x: Tensor, first: Any) -> Tensor:
    """Each row of `x` one place to the right."""
    return pad(x, ((0, 0), (1, 0)), constant_values=first)[:, :-1]


def _advanced(before: Tensor, jumps: Tensor) -> Tensor:
    """Logarithms of the probabilities of states one step later. An alignment stays in its state,
    moves to the next one, or jumps over a blank."""
    moved = _shifted(before, _NEVER)
    jumped = where(jumps, _shifted(moved, _NEVER), _NEVER)
    return logsumexp(stack([before, moved, jumped]), axis=0)
