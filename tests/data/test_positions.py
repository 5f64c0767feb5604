"""Positions of pipelines: after prefetch, in other pipelines, and at the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.data.stages.batch import _Batching
from graphc.errors import CopyError, FeedError, StateError


def numbers(n: int = 20) -> gc.data.Pipeline:
    return gc.data.from_arrays(np.arange(n))


# -- prefetch -------------------------------------------------------------------------------------


def positions(iterator: Any, n: int) -> list[list[int]]:
    return [np.asarray(next(iterator)).tolist() for _ in range(n)]


@pytest.mark.parametrize("size", [1, 3])
def test_the_position_behind_prefetch_is_that_of_what_was_returned(size: int) -> None:
    plain = numbers().shuffle(seed=1).batch(3).repeat()
    want = positions(iter(plain), 12)
    with iter(plain.prefetch("/cpu:1", size=size)) as items:
        first = next(items)
        assert first.devices() == {jax.devices()[1]}
        assert positions(items, 4) == want[1:5]
        state = json.loads(json.dumps(items.state()))
    for pipeline in (plain, plain.prefetch()):  # prefetch does not change positions
        with iter(pipeline) as again:
            again.restore(state)
            assert positions(again, 5) == want[5:10]


@pytest.mark.parametrize("kind", ["pipeline", "iterator", "batches"])
def test_the_function_prefetch_has_positions_too(kind: str) -> None:
    pipeline = numbers().shuffle(seed=1).batch(3).repeat()
    batches = gc.data.Batches({"x": np.arange(20)}, 3, seed=1)
    make = {
        "pipeline": lambda: pipeline,
        "iterator": lambda: iter(pipeline),
        "batches": lambda: batches,
    }[kind]

    def value(item: Any) -> list[int]:
        return np.asarray(item["x"] if kind == "batches" else item).tolist()

    with gc.data.prefetch(make(), size=3) as stream:
        [next(stream) for _ in range(4)]
        state = json.loads(json.dumps(stream.state()))
        want = [value(next(stream)) for _ in range(6)]
        stream.restore(state)  # prefetched items are discarded
        assert [value(next(stream)) for _ in range(6)] == want
    with gc.data.prefetch(make()) as stream:
        stream.restore(state)
        assert [value(next(stream)) for _ in range(6)] == want


def test_groups_of_steps_and_their_positions() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2,), "int32", name="x")
        y = x + 0
    session = gc.Session(graph)
    batches = gc.data.from_arrays({"x": np.arange(22, dtype=np.int32)}).batch(2)
    stream = batches.prefetch(session, steps=3)
    assert stream.count == 3
    items = iter(stream)
    want = [session.run_steps(y, feeds, 3).tolist() for feeds in iter(stream)]
    assert session.run_steps(y, next(items), 3).tolist() == want[0]
    again = iter(stream)
    again.restore(json.loads(json.dumps(items.state())))
    assert [session.run_steps(y, feeds, 3).tolist() for feeds in again] == want[1:]
    items.close()
    with gc.data.prefetch(batches, session, steps=3) as ahead:
        next(ahead)
        state = ahead.state()
        next(ahead)
        ahead.restore(state)
        assert session.run_steps(y, next(ahead), 3).tolist() == want[1]


def test_prefetching_an_iterable_without_positions() -> None:
    with gc.data.prefetch([np.zeros(1)] * 3) as stream:
        for call in (stream.state, lambda: stream.restore({})):
            with pytest.raises(StateError, match="without positions"):
                call()


def test_an_error_behind_prefetch_comes_in_order_and_keeps_the_position() -> None:
    def fails(x: int) -> int:
        if x == 4:
            raise ValueError("four")
        return x

    with iter(numbers().map(fails).prefetch("/cpu:0", size=3)) as items:
        assert positions(items, 4) == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(ValueError, match="four"):
                next(items)
        assert items.state()["count"] == 4


# -- positions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        numbers(21).shuffle(seed=1).batch(4),
        numbers().shuffle(seed=2).batch(4),
        numbers().shuffle(seed=1).batch(5),
        numbers().shuffle(seed=1).batch(4, drop_remainder=True),
        numbers().shuffle(5, seed=1).batch(4),
        numbers().batch(4),
    ],
    ids=["length", "seed", "batch", "remainder", "buffer", "stages"],
)
def test_the_state_of_another_pipeline_is_refused(other: gc.data.Pipeline) -> None:
    state = iter(other).state()
    with pytest.raises(StateError, match="belongs to another pipeline") as caught:
        iter(numbers().shuffle(seed=1).batch(4)).restore(state)
    assert "from_arrays: 20 records . shuffle(seed=1) . batch(4)" in str(caught.value)


@pytest.mark.parametrize("tree", [{}, None, 3, {"form": 2}, {"next": 3}])
def test_what_is_no_state_is_refused(tree: Any) -> None:
    with pytest.raises(StateError, match="not the state of a pipeline"):
        iter(numbers()).restore(tree)


def test_a_later_form_is_refused() -> None:
    items = iter(numbers())
    with pytest.raises(StateError, match="form 9, this graphc reads form 1"):
        items.restore({**items.state(), "form": 9})


def test_a_state_is_a_copy() -> None:
    items = iter(numbers().shuffle(5).batch(2))
    next(items)
    state = items.state()
    text = json.dumps(state)
    state["at"]["upstream"]["kept"].clear()
    assert json.dumps(items.state()) == text
    again = iter(numbers().shuffle(5).batch(2))
    again.restore(json.loads(text))
    given = json.loads(text)
    again.restore(given)
    given["at"]["upstream"]["kept"].clear()
    assert next(again).tolist() == next(items).tolist()


def test_restoring_an_index_pipeline_reads_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = numbers(10_000).shuffle(seed=1).batch(10).repeat()
    items = iter(pipeline)
    [next(items) for _ in range(2500)]
    again = iter(pipeline)
    again.restore(items.state())
    made: list[int] = []
    batch = _Batching._batch
    monkeypatch.setattr(_Batching, "_batch", lambda s, i: made.append(1) or batch(s, i))
    assert next(again).tolist() == next(items).tolist()
    assert len(made) == 2  # one from each iterator


def test_the_end_is_a_position() -> None:
    items = iter(numbers().batch(8))
    list(items)
    again = iter(numbers().batch(8))
    again.restore(json.loads(json.dumps(items.state())))
    assert list(again) == [] and list(items) == []


def test_iterators_are_not_copied_and_pipelines_are_values() -> None:
    import copy
    import pickle

    with pytest.raises(CopyError, match="keep its state"):
        copy.copy(iter(numbers()))
    again = pickle.loads(pickle.dumps(numbers().shuffle(seed=1).batch(3)))
    assert [b.tolist() for b in again] == [b.tolist() for b in numbers().shuffle(seed=1).batch(3)]


def test_a_closed_iterator_is_at_its_end() -> None:
    items = iter(numbers())
    next(items)
    items.close()
    assert list(items) == []
    again = iter(numbers())
    again.restore(items.state())
    assert next(again) == 1
    items.restore(items.state())
    assert next(items) == 1


# -- interleave -----------------------------------------------------------------------------------


def test_interleave_of_files_and_errors_in_them() -> None:
    words = gc.data.from_iterable(["abc", "de", "", "fghi"])

    def letters(word: str) -> gc.data.Pipeline:
        return gc.data.from_generator(lambda: iter(word))

    assert "".join(words.interleave(letters, cycle=2)) == "adbecfghi"
    assert "".join(words.interleave(letters, cycle=9, block=2)) == "abdefgchi"
    with pytest.raises(FeedError, match="three"):

        def broken(word: str) -> gc.data.Pipeline:
            raise FeedError("three")

        list(words.interleave(broken))
    with pytest.raises(ValueError, match="returned str, not a pipeline"):
        list(words.interleave(lambda word: word))


def test_interleaved_pipelines_close_their_workers() -> None:
    def doubled(n: int) -> gc.data.Pipeline:
        return gc.data.from_iterable([n, n]).map(lambda x: 2 * x, workers=1)

    with iter(gc.data.from_iterable([1, 2, 3]).interleave(doubled, cycle=2)) as items:
        assert list(items) == [2, 4, 2, 4, 6, 6]
    assert not [t for t in threading.enumerate() if t.name == "graphc-data"]


def test_a_position_with_sources_of_unknown_length() -> None:
    def lines() -> Iterator[int]:
        yield from range(30)

    pipeline = gc.data.from_generator(lines).filter(lambda x: x % 2).shuffle(4).batch(3).repeat(2)
    want = [b.tolist() for b in pipeline]
    for taken in range(len(want)):
        items = iter(pipeline)
        [next(items) for _ in range(taken)]
        again = iter(pipeline)
        again.restore(items.state())
        assert [b.tolist() for b in again] == want[taken:]
