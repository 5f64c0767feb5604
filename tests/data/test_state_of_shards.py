"""The shards of one pipeline have one position: a cluster stores that of its chief."""

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
