"""`Batches`: its order, and the state of its iterator."""

from __future__ import annotations

import json

import numpy as np
import pytest

import graphc as gc
from graphc.errors import StateError


def first(items, n: int) -> list[list[int]]:
    return [next(items)["x"].tolist() for _ in range(n)]


def test_the_order_is_that_of_one_generator_of_numpy() -> None:
    rng = np.random.default_rng(3)
    want = []
    for _ in range(3):
        order = rng.permutation(7)
        want += [order[:3].tolist(), order[3:6].tolist()]
    assert first(iter(gc.data.Batches({"x": np.arange(7)}, 3, seed=3)), 6) == want


@pytest.mark.parametrize("taken", [0, 1, 2, 3, 9])
def test_the_state_continues_exactly(taken: int) -> None:
    batches = gc.data.Batches({"x": np.arange(7)}, 3, seed=5)
    items = iter(batches)
    first(items, taken)
    state = json.loads(json.dumps(items.state()))
    want = first(items, 8)
    again = iter(batches)
    first(again, 1)  # an iterator that has advanced can be restored too
    again.restore(state)
    assert first(again, 8) == want


def test_states_of_others_are_refused() -> None:
    items = iter(gc.data.Batches({"x": np.arange(7)}, 3))
    with pytest.raises(StateError, match="not the state"):
        items.restore({"next": 3})
    other = iter(gc.data.Batches({"x": np.arange(8)}, 2, seed=1)).state()
    with pytest.raises(StateError, match="examples: 8 in the state, 7 here"):
        items.restore(other)
