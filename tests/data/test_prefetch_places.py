"""Where `prefetch` and `put` place feeds: a step copies nothing more; results do not change."""

from __future__ import annotations

import gc as garbage
from collections.abc import Iterator
from itertools import islice
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices import DataParallel
from graphc.errors import (
    AttributeValueError,
    ExecutionError,
    FeedError,
    GraphcError,
    StateError,
    UnknownNameError,
)
from tests.near import assert_near

ROWS = 8


def model() -> gc.Graph:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", 3), "float64", name="x")
        lr = gc.placeholder((), "float32", name="lr")
        w = gc.variable(np.ones((3, 2)), name="w")
        loss = gc.reduce_mean(gc.square(gc.matmul(x, w)), name="loss")
        gc.minimize(loss * gc.cast(lr, "float64"), optax.sgd(0.1), name="train")
    return graph


@pytest.fixture(scope="module")
def one() -> gc.Session:
    return gc.Session(model())


@pytest.fixture(scope="module")
def four() -> gc.Session:
    return gc.Session(model(), strategy=DataParallel(4))


def feeds(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=(ROWS, 3)), "lr": float(i)} for i in range(count)]


def losses(session: gc.Session, stream: Any) -> Any:
    session.set("w", np.ones((3, 2)))
    return np.asarray([session.run(["train", "loss"], feed)[1] for feed in stream])


def test_a_step_copies_nothing_more(one: gc.Session) -> None:
    want = losses(one, feeds(4))

    def guarded(stream: Any) -> Iterator[Any]:
        for feed in stream:
            assert feed["x"].dtype == np.float64 and feed["lr"].dtype == np.float32
            where = {key: value.unsafe_buffer_pointer() for key, value in feed.items()}
            with jax.transfer_guard("disallow_explicit"):
                yield feed
            again = one.put(feed)
            assert where == {key: value.unsafe_buffer_pointer() for key, value in again.items()}

    np.testing.assert_array_equal(losses(one, guarded(gc.data.prefetch(feeds(4), one))), want)
    guard = jax.transfer_guard("disallow_explicit")  # checks that the guard works
    with guard, pytest.raises(ExecutionError, match="transfer"):
        one.run(["train", "loss"], {"x": np.ones((ROWS, 3)), "lr": np.float32(1)})


def test_replicas_get_their_pieces(one: gc.Session, four: gc.Session) -> None:
    want = losses(one, feeds(4))
    batches = feeds(4)
    losses(four, batches)  # compiles outside the guard

    def guarded(stream: Any) -> Iterator[Any]:
        for feed, batch in zip(stream, batches, strict=True):
            pieces = sorted(feed["x"].addressable_shards, key=lambda piece: piece.device.id)
            assert [piece.device for piece in pieces] == jax.devices()[:4]
            for i, piece in enumerate(pieces):
                np.testing.assert_array_equal(piece.data, batch["x"][2 * i : 2 * i + 2])
            assert feed["lr"].is_fully_replicated and len(feed["lr"].devices()) == 4
            with jax.transfer_guard("disallow_explicit"):
                yield feed

    got = losses(four, guarded(gc.data.prefetch(batches, four)))
    assert_near(got, want, rtol=1e-9)


@pytest.mark.parametrize("devices", [1, 4])
def test_stacked_batches_for_run_steps(devices: int, one: gc.Session, four: gc.Session) -> None:
    session = one if devices == 1 else four
    want = losses(one, feeds(6))
    session.set("w", np.ones((3, 2)))
    stream = gc.data.prefetch(iter(feeds(8)), session, steps=3)
    got = []
    for stacked in stream:
        assert stacked["x"].shape == (3, ROWS, 3) and stacked["lr"].shape == (3,)
        assert stacked["x"].addressable_shards[0].data.shape == (3, ROWS // devices, 3)
        if not got:
            got.append(session.run_steps(["train", "loss"], stacked, 3)[1])
            continue
        with jax.transfer_guard("disallow_explicit"):
            got.append(session.run_steps(["train", "loss"], stacked, 3)[1])
    assert_near(np.concatenate(got), want, rtol=1e-9)


@pytest.mark.parametrize("devices", [1, 4])
def test_an_executable_gets_what_it_takes(devices: int) -> None:
    strategy = DataParallel(devices) if devices > 1 else None
    step = gc.compile(model(), ["train", "loss"], {"x": (ROWS, 3), "lr": ()}, strategy=strategy)
    ends = []
    for way in (lambda b: b, lambda b: gc.data.prefetch(b, step)):
        state = step.init()
        for feed in way(feeds(3)):
            (_, loss), state = step(state, feed)
        ends.append(float(loss))
    assert ends[0] == ends[1]
    (feed,) = gc.data.prefetch(feeds(1), step)
    with jax.transfer_guard("disallow_explicit"):
        step(state, feed)
    with pytest.raises(FeedError, match="'lr' is missing") as caught:
        next(gc.data.prefetch([{"x": np.ones((ROWS, 3))}], step))
    assert "lr = gc.placeholder" in str(caught.value)


@pytest.mark.parametrize("rows", [ROWS, 1 << 15])  # small and large arrays are copied differently
@pytest.mark.parametrize("kind", ["session", "replicas", "device"])
def test_the_source_may_fill_one_buffer_again_and_again(
    kind: str, rows: int, one: gc.Session, four: gc.Session
) -> None:
    to = {"session": one, "replicas": four, "device": "/cpu:1"}[kind]
    buffer = np.empty((rows, 3))

    def source() -> Iterator[Any]:
        for i in range(6):
            buffer[:] = i
            yield {"x": buffer, "lr": 0.0}

    kept = list(gc.data.prefetch(source(), to, size=3))
    buffer[:] = -1
    for i, feed in enumerate(kept):
        np.testing.assert_array_equal(feed["x"], np.full((rows, 3), i))


# -- errors, and the state after them ---------------------------------------------------------


@pytest.mark.parametrize(
    ("feed", "kind", "text", "line"),
    [
        ({"x": np.ones((ROWS, 4)), "lr": 1.0}, FeedError, "feed 'x' must be", "x = gc.place"),
        ({"x": np.ones((ROWS, 3), int), "lr": 1.0}, FeedError, "got int64", "x = gc.place"),
        ({"x": np.ones((ROWS, 3)), "z": 1.0}, UnknownNameError, "no node 'z'", "prefetch("),
        ([np.ones(3)], FeedError, "feeds must be a mapping", "prefetch("),
    ],
)
def test_a_feed_that_does_not_fit(
    one: gc.Session, feed: Any, kind: type[GraphcError], text: str, line: str
) -> None:
    good = {"x": np.ones((ROWS, 3)), "lr": 1.0}
    stream = gc.data.prefetch([good, good, feed, good], one)
    assert [set(fed) for fed in islice(stream, 2)] == [{"x", "lr"}] * 2
    with pytest.raises(kind, match=text) as caught:
        next(stream)
    assert line in str(caught.value) and "test_prefetch_places.py" in str(caught.value)
    assert "batch 2 of prefetch" in str(caught.value)
    with pytest.raises(StopIteration):
        next(stream)
    one.run(["train", "loss"], good)


def test_a_thousand_batches_leave_nothing_behind(one: gc.Session) -> None:
    feed = {"x": np.ones((ROWS, 3)), "lr": np.float32(0)}
    assert len(list(gc.data.prefetch([feed] * 10, one))) == 10
    garbage.collect()
    before, objects = len(jax.live_arrays()), len(garbage.get_objects())
    most = 0
    for i, _ in enumerate(gc.data.prefetch((dict(feed) for _ in range(1000)), one)):
        if i % 50 == 0:
            most = max(most, len(jax.live_arrays()))
    del _
    garbage.collect()
    assert len(jax.live_arrays()) == before
    assert most - before <= 4 * 2  # two that wait, one in use, and its predecessor
    assert len(garbage.get_objects()) - objects < 500


# -- put ------------------------------------------------------------------------------------


def test_put_gives_back_the_callers_keys_in_order() -> None:
    graph = model()
    session = gc.Session(graph, strategy=DataParallel(4))
    feed = {"lr": 0.5, graph.tensor("x:0"): np.ones((ROWS, 3), np.float32)}
    put = session.put(feed)
    assert list(put) == list(feed)
    assert [str(array.dtype) for array in put.values()] == ["float32", "float64"]
    again = session.put(put)
    assert all(again[key] is put[key] for key in feed)
    session.run(["train", "loss"], put)
    assert session.compile_count == 1
    loss = session.run_steps(["train", "loss"], [put, again], 2)[1]
    assert loss.shape == (2,)
    rows = session.put([put, feed], steps=2)
    assert rows["lr"].shape == (2,) and list(rows["lr"]) == [0.5, 0.5]
    stacked = session.put({"lr": np.ones(2, np.float32), "x": np.ones((2, ROWS, 3))}, steps=2)
    assert stacked["x"].sharding == rows[graph.tensor("x:0")].sharding
    with pytest.raises(FeedError, match="leading axis of 3"):
        session.put(stacked, steps=3)
    with pytest.raises(FeedError, match="ended after 1 of 2 steps"):
        session.put([feed], steps=2)


def test_a_session_tells_where_it_runs_once_it_has() -> None:
    graph = gc.Graph()
    with graph, gc.device("/cpu:2"):
        x = gc.placeholder((2,), name="x")
        y = gc.exp(x)
    session = gc.Session(graph)
    feed = session.put({"x": np.ones(2, np.float32)})
    assert session.run(y, feed).devices() == {jax.devices()[2]}
    assert session.put(feed)["x"].devices() == {jax.devices()[2]}
    assert len(next(gc.data.prefetch([{}], session))) == 0


def test_put_in_a_session_that_is_closed() -> None:
    session = gc.Session(model())
    session.close()
    feed = {"x": np.ones((ROWS, 3)), "lr": 1.0}
    with pytest.raises(StateError, match="closed"):
        session.put(feed)
    with pytest.raises(StateError, match="closed"):
        next(gc.data.prefetch([feed], session))


# -- in a training loop ---------------------------------------------------------------------


def test_fit_with_prefetch(one: gc.Session) -> None:
    histories = []
    for prefetch in (None, 2):
        one.set("w", np.ones((3, 2)))
        stream = iter(feeds(10))
        job = gc.train.Job(one.graph, "train", stream, steps=6, metrics={"loss": "loss"})
        histories.append(gc.train.fit(one, job, progress=False, prefetch=prefetch))
        assert len(list(stream)) == 4  # no more were read than there were steps
    np.testing.assert_array_equal(*[history.metrics["loss"] for history in histories])
    job = gc.train.Job(one.graph, "train", feeds(2), steps=3)
    with pytest.raises(FeedError, match="ended after 2 of 3 steps"):
        gc.train.fit(one, job, progress=False, prefetch=4)
    with pytest.raises(AttributeValueError, match="at least 1, got 0"):
        gc.train.fit(one, job, progress=False, prefetch=0)
