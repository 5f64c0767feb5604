"""The attacks on feeds in short; `pytest --long` makes them long."""

from collections.abc import Callable

from tests.reliability.feeds import attack_memory, attack_values


def test_values_are_kept_or_refused(rounds: Callable[[int, int], int]) -> None:
    tally = attack_values(rounds(3_000, 1_000_000), seed=0)
    assert tally.silent == tally.raw == tally.needless == 0
    assert tally.kept + tally.refused == tally.rounds
    assert min(tally.kept, tally.refused) > tally.rounds // 10


def test_results_do_not_follow_later_writes(rounds: Callable[[int, int], int]) -> None:
    tally = attack_memory(rounds(200, 20_000), seed=0)
    assert tally.wrong == 0
    assert tally.rounds >= 200
