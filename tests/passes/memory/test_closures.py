"""The cheapest closed set of choices, compared with a search of all sets."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.passes.memory.closures import cheapest

COUNT = 6
PAIRS = st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    costs=st.lists(st.integers(-9, 9), min_size=COUNT, max_size=COUNT),
    implied=st.lists(PAIRS, max_size=9),
    required=st.lists(st.integers(0, COUNT - 1), max_size=2),
)
def test_no_other_set_is_cheaper(
    costs: list[int], implied: list[tuple[int, int]], required: list[int]
) -> None:
    def cost(chosen: set[int]) -> int:
        return sum(costs[i] for i in chosen)

    closed = [
        chosen
        for flags in product((False, True), repeat=COUNT)
        if (chosen := {i for i, flag in enumerate(flags) if flag}).issuperset(required)
        and all(b in chosen for a, b in implied if a in chosen)
    ]
    found = cheapest(costs, implied, required)
    assert found in closed
    least = min(map(cost, closed))
    assert cost(found) == least
    assert all(len(found) <= len(chosen) for chosen in closed if cost(chosen) == least)


def test_a_gain_pays_for_what_it_implies() -> None:
    assert cheapest([-5, 3, 1], [(0, 1), (0, 2)], []) == {0, 1, 2}
    assert cheapest([-5, 3, 3], [(0, 1), (0, 2)], []) == set()
    assert cheapest([-5, 3, 3], [(0, 1), (0, 2)], [1]) == {0, 1, 2}
