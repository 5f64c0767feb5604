"""Stages of pipelines: shuffle, batch, pad, bucket, shard, prefetch, and matching positions."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, FeedError

ROWS = [np.arange(n) for n in (3, 1, 5, 2)]


def numbers(n: int = 20) -> gc.data.Pipeline:
    return gc.data.from_arrays(np.arange(n))


# -- shuffle --------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffer", [None, 1, 7, 100])
def test_every_epoch_has_every_item_once_in_another_order(buffer: int | None) -> None:
    items = [int(x) for x in numbers().shuffle(buffer, seed=3).repeat(3)]
    epochs = [items[i : i + 20] for i in (0, 20, 40)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    different = len({tuple(epoch) for epoch in epochs})
    assert different == (1 if buffer == 1 else 3)


def test_a_buffer_moves_an_item_forward_by_its_size_at_most() -> None:
    for place, item in enumerate(numbers(200).shuffle(10, seed=1)):
        assert item - place < 10


def test_a_buffer_of_indices_and_one_of_records_give_the_same_order() -> None:
    records = gc.data.from_generator(lambda: iter(range(50)))
    assert list(records.shuffle(8, seed=2)) == list(numbers(50).shuffle(8, seed=2))


def test_two_shuffles_with_one_seed_are_two_orders() -> None:
    once, twice = numbers(100).shuffle(seed=1), numbers(100).shuffle(seed=1).shuffle(seed=1)
    order = [int(x) for x in once]
    squared = [order[i] for i in order]
    assert [int(x) for x in twice] not in (order, squared)


def test_a_buffer_is_uniform_enough() -> None:
    firsts = [int(next(iter(numbers(8).shuffle(8, seed=s)))) for s in range(400)]
    assert np.bincount(firsts, minlength=8).min() > 25  # 50 on average


def test_shuffling_without_end_is_refused() -> None:
    with pytest.raises(AttributeValueError, match="no end"):
        numbers().repeat().shuffle()
    assert len(list(numbers().repeat().shuffle(5).take(50))) == 50


def test_the_state_of_a_buffer_has_numbers_and_no_items() -> None:
    large = gc.data.from_generator(lambda: (np.zeros(10_000) for _ in range(60)))
    items = iter(large.shuffle(30, seed=1))
    [next(items) for _ in range(20)]
    assert len(json.dumps(items.state())) < 1000


# -- batch ----------------------------------------------------------------------------------------


def test_arrays_are_gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc.data.sources.arrays import Arrays

    calls: list[int] = []
    gather = Arrays.gather
    monkeypatch.setattr(Arrays, "record", None)
    monkeypatch.setattr(Arrays, "gather", lambda s, i: calls.append(len(i)) or gather(s, i))
    pipeline = numbers().skip(1).shuffle(seed=1).shard(0, 2).repeat().batch(6).take(4)
    assert [b.shape for b in pipeline] == [(6,)] * 4
    assert calls == [6] * 4


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([{"x": 1}, {"y": 1}], "different structures"),
        ([np.zeros(3), np.zeros(4)], r"different shapes"),
        ([{"a": {"b": np.zeros(3)}}, {"a": {"b": np.zeros((3, 1))}}], r"shapes at \['a'\]\['b'\]"),
        ([{"x": np.ma.masked_array([1], [1])}] * 2, "lose its mask"),
        ([{"x": object()}, {"x": object()}], None),
    ],
)
def test_records_that_do_not_fit_one_batch(records: list[Any], text: str | None) -> None:
    pipeline = gc.data.from_generator(lambda: iter(records)).batch(2)
    if text is None:
        assert next(iter(pipeline))["x"].dtype == object
        return
    with pytest.raises(FeedError, match=text) as caught:
        next(iter(pipeline))
    assert "item 1 of from_generator" in str(caught.value)
    assert "test_stages.py" in str(caught.value.source)


def test_named_tuples_and_odd_dtypes_are_stacked() -> None:
    from typing import NamedTuple

    import ml_dtypes

    class Pair(NamedTuple):
        a: Any
        b: Any

    pairs = [Pair(ml_dtypes.bfloat16(i), np.zeros((0, 2), "c8")) for i in range(3)]
    (batch,) = gc.data.from_iterable(pairs).batch(3)
    assert isinstance(batch, Pair) and batch.a.dtype == ml_dtypes.bfloat16
    assert batch.b.shape == (3, 0, 2) and batch.b.dtype == np.complex64


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3)])
def test_a_batch_of_128_images_costs_little_more_than_its_copy(shape: tuple[int, ...]) -> None:
    x = np.zeros((2048, *shape), np.float32)
    batches = gc.data.from_arrays({"x": x, "y": np.arange(2048)}).shuffle(seed=1).batch(128)
    items = iter(batches.repeat())
    next(items)

    def best(function: Any) -> float:
        times = []
        for _ in range(200):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times)

    assert best(lambda: next(items)) < 0.2e-3 + best(lambda: x[:128].copy())


# -- pad, bucket ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, 5),
        ({"multiple": 4}, 8),
        ({"to": 16}, 16),
        ({"to": [4, 6, 12]}, 6),
        ({"to": [4, 6, 12], "multiple": 8}, 12),
    ],
)
def test_pad(options: dict[str, Any], length: int) -> None:
    rows = gc.data.from_iterable([{"x": row, "n": len(row)} for row in ROWS])
    (batch,) = rows.batch(4).pad(**options, value=-1, lengths="len")
    assert batch["x"].shape == (4, length) and batch["x"].dtype == ROWS[0].dtype
    assert batch["len"].tolist() == batch["n"].tolist() == [3, 1, 5, 2]
    for row, want in zip(batch["x"], ROWS, strict=True):
        assert row[: len(want)].tolist() == want.tolist() and (row[len(want) :] == -1).all()


def test_pad_of_chosen_keys_and_of_rows_of_one_length() -> None:
    records = gc.data.from_iterable([{"x": row, "image": np.ones((3, 2))} for row in ROWS])
    (batch,) = records.batch(4).pad(multiple=8, keys="x")
    assert batch["x"].shape == (4, 8) and batch["image"].shape == (4, 3, 2)
    (same,) = gc.data.from_arrays(np.ones((2, 3))).batch(2).pad(multiple=4)
    assert same.shape == (2, 4)


def test_pad_that_is_refused() -> None:
    rows = gc.data.from_iterable(ROWS)
    with pytest.raises(FeedError, match="a row has 5 elements, but the greatest length is 4"):
        list(rows.batch(4).pad(4))
    with pytest.raises(FeedError, match="no lists of arrays"):
        list(numbers().batch(2).pad(4))
    with pytest.raises(FeedError, match="lengths are added to dicts"):
        list(rows.batch(4).pad(lengths="n"))
    with pytest.raises(FeedError, match="different shapes"):
        list(rows.batch(4))
    with pytest.raises(AttributeValueError, match="decides on lengths"):
        rows.batch(2).pad(gc.Bucketing({"time": [4]}), multiple=2)
    with pytest.raises(AttributeValueError, match="fetches= belongs"):
        rows.batch(2).pad(fetches=3)
    with pytest.raises(AttributeValueError, match="a tensor or a node"):
        rows.batch(2).pad(gc.Bucketing({"time": [4]}))


def test_buckets_hold_records_of_about_one_length() -> None:
    rng = np.random.default_rng(0)
    rows = [{"x": np.full(n, i), "i": i} for i, n in enumerate(rng.integers(1, 17, 101))]
    pipeline = gc.data.from_iterable(rows).bucket([4, 8, 16], [8, 4, 2], length="x").pad([4, 8, 16])
    seen: list[int] = []
    for batch in pipeline:
        size, length = batch["x"].shape
        assert size <= {4: 8, 8: 4, 16: 2}[length]
        seen += batch["i"].tolist()
        assert (batch["x"].max(1) == batch["i"]).all()
    assert sorted(seen) == list(range(101))
    full = gc.data.from_iterable(rows).bucket(
        [4, 8, 16], [8, 4, 2], length="x", drop_remainder=True
    )
    assert {len(b["i"]) for b in full} == {8, 4, 2}


def test_bucket_that_is_refused() -> None:
    rows = gc.data.from_iterable(ROWS)
    with pytest.raises(FeedError, match="a record has length 5, but the largest bucket is for 4"):
        list(rows.bucket([2, 4], 2, length=len))
    with pytest.raises(AttributeValueError, match="1 sizes for 2 buckets"):
        rows.bucket([2, 4], [2], length=len)
    with pytest.raises(AttributeValueError, match="has no sizes of 'time'"):
        rows.bucket(gc.Bucketing({"batch": [2]}), 2, length=len)
    with pytest.raises(KeyError) as caught:
        list(gc.data.from_iterable([{"x": 1}]).bucket([2], 2, length="tokens"))
    assert "in bucket('tokens') of a pipeline at test_stages.py" in caught.value.__notes__[0]


def test_a_bucketing_pads_and_feeds_its_masks() -> None:
    buckets = gc.Bucketing({"batch": [2], "time": [4, 8]})
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(("batch", "time"), name="x")
        mask = buckets.mask("batch", "time")
        total = gc.reduce_sum(gc.where(mask, gc.exp(x), 0))
    session = gc.Session(graph)
    rows = gc.data.from_iterable([{"x": np.zeros(n, np.float32)} for n in (3, 1, 5, 2, 4)])
    pipeline = rows.bucket(buckets, 2, length="x").pad(buckets, fetches=total).prefetch(session)
    assert [float(session.run(total, feeds)) for feeds in pipeline] == [4.0, 6.0, 5.0]
    assert session.compile_count == 2


# -- shard, take, repeat --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 7, 20])
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_shards_are_an_exact_partition(n: int, shards: int) -> None:
    for source in (numbers(n), gc.data.from_generator(lambda: iter(range(n)))):
        pipelines = [source.shuffle(seed=1).shard(i, shards) for i in range(shards)]
        parts = [[int(x) for x in p] for p in pipelines]
        assert sorted(x for part in parts for x in part) == list(range(n))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        if pipelines[0].count is not None:
            assert [p.count for p in pipelines] == [len(part) for part in parts]


def test_the_shard_of_this_process_is_everything() -> None:
    assert len(list(numbers().shard())) == 20
    for given in ((1,), (2, 2), (-1, 2), (0, 0), (True, 2)):
        with pytest.raises(AttributeValueError, match="shard: "):
            numbers().shard(*given)


def test_repeating_nothing_is_an_error_instead_of_a_hang() -> None:
    with pytest.raises(FeedError, match="no items in 10 epochs") as caught:
        next(iter(numbers().filter(lambda x: x > 100).repeat()))
    assert "test_stages.py" in str(caught.value.source)
    assert list(numbers(0).repeat(3)) == [] and list(numbers().repeat(0)) == []


def test_counts() -> None:
    assert numbers().batch(6).count == 4 and numbers().batch(6, drop_remainder=True).count == 3
    assert numbers().repeat().count is None and numbers().repeat().take(7).count == 7
    assert numbers().filter(bool).count is None and numbers().skip(30).count == 0
    assert numbers().batch(5).prefetch().count == 4


@pytest.mark.parametrize("name", ["take", "skip", "repeat", "batch", "shuffle"])
@pytest.mark.parametrize("value", [-1, 1.5, "3", True])
def test_numbers_that_are_none(name: str, value: Any) -> None:
    with pytest.raises(AttributeValueError, match=f"{name}: .* must be an int of at least"):
        getattr(numbers(), name)(value)
