"""Bucketing: few compilations, and the same results as with the original feeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import AttributeValueError, FeedError, FetchError, GraphcError
from tests.near import assert_near

F64 = "float64"
BUCKETS = {"batch": [2, 4], "time": [3, 6]}


def sentences(count: int, longest: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, count)
    return [rng.integers(1, 9, n).astype(np.int32) for n in lengths]


class Tagger:
    """A network that tags words from the last to the first; with buckets, it needs masks."""

    def __init__(self, buckets: gc.Bucketing | None) -> None:
        self.graph = gc.Graph(seed=4)
        with self.graph:
            self.words = gc.placeholder(("batch", "time"), "int32", name="words")
            self.tags = gc.placeholder(("batch", "time"), "int32", name="tags")
            mask = buckets.mask("batch", "time") if buckets else gc.equal(self.words, self.words)
            lengths = gc.reduce_sum(gc.cast(mask, "int32"), axis=1)
            h = nn.Embedding(9, 4, dtype=F64)(self.words)
            h = nn.SimpleRNN(3, reverse=True, dtype=F64)(h, lengths=lengths)
            self.logits = nn.Dense(5, dtype=F64)(h)
            losses = nn.sparse_softmax_cross_entropy(logits=self.logits, labels=self.tags)
            self.loss = nn.masked_mean(losses, mask, name="loss")
            self.train = gc.minimize(self.loss, optax.sgd(0.5), name="train")


@pytest.mark.slow
def test_results_and_training_steps_are_those_of_the_unpadded_feeds() -> None:
    buckets = gc.Bucketing(BUCKETS)
    padded, plain = Tagger(buckets), Tagger(None)
    mine, theirs = gc.Session(padded.graph), gc.Session(plain.graph)
    rng = np.random.default_rng(0)
    for batch, time in [(1, 1), (3, 2), (4, 6), (2, 4), (2, 2)]:
        words = rng.integers(0, 9, (batch, time)).astype(np.int32)
        tags = rng.integers(0, 5, (batch, time)).astype(np.int32)
        fetches = {"logits": "logits", "loss": "loss", "train": "train"}
        got = buckets.run(mine, names(padded, fetches), {"words": words, padded.tags: tags})
        want = theirs.run(names(plain, fetches), {"words": words, "tags": tags})
        assert got["logits"].shape == (batch, time, 5) and got["train"] is None
        assert_near(got["logits"], want["logits"], rtol=1e-9, atol=1e-12)
        assert_near(got["loss"], want["loss"], rtol=1e-10)
    for name, value in theirs.values().items():
        assert_near(mine.get(name), value, rtol=1e-9, atol=1e-12)
    assert mine.compile_count == buckets.count == 4
    assert theirs.compile_count == 5


def names(tagger: Tagger, fetches: dict[str, str]) -> dict[str, Any]:
    return {key: getattr(tagger, name) for key, name in fetches.items()}


def test_rows_of_their_own_lengths_equal_each_by_itself() -> None:
    buckets = gc.Bucketing(BUCKETS)
    padded, plain = Tagger(buckets), Tagger(None)
    mine, theirs = gc.Session(padded.graph), gc.Session(plain.graph)
    words = sentences(3, 6, seed=2)
    tags = [row % 5 for row in words]
    assert len({len(row) for row in words}) > 1
    logits, loss = buckets.run(
        mine, (padded.logits, padded.loss), {padded.words: words, padded.tags: tags}
    )
    total = 0.0
    for row, (w, t) in enumerate(zip(words, tags, strict=True)):
        alone, mean = theirs.run(
            (plain.logits, plain.loss), {plain.words: w[None], plain.tags: t[None]}
        )
        assert_near(logits[row, : len(w)], alone[0], rtol=1e-9)
        total += float(mean) * len(w)
    assert_near(loss, total / sum(map(len, words)), rtol=1e-10)


def test_masks_follow_the_sizes_and_the_rows() -> None:
    buckets = gc.Bucketing(BUCKETS)
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 2), name="x")
        masks = [buckets.mask(*n) for n in [("batch",), ("batch", "time"), ("time", "batch")]]
        fetches = [gc.identity(mask) for mask in masks]
        total = gc.reduce_sum(x)
    session = gc.Session(graph)
    rows = [np.ones((2, 2)), np.ones((1, 2)), np.ones((0, 2))]
    feeds = buckets.pad(graph, [*fetches, total], {"x": [row.astype("float32") for row in rows]})
    inside = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]], bool)
    assert feeds[x].shape == (4, 3, 2) and feeds[x].sum() == 6
    assert feeds[masks[0]].tolist() == [True, True, True, False]
    assert feeds[masks[1]].tolist() == inside.tolist()
    assert feeds[masks[2]].tolist() == inside.T.tolist()
    assert [m.name for m in masks] == ["mask_batch:0", "mask_batch_time:0", "mask_time_batch:0"]
    assert list(buckets.pad(graph, total, {x: np.ones((1, 1, 2))})) == [x]  # needs no mask
    fed = {masks[0]: [False, False, False]}  # a caller's mask is used unchanged
    assert buckets.run(session, fetches[0], fed).tolist() == [False, False, False]


def test_an_executable_takes_padded_feeds() -> None:
    buckets = gc.Bucketing({"batch": [4]})
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 2), name="x")
        mask = buckets.mask("batch")
        mean = nn.masked_mean(gc.reduce_sum(x, axis=1), mask)
    step = gc.compile(graph, mean, {x: (4, 2), mask: (4,)})
    value, _ = step(step.init(), buckets.pad(graph, mean, {x: np.ones((3, 2), np.float32)}))
    assert value == 2.0


def test_replicated() -> None:
    buckets = gc.Bucketing(BUCKETS)
    tagger = Tagger(buckets)
    one = gc.Session(tagger.graph)
    two = gc.Session(tagger.graph, strategy=gc.devices.DataParallel(2))
    fetches = [tagger.logits, tagger.loss, tagger.train]
    for seed, count in enumerate((3, 4)):
        words = sentences(count, 3, seed)
        feeds = {"words": words, "tags": [row % 5 for row in words]}
        alone, together = (buckets.run(session, fetches, feeds) for session in (one, two))
        assert alone[0].shape[0] == count
        assert_near(alone[0], together[0], rtol=1e-9)
        assert_near(alone[1], together[1], rtol=1e-10)
    assert two.compile_count == 1


def test_sizes_found_equal_and_calculated() -> None:
    buckets = gc.Bucketing({"time": [4]})
    with gc.Graph() as graph:
        x = gc.placeholder((None, "time"), name="x")
        z = gc.placeholder((2, "time + 1"), name="z")
        y = gc.placeholder((None, None), name="y")
        both = x + y  # the second size of y is also time
        fetches = [both, z[:, 1:] * 2.0, x[:, :-1]]
    values = [np.ones((2, 3)), np.ones((2, 4)), np.ones((2, 3))]
    feeds = {t: v.astype("float32") for t, v in zip((x, z, y), values, strict=True)}
    session = gc.Session(graph)
    got = buckets.run(session, fetches, feeds)
    assert [v.shape for v in got] == [(2, 3), (2, 3), (2, 2)]
    assert session.executables[0].interface.feeds[1].type.shape == (2, 5)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda b, s, x: gc.Bucketing({"time": []}), AttributeValueError, "must be ints of 1"),
        (lambda b, s, x: gc.Bucketing({"time": [0, 2]}), AttributeValueError, r"got \[0, 2\]"),
        (lambda b, s, x: b.run(s, x, {x: np.ones((3, 9))}), FeedError, "time is 9, .* bucket 6"),
        (
            lambda b, s, x: b.run(s, ["y:0", x], {x: np.ones((2, 2)), "y": np.ones((3, 2))}),
            FeedError, r"feed 'y' has 3 for batch, but another feed has 2",
        ),
        (
            lambda b, s, x: b.run(
                s, "flat:0", {x: [[1.0, 2.0], [3.0]], "y": [[1.0, 2.0], [3.0, 4.0]]}
            ),
            FetchError, r"flat:0: its size batch\*time combines",
        ),
        (
            lambda b, s, x: b.run(
                s, "sum:0", {x: [[1.0, 2.0], [3.0]], "y": [[1.0], [3.0, 4.0]]}
            ),
            FeedError, r"'y' has rows of lengths \[1, 2\], but another feed .* has \[2, 1\]",
        ),
        (
            lambda b, s, x: b.run(s, "twice:0", {"n": np.ones(3)}),
            FeedError, r"mask 'mask_time' needs the size time, which no feed has",
        ),
        (lambda b, s, x: b.run(s, x, {x: np.ones(3)}), FeedError, "expected rank 2, got rank 1"),
    ],
)  # fmt: skip
def test_errors(call, error: type[GraphcError], match: str) -> None:
    buckets = gc.Bucketing(BUCKETS)
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time"), name="x")
        y = gc.placeholder(("batch", "time"), name="y")
        n = gc.placeholder((3,), name="n")
        gc.add(x, y, name="sum")
        gc.reshape(x * y, (-1,), name="flat")
        gc.where(buckets.mask("time"), n[0], 2.0, name="twice")
        with pytest.raises(AttributeValueError, match="mask takes names of sizes, got 'width'"):
            buckets.mask("width")
    with pytest.raises(error, match=match):
        call(buckets, gc.Session(graph), x)


@pytest.mark.parametrize("sizes", [[], [8, 0], [8, "a"], [2.5]])
def test_sizes_are_positive_ints(sizes) -> None:
    with pytest.raises(AttributeValueError, match="the sizes of 'time' must be ints of 1 or more"):
        gc.Bucketing({"time": sizes})
    assert gc.Bucketing({"time": np.array([8, 2, 8])}).sizes == {"time": [2, 8]}


def test_rows_without_elements_take_the_dtype_of_the_placeholder() -> None:
    buckets = gc.Bucketing(BUCKETS)
    with gc.Graph() as graph:
        words = gc.placeholder(("batch", "time"), "int32", name="words")
        count = gc.reduce_sum(gc.cast(buckets.mask("batch", "time"), "int32"))
        fetches = [gc.reduce_sum(words), count]
    assert buckets.run(gc.Session(graph), fetches, {words: [[], []]}) == [0, 0]


@pytest.mark.parametrize("row", [5, None, np.float32(3)], ids=repr)
def test_a_row_without_a_length_is_refused(row: Any) -> None:
    """Such a row must not count as empty."""
    graph = gc.Graph()
    with graph:
        words = gc.placeholder(("batch", "time"), "int32", name="words")
        total = gc.reduce_sum(words)
    with pytest.raises(FeedError, match="feed 'words' is not an array of int32"):
        gc.Bucketing(BUCKETS).run(gc.Session(graph), total, {words: [[1, 2], row, [3]]})


def test_a_row_whose_length_is_not_that_of_its_array_is_refused() -> None:
    class Row:
        def __len__(self) -> int:
            return 2

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1, 2, 3])

    with gc.Graph() as graph:
        words = gc.placeholder(("batch", "time"), "int32", name="words")
        total = gc.reduce_sum(words)
    for other in ([1, 1, 1, 1], [1]):
        with pytest.raises(FeedError, match="feed 'words' is not an array of int32"):
            gc.Bucketing(BUCKETS).run(gc.Session(graph), total, {words: [Row(), other]})
