"""Linear-chain conditional random fields: the probability of tag sequences, and the most likely
sequence.

The score of a tag sequence is the sum of the scores of its tags at their steps and of the scores of
its transitions from one tag to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import DTypeError
from graphc.ir.dtypes import INT32, DType, is_floating
from graphc.ir.node import Tensor
from graphc.nn.functional.masks import lengths_or_all, sequence_mask
from graphc.ops.arrays.along_axis import take_along_axis
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import expand_dims, reshape, transpose
from graphc.ops.control.scan import scan
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import dim_value, promote_inexact, to_dtype
from graphc.ops.core.operands import as_integers
from graphc.ops.core.precision import wide, wide_integer
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.arithmetic import add
from graphc.ops.elementwise.comparison import greater, greater_equal, less, logical_and, where
from graphc.ops.reductions.axiswise import argmax
from graphc.ops.reductions.reduction import logsumexp, reduce_all, reduce_max, reduce_sum
from graphc.typing import TensorLike

__all__ = ["crf_log_likelihood", "crf_log_norm", "viterbi_decode"]


def crf_log_likelihood(
    scores: TensorLike,
    tags: TensorLike,
    transitions: TensorLike,
    lengths: TensorLike | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """The logarithm of the probability of the tags of each sequence.

    Args:
        scores: [batch, time, tags], floating: of each tag at each step.
        tags: [batch, time], integers. A tag out of range has the log probability -inf. Tags and
            lengths out of range are errors in runs with `CompileOptions(check_numerics=True)`.
        transitions: [tags, tags], floating: from the tag of the row to that of the column.
        lengths: [batch], integers: the number of valid steps; all by default.
        name: of the last node.

    Returns:
        [batch], in the dtype of the scores; 0 for sequences without steps.

    Raises:
        ShapeError: ranks or sizes that do not fit.
        DTypeError: tags or lengths that are not integers, scores that are not floating.

    Source: Lafferty, McCallum & Pereira, Conditional random fields, 2001.

    Examples:
        >>> run(gc.nn.crf_log_likelihood(gc.zeros((1, 2, 2)), [[0, 1]], gc.zeros((2, 2))))
        Array([-1.3863], dtype=float32)
    """
    x, moves, sizes, dtype = _operands("crf_log_likelihood", scores, transitions, lengths)
    given = as_integers("crf_log_likelihood", "tags", tags)
    pairs = zip(given.shape, x.shape, strict=False)
    if given.ndim != 2 or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
    ):
        refuse("crf_log_likelihood: tags must be [batch, time] of the scores", scores=x, tags=given)
    likelihood = _score(x, given, moves, sizes) - _log_norm(x, moves, sizes)
    return to_dtype(where(greater(sizes, 0), likelihood, 0, name=name), dtype)


def crf_log_norm(
    scores: TensorLike,
    transitions: TensorLike,
    lengths: TensorLike | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """The logarithm of the sum of the exponentials of the scores of all possible tag sequences,
    [batch].

    Arguments and errors as of `crf_log_likelihood`.

    Examples:
        >>> run(gc.nn.crf_log_norm(gc.zeros((1, 2, 2)), gc.zeros((2, 2))))
        Array([1.3863], dtype=float32)
    """
    x, moves, sizes, dtype = _operands("crf_log_norm", scores, transitions, lengths)
    return to_dtype(where(greater(sizes, 0), _log_norm(x, moves, sizes), 0, name=name), dtype)


def viterbi_decode(
    scores: TensorLike,
    transitions: TensorLike,
    lengths: TensorLike | None = None,
    *,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The tags of each sequence with the highest score, and that score.

    Args: as of `crf_log_likelihood`; `name` is that of the node that gives the tags.

    Returns:
        The tags, [batch, time], int32, -1 after the length; and the score, [batch], in the dtype
        of the scores. If scores are equal, the first tag is chosen.

    Raises:
        ShapeError, DTypeError: as `crf_log_likelihood`.

    Source: Viterbi, 1967, doi:10.1109/TIT.1967.1054010.

    Examples:
        >>> run(gc.nn.viterbi_decode([[[1.0, 0.0], [0.0, 1.0]]], gc.zeros((2, 2))))
        (Array([[0, 1]], dtype=int32), Array([2.], dtype=float32))
    """
    x, moves, sizes, dtype = _operands("viterbi_decode", scores, transitions, lengths)
    first, rest, goes_on = _steps(x, sizes)

    def step(before: Tensor, at: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        paths = expand_dims(before, -1) + moves
        after = add(reduce_max(paths, 1), at[0])
        return where(expand_dims(at[1], -1), after, before), argmax(paths, 1)

    last, origins = scan(step, first, (rest, goes_on))

    def back(tag: Tensor, at: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        origin = reshape(take_along_axis(at[0], expand_dims(tag, -1), -1, "clip"), tag.shape)
        before = where(at[1], origin, tag)  # after its end, a sequence keeps its last tag
        return before, before

    end = argmax(last, -1)
    _, found = scan(back, end, (origins, goes_on), reverse=True)
    tags = transpose(concatenate([found, expand_dims(end, 0)], 0))
    best = where(greater(sizes, 0), reduce_max(last, -1), 0)
    return where(sequence_mask(sizes, x.shape[1]), tags, -1, name=name), to_dtype(best, dtype)


def _operands(
    what: str, scores: Any, transitions: Any, lengths: Any
) -> tuple[Tensor, Tensor, Tensor, DType]:
    """Scores and transitions in the dtype to compute in, the lengths, and the dtype of results."""
    x, moves = promote_inexact(scores, transitions)
    if not is_floating(x.dtype):
        refuse(
            f"{what}: scores and transitions must be floating, got {x.dtype.name}",
            error=DTypeError,
            scores=x,
            transitions=moves,
        )
    known = {size for size in (*x.shape[2:], *moves.shape) if isinstance(size, int)}
    if x.ndim != 3 or moves.ndim != 2 or len(known) > 1 or x.shape[1] == 0:
        refuse(
            f"{what}: scores must be [batch, time, tags] and transitions [tags, tags], with a step "
            "and equal numbers of tags",
            scores=x,
            transitions=moves,
        )
    sizes = lengths_or_all(what, lengths, x, x.shape[1])
    dtype = wide(x.dtype)
    inside = expand_dims(sequence_mask(sizes, x.shape[1]), -1)
    # Values after the length may be NaN, and do not affect gradients.
    return where(inside, to_dtype(x, dtype), 0), to_dtype(moves, dtype), sizes, x.dtype


def _steps(x: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The scores of the first step [batch, tags], those of the others [time - 1, batch, tags], and
    which of the others count [time - 1, batch]."""
    goes_on = sequence_mask(sizes, x.shape[1])[:, 1:]
    return x[:, 0], transpose(x[:, 1:], (1, 0, 2)), transpose(goes_on)


def _log_norm(x: Tensor, moves: Tensor, sizes: Tensor) -> Tensor:
    first, rest, goes_on = _steps(x, sizes)

    def step(before: Tensor, at: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        after = add(_log_sum(expand_dims(before, -1) + moves, 1), at[0])
        return where(expand_dims(at[1], -1), after, before), None

    last, _ = scan(step, first, (rest, goes_on))
    return _log_sum(last, -1)


def _log_sum(x: Tensor, axis: int) -> Tensor:
    """logsumexp whose gradient is 0, not NaN, where all are -inf: no path leads to such a tag."""
    some = greater(reduce_max(x, axis), -np.inf)
    return where(some, logsumexp(where(expand_dims(some, axis), x, 0), axis=axis), -np.inf)


def _score(x: Tensor, tags: Tensor, moves: Tensor, sizes: Tensor) -> Tensor:
    """The score of the tags of each sequence; -inf for tags that are out of range. Values after
    the length of a sequence have no effect."""
    inside = sequence_mask(sizes, x.shape[1])
    count = dim_value(x.shape[2])
    tags = where(inside, to_dtype(tags, wide_integer(tags.dtype)), 0)
    tags = in_range(tags, 0, x.shape[2], "tags", of="crf_log_likelihood")
    known = logical_and(greater_equal(tags, 0), less(tags, count))
    places = to_dtype(where(known, tags, 0), INT32)
    own = take_along_axis(x, expand_dims(places, -1), -1, "clip")[..., 0]
    steps = take(reshape(moves, (-1,)), places[:, :-1] * count + places[:, 1:], mode="clip")
    own, steps = where(inside, own, 0), where(inside[:, 1:], steps, 0)
    score = add(reduce_sum(own, -1), reduce_sum(steps, -1))
    return where(reduce_all(known, -1), score, -np.inf)
