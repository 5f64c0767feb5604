"""See `tests/reliability/meshes.py`."""

from __future__ import annotations

from collections.abc import Callable

from tests.reliability.meshes import attack


def test_random_programs_on_meshes(rounds: Callable[[int, int], int]) -> None:
    tally = attack(rounds(3, 2_000), seed=0)
    print(tally)
    assert tally.compared > tally.programs
    assert not tally.wrong
    assert not tally.refused
    assert not tally.crashed
