"""Decoding compared with exhaustive searches, and in_top_k."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from tests.near import assert_near

RNG = np.random.default_rng(0)


def run(build, *arrays, shapes=None):
    with gc.Graph() as graph:
        shapes = shapes or [a.shape for a in arrays]
        feeds = {gc.placeholder(s, a.dtype): a for s, a in zip(shapes, arrays, strict=True)}
        fetches = build(*feeds)
    return jax.tree.map(np.asarray, gc.Session(graph).run(fetches, feeds))


# -- CTC ------------------------------------------------------------------------------------


def test_the_likeliest_alignment() -> None:
    steps = np.array([[1, 1, 0, 1, 2, 2], [0, 0, 2, 2, 1, 0], [2, 0, 0, 1, 1, 1]])
    logits = 3 * np.eye(3)[steps] + RNG.uniform(size=(3, 6, 3))
    lengths = np.array([6, 3, 0], np.uint8)
    labels, counts, score = run(
        nn.ctc_greedy_decode, logits, lengths, shapes=[("n", "t", 3), ("n",)]
    )
    np.testing.assert_array_equal(labels, [[1, 1, 2, -1, -1, -1], [2, *[-1] * 5], [-1] * 6])
    np.testing.assert_array_equal(counts, [3, 1, 0])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    best = log_p.max(-1)
    assert_near(score, [best[0].sum(), best[1, :3].sum(), 0], rtol=1e-7)
    labels, counts, _ = run(lambda x: nn.ctc_greedy_decode(x, blank=2), logits)
    np.testing.assert_array_equal(labels[1], [0, 1, 0, -1, -1, -1])
    np.testing.assert_array_equal(counts, [3, 3, 2])


def prefix_search(log_p, beams, blank):
    """Prefix search in a dictionary: each prefix has two probabilities, by its last step."""
    beam = {(): (1.0, 0.0)}
    for row in np.exp(log_p):
        after = {}

        def give(prefix, in_blank, in_label, after=after):
            had = after.get(prefix, (0.0, 0.0))
            after[prefix] = (had[0] + in_blank, had[1] + in_label)

        for prefix, (in_blank, in_label) in beam.items():
            for label, p in enumerate(row):
                if label == blank:
                    give(prefix, (in_blank + in_label) * p, 0)
                elif prefix and label == prefix[-1]:
                    give(prefix, 0, in_label * p)
                    give((*prefix, label), 0, in_blank * p)
                else:
                    give((*prefix, label), 0, (in_blank + in_label) * p)
        beam = dict(sorted(after.items(), key=lambda kv: -sum(kv[1]))[:beams])
    return sorted(((sum(p), prefix) for prefix, p in beam.items()), reverse=True)


@pytest.mark.parametrize("beams", [1, 4])
def test_a_narrow_beam(beams: int) -> None:
    logits = RNG.normal(size=(6, 9, 4))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    labels, counts, scores = run(
        lambda x: nn.ctc_beam_search(x, beams=beams, paths=beams, blank=3),
        logits,
        shapes=[("n", "t", 4)],
    )
    for b in range(6):
        wanted = prefix_search(log_p[b], beams, 3)
        assert_near(scores[b], np.log([p for p, _ in wanted]), rtol=1e-9)
        for k, (_, prefix) in enumerate(wanted):
            assert tuple(labels[b, k, : counts[b, k]]) == prefix
            assert (labels[b, k, counts[b, k] :] == -1).all()


# -- conditional random fields ----------------------------------------------------------------

SCORES, MOVES = RNG.normal(size=(4, 4, 3)), RNG.normal(size=(3, 3))
LENGTHS = np.array([4, 2, 1, 0])


def score(b, tags):
    moves = sum(MOVES[i, j] for i, j in itertools.pairwise(tags))
    return sum(SCORES[b, t, tag] for t, tag in enumerate(tags)) + moves


def every(length):
    return list(itertools.product(range(3), repeat=length))


@pytest.mark.parametrize("shape", [SCORES.shape, ("n", "t", "k")])
def test_the_best_tags(shape) -> None:
    tags, best = run(
        nn.viterbi_decode, SCORES, MOVES, LENGTHS, shapes=[shape, (shape[2],) * 2, shape[:1]]
    )
    assert tags.dtype == np.int32
    for b, length in enumerate(LENGTHS):
        path = max(every(length), key=lambda path, b=b: score(b, path))
        np.testing.assert_array_equal(tags[b], [*path, *[-1] * (4 - length)])
        assert_near(best[b], score(b, path), rtol=1e-7)


def test_likelihood_of_tags() -> None:
    tags = RNG.integers(0, 3, (4, 4)).astype(np.int8)
    tags[1, 2:] = -1  # values beyond the length have no effect

    def build(x, t, m, n):
        found = nn.crf_log_likelihood(x, t, m, n)
        return found, nn.crf_log_norm(x, m, n), *gc.gradients([found], [x, m])

    found, norm, dx, dm = run(build, SCORES, tags, MOVES, LENGTHS)
    for b, length in enumerate(LENGTHS[:3]):
        whole = np.log(sum(np.exp(score(b, path)) for path in every(length)))
        assert_near(norm[b], whole, rtol=1e-7)
        assert_near(found[b], score(b, tags[b, :length]) - whole, rtol=1e-7)
    assert found[3] == norm[3] == 0

    def total(x, m):
        likelihoods = []
        for b, length in enumerate(LENGTHS[:3]):
            paths = np.array([tags[b, :length], *every(length)])
            own = x[b, np.arange(length), paths].sum(-1)
            scores = own + m[paths[:, :-1], paths[:, 1:]].sum(-1)
            likelihoods.append(scores[0] - jax.nn.logsumexp(scores[1:]))
        return sum(likelihoods)

    with jax.enable_x64(True):
        wanted = jax.jit(jax.grad(total, (0, 1)))(jnp.asarray(SCORES), jnp.asarray(MOVES))
    assert_near(dx, wanted[0], rtol=1e-7, atol=1e-9)
    assert_near(dm, wanted[1], rtol=1e-7, atol=1e-9)


# -- in_top_k ---------------------------------------------------------------------------------


def test_in_top_k() -> None:
    scores = np.array([[1, 3, 2], [2, 2, 1], [0, np.nan, 5], [np.inf, 1, 0]], np.float32)
    labels = np.array([2, 1, 1, 0])
    one, two = run(lambda n, x: [nn.in_top_k(n, x, k) for k in (1, 2)], labels, scores)
    np.testing.assert_array_equal(one, [False, True, False, False])
    np.testing.assert_array_equal(two, [True, True, False, False])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.ctc_greedy_decode(x[0]), ShapeError, "logits must be"),
        (lambda x: nn.ctc_greedy_decode(x, np.ones(3, int)), ShapeError, r"shape \[2\]"),
        (
            lambda x: nn.viterbi_decode(x, np.ones((3, 3), "f")),
            ShapeError,
            r"transitions \[tags, tags\]",
        ),
        (lambda x: nn.crf_log_norm(x[:, :0], np.ones((4, 4), "f")), ShapeError, "with a step"),
        (
            lambda x: nn.crf_log_likelihood(x, x, np.ones((4, 4), "f")),
            DTypeError,
            "must be integers",
        ),
        (
            lambda x: nn.crf_log_likelihood(x, np.ones((2, 4), int), np.ones((4, 4), "f")),
            ShapeError,
            "of the scores",
        ),
        (lambda x: nn.in_top_k(np.ones((2, 2), int), x, 1), ShapeError, "one axis more"),
        (lambda x: nn.in_top_k(x, x, 1), DTypeError, "labels must be integers"),
        (lambda x: nn.in_top_k(x, np.ones(2, int), 1), DTypeError, "the labels come first"),
        (lambda x: nn.in_top_k(np.ones(2, int), x, 1), ShapeError, "one axis more"),
        (lambda x: nn.in_top_k(np.ones((2, 3), int), x, 0), AttributeValueError, "positive int"),
        (lambda x: nn.edit_distance(x[0, 0], x), DTypeError, "must be integers"),
        (lambda x: nn.ctc_beam_search(x[0]), ShapeError, "logits must be"),
    ],
)
def test_errors(call, error, match: str) -> None:
    with gc.Graph():
        x = gc.placeholder((2, 3, 4))
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_decoding.py:" in str(info.value)


# -- unusual input --------------------------------------------------------------------------


def test_a_blank_that_is_no_class() -> None:
    for blank in (-1, 3, 1.5):
        with pytest.raises(AttributeValueError, match="blank must be one of the classes"):
            run(lambda x, b=blank: nn.ctc_greedy_decode(x, blank=b), np.zeros((1, 2, 3)))


def test_labels_that_are_no_classes_are_not_among_the_best() -> None:
    labels, scores = np.array([-1, 3, 255, 2], np.int32), np.eye(4)[:, :3]
    np.testing.assert_array_equal(
        run(lambda a, b: nn.in_top_k(a, b, 3), labels, scores), [False, False, False, True]
    )


def test_tags_that_there_are_not_have_no_probability() -> None:
    scores, moves = np.array([[[1.0, 2, 3], [1, 2, 3]]] * 4), np.arange(9.0).reshape(3, 3)
    tags = np.array([[0, 2], [0, -1], [3, 0], [2, 2]], np.int32)
    found = run(nn.crf_log_likelihood, scores, tags, moves)
    assert list(np.isneginf(found)) == [False, True, True, False]


def test_gradients_of_a_crf_are_marginals_and_stay_finite() -> None:
    """One tag is unreachable, and an empty sequence has NaN scores."""
    scores = RNG.normal(size=(3, 4, 3))
    scores[1] = np.nan
    moves = RNG.normal(size=(3, 3))
    moves[:, 2] = -np.inf
    tags, lengths = np.zeros((3, 4), np.int32), np.array([4, 0, 2], np.int32)

    def build(x, m):
        total = gc.reduce_sum(nn.crf_log_likelihood(x, tags, m, lengths))
        return [total, *gc.gradients(total, [x, m])]

    # Over all paths: the gradient is the tags' value minus the expected value of a path.
    total, slopes, of_moves = 0.0, np.zeros((3, 4, 3)), np.zeros((3, 3))
    for row, length in ((0, 4), (2, 2)):
        paths = list(itertools.product(range(3), repeat=length))
        energies = np.array(
            [
                sum(scores[row, t, tag] for t, tag in enumerate(path))
                + sum(moves[step] for step in itertools.pairwise(path))
                for path in paths
            ]
        )
        norm = np.log(np.exp(energies).sum())
        total += energies[paths.index((0,) * length)] - norm
        shares = [((0,) * length, 1.0)]
        shares += [(p, -np.exp(e - norm)) for p, e in zip(paths, energies, strict=True)]
        for path, share in shares:
            for t, tag in enumerate(path):
                slopes[row, t, tag] += share
            for step in itertools.pairwise(path):
                of_moves[step] += share
    for got, want in zip(run(build, scores, moves), (total, slopes, of_moves), strict=True):
        assert_near(got, want, rtol=1e-10, atol=1e-12)


def test_lengths_beyond_the_ends_share_as_they_count() -> None:
    x, y = np.array([[1, 2, 3, 4]] * 2), np.array([[1, 2, 3, 5]] * 2)
    shares = run(
        lambda a, b, m: nn.edit_distance(a, b, y_lengths=m, normalize=True),
        x, y, np.array([10, -1]),
    )  # fmt: skip
    np.testing.assert_array_equal(shares, [0.25, np.inf])
