"""Ctrl-C never costs the variables: see `interrupts`."""

from __future__ import annotations

from collections.abc import Callable

from tests.reliability.interrupts import FORMS, attack_all


def test_interrupts_leave_the_state_of_a_whole_step(rounds: Callable[[int, int], int]) -> None:
    number = rounds(100, 2_000)
    tally = attack_all(number, seed=0, each=number > 100)
    assert (tally["lost"], tally["crashes"], tally["hangs"]) == (0, 0, 0)
    assert tally["rounds"] >= number - len(FORMS)
