"""Cases of edit_distance and ctc_beams in graphc/ops."""

from __future__ import annotations

import itertools

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.tasks import ctc_beams, edit_distance
from tests.laws.case import Bad, Case, In

# -- edit distance ----------------------------------------------------------------------------


def levenshtein(x, y):
    """The distance by its recursive definition."""
    if not len(x) or not len(y):
        return max(len(x), len(y))
    return min(
        levenshtein(x[1:], y) + 1,
        levenshtein(x, y[1:]) + 1,
        levenshtein(x[1:], y[1:]) + (x[0] != y[0]),
    )


def distances(x, y, n, m):
    rows = zip(x, y, n, m, strict=True)
    return np.array([levenshtein(a[:i], b[:j]) for a, b, i, j in rows], np.int32)


WORDS = In((4, 5), low=0, high=2, batch_axis=0)
TRUTH = In((4, 4), low=0, high=2, batch_axis=0)


def counts(*values):
    return In((4,), "int32", values=values, batch_axis=0)


DISTANCE = (
    Case(
        "EditDistance",
        edit_distance.edit_distance,
        [WORDS, TRUTH, counts(5, 3, 0, 2), counts(4, 4, 3, 0)],
        distances,
        ("int8", "int32", "uint64"),
        bad=[
            Bad(
                edit_distance.edit_distance,
                [In((4, 5)), TRUTH, counts(1, 1, 1, 1), counts(1, 1, 1, 1)],
                DTypeError,
                "must be integers",
            ),
            Bad(
                edit_distance.edit_distance,
                [In((4, 5), "int32"), In((3, 5), "int32"), *[counts(1, 1, 1, 1)] * 2],
                ShapeError,
                "numbers of sequences differ, 4 and 3",
            ),
            Bad(
                edit_distance.edit_distance,
                [In((4,), "int32"), In((4,), "int32")],
                ShapeError,
                r"x and y must be \[batch, steps\]",
            ),
        ],
    ),
    Case(
        "EditDistance",
        lambda x, y: edit_distance.edit_distance(x, y, y_lengths=np.array([1, 2, 0, 4]),
                                                 normalize=True),
        [In((4, 2), low=0, high=1, batch_axis=0), TRUTH],
        lambda x, y: np.array([distances(x[[i]], y[[i]], [2], [m])[0] / m if m else np.inf
                               for i, m in enumerate([1, 2, 0, 4])]),
        ("int32",),
        label="normalised",
    ),
)  # fmt: skip

# -- CTC --------------------------------------------------------------------------------------


def labellings(log_p, blank):
    """The probability of each label sequence: the sum over all its alignments."""
    found = {}
    for steps in itertools.product(range(log_p.shape[1]), repeat=len(log_p)):
        labels = tuple(label for label, _ in itertools.groupby(steps) if label != blank)
        here = np.exp(sum(log_p[t, label] for t, label in enumerate(steps)))
        found[labels] = found.get(labels, 0) + here
    return found


def search(logits, lengths, paths, blank):
    """The likeliest of all possible sequences."""
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    batch, time, _ = logits.shape
    labels = np.full((batch, paths, time), -1, np.int32)
    sizes = np.zeros((batch, paths), np.int32)
    scores = np.full((batch, paths), -np.inf)
    for b in range(batch):
        every = sorted(labellings(log_p[b, : lengths[b]], blank).items(), key=lambda kv: -kv[1])
        for k, (path, p) in enumerate(every[:paths]):
            labels[b, k, : len(path)] = path
            sizes[b, k], scores[b, k] = len(path), np.log(p)
    return labels, sizes, scores


LOGITS = In((4, 4, 3), batch_axis=0)

DECODING = (
    Case(
        "CTCBeamSearch",
        lambda x, n: ctc_beams.ctc_beam_search(x, n, 64, 7, 1),
        [In((4, 4, 3), "float32", batch_axis=0), counts(4, 3, 1, 0)],
        lambda x, n: search(x, n, 7, 1),
        ("float32",),
        label="what is not there",
    ),
    Case(
        "CTCBeamSearch",
        lambda x: ctc_beams.ctc_beam_search(x, beams=64, paths=3)[2],  # short dtypes may tie
        [LOGITS],
        lambda x: search(x, [4] * 4, 3, 0)[2],
        ("float16", "float32", "float64"),
        bad=[
            Bad(
                lambda x, n: ctc_beams.ctc_beam_search(x, n, 2, 3),
                [LOGITS, counts(1, 1, 1, 1)],
                ShapeError,
                "3 paths cannot come from 2 beams",
            ),
            Bad(
                lambda x, n: ctc_beams.ctc_beam_search(x, n, 0),
                [LOGITS, counts(1, 1, 1, 1)],
                AttributeValueError,
                "beams must be positive",
            ),
            Bad(
                lambda x, n: ctc_beams.ctc_beam_search(x, n, blank=3),
                [LOGITS, counts(1, 1, 1, 1)],
                ShapeError,
                "blank must be one of 3 classes, got 3",
            ),
            Bad(ctc_beams.ctc_beam_search, [In((4, 3))], ShapeError, r"must be \[batch, time, cl"),
            Bad(
                ctc_beams.ctc_beam_search,
                [LOGITS, In((4,), "float32")],
                DTypeError,
                "lengths must be integers",
            ),
        ],
    ),
)

CASES = (*DISTANCE, *DECODING)
