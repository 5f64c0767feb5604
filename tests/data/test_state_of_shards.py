"""All shards of a pipeline have one position: a cluster stores the position of its chief."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import graphc as gc

ITEMS = 23

PIPELINES: dict[str, Callable[[int, int], gc.data.Pipeline]] = {
    "plain": lambda i, n: gc.data.from_arrays(np.arange(ITEMS)).shard(i, n),
    "shuffled": lambda i, n: gc.data.from_arrays(np.arange(ITEMS)).shuffle(seed=3).shard(i, n),
    "buffered": lambda i, n: gc.data.from_arrays(np.arange(ITEMS)).shuffle(5, seed=3).shard(i, n),
    "filtered": lambda i, n: gc.data.from_arrays(np.arange(ITEMS)).filter(bool).shard(i, n),
    "repeated": lambda i, n: gc.data.from_arrays(np.arange(5)).repeat().shard(i, n).take(9),
    "batched": lambda i, n: gc.data.from_arrays(np.arange(ITEMS)).repeat(2).shard(i, n).batch(2),
}


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("name", PIPELINES)
def test_each_shard_continues_from_the_position_of_another(name: str, count: int) -> None:
    make = PIPELINES[name]
    for saved, restored in itertools.product(range(count), repeat=2):
        whole = [np.asarray(item).tolist() for item in make(restored, count)]
        least = min(len(list(make(i, count))) for i in range(count))
        for after in range(least + 1):
            chief = iter(make(saved, count))
            for _ in range(after):
                next(chief)
            other = iter(make(restored, count))
            other.restore(chief.state())
            assert [np.asarray(item).tolist() for item in other] == whole[after:]


def _rows(index: int, count: int, together: int, drop: bool = True) -> gc.data.Pipeline:
    numbers = gc.data.from_arrays(np.arange(26)).shuffle(seed=1).repeat(3).map(int)
    return numbers.shard(index, count).map(int).batch(together // count, drop_remainder=drop)


@pytest.mark.parametrize("restored", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("saved", [1, 2, 3, 4, 6, 12])
def test_another_number_of_shards_continues_with_the_same_items(saved: int, restored: int) -> None:
    """This holds if all shards together always yield the same number of items per round."""

    def taken(shards: list[gc.data.PipelineIterator], times: int) -> list[list[int]]:
        return [sorted(x for each in shards for x in next(each).tolist()) for _ in range(times)]

    whole = taken([iter(_rows(0, 1, 12))], 6)
    for after in range(6):
        first = [iter(_rows(i, saved, 12)) for i in range(saved)]
        assert taken(first, after) == whole[:after]
        then = [iter(_rows(i, restored, 12)) for i in range(restored)]
        for each in then:
            each.restore(first[0].state())
        assert taken(then, 6 - after) == whole[after:]


@pytest.mark.parametrize(
    "other",
    [
        lambda: _rows(0, 3, 24),
        lambda: _rows(0, 3, 12, drop=False),
        lambda: gc.data.from_arrays(np.arange(26)).shard(0, 3).shuffle(seed=1).batch(4),
        lambda: gc.data.from_arrays(np.arange(26)).shuffle(seed=1).repeat(3).map(int).batch(12),
    ],
)
def test_shards_of_other_items_are_refused(other: Callable[[], gc.data.Pipeline]) -> None:
    first = iter(_rows(0, 2, 12))
    next(first)
    with pytest.raises(gc.errors.StateError, match="all together must give as many"):
        iter(other()).restore(first.state())
