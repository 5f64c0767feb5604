"""Threads that share a session or an executable: see `threads`."""

from __future__ import annotations

from collections.abc import Callable

from tests.reliability.threads import FORMS, THREADS, attack_all


def test_threads_see_whole_steps_only(rounds: Callable[[int, int], int]) -> None:
    number = rounds(2_000, 100_000)
    tally = attack_all(number, seed=0, each=number > 2_000)
    assert [tally[name] for name in ("torn", "lost", "errors", "crashes", "hangs")] == [0] * 5
    assert tally["rounds"] >= number - THREADS * len(FORMS)
