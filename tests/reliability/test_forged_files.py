"""Forged files: no crash, no hang, nothing silent. `pytest --long` tries 10,000."""

from __future__ import annotations

from collections.abc import Callable

from tests.reliability.forged_files import KINDS, attack


def test_forged_files_do_no_harm(rounds: Callable[[int, int], int]) -> None:
    tally = attack(rounds(500, 10_000), seed=0)
    print(tally)
    assert tally.told == []
    assert tally.rounds == rounds(500, 10_000)
    assert tally.kinds.keys() == {name for name, _ in KINDS}
    for kind, seen in tally.kinds.items():  # each kind does get behind the checksums, or is refused
        assert seen["refused"] + seen["same"] + seen["another"] > 0, kind
    assert tally.outcomes["refused"] > tally.rounds / 5
    assert tally.outcomes["same"] > tally.rounds / 20
