"""Repeats in a sequence: their start, their length and their order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from graphc.passes.rolling.repeats import Repeat, tandem_repeats


def found(items: str, turns: int = 2, saved: int = 1) -> list[tuple[str, int]]:
    """(the repeated items, the period) of each repeat, in order."""
    return [
        (items[r.start : r.start + r.length], r.period)
        for r in tandem_repeats(items, turns=turns, saved=saved)
    ]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("", []),
        ("a", []),
        ("abcdef", []),
        ("aa", [("aa", 1)]),
        ("ababab", [("ababab", 2)]),
        ("xababay", [("ababa", 2)]),  # cut short: iterations may start at either letter
        ("abcabcabc", [("abcabcabc", 3)]),
        ("aabaabaab", [("aabaabaab", 3), ("aa", 1), ("aa", 1), ("aa", 1)]),
        ("abxababab", [("ababab", 2)]),  # an item that differs ends a repeat
        ("ababxabab", [("abab", 2), ("abab", 2)]),
        ("ababcdcd", [("abab", 2), ("cdcd", 2)]),
        ("abcbabcbabcb", [("abcbabcbabcb", 4)]),  # two alternating kinds are one iteration
    ],
)
def test_what_is_found(items: str, expected: list[tuple[str, int]]) -> None:
    got = found(items)
    assert got[: len(expected)] == expected
    if not expected:
        assert got == []


def test_the_best_comes_first_and_of_equals_the_shorter_period() -> None:
    assert found("aaaa")[:2] == [("aaaa", 1), ("aaaa", 2)]  # they save 3 and 2 items
    assert found("cdcdcd" + "aaa" + "xyz" * 3)[0] == ("xyz" * 3, 3)
    assert found("aab" * 3)[0] == ("aab" * 3, 3)
    assert found("abababab")[0] == ("abababab", 2)  # saves 6; with period 4, 4


def test_few_iterations_and_small_savings_are_left_out() -> None:
    assert found("ababab", turns=3) == [("ababab", 2)]
    assert found("abab", turns=3) == []
    assert found("ababab", saved=4) == [("ababab", 2)]
    assert found("ababab", saved=5) == []


def test_iterations_and_what_is_saved_count_whole_iterations() -> None:
    repeat = Repeat(start=2, length=11, period=3)
    assert (repeat.turns, repeat.saved) == (3, 6)


def test_kinds_whose_change_is_permanent_make_two_repeats_that_overlap() -> None:
    """Four layers with one activation, four with another: both contain the product between them."""
    items = "mrmrmrmr" + "mtmtmtmt"
    assert found(items, turns=3) == [("mrmrmrmrm", 2), ("mtmtmtmt", 2)]


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ([], [(4, 8)]),
        ([4], [(5, 7)]),
        ([11], [(4, 7)]),
        ([3, 12], [(4, 8)]),  # outside of it
        ([8], [(4, 4)]),
        ([7, 8], []),
        ([6], [(7, 5)]),
        (range(4, 12), []),
    ],
)
def test_what_is_left_of_a_repeat_beside_taken_items(
    taken: list[int], left: list[tuple[int, int]]
) -> None:
    marks = np.zeros(20, bool)
    marks[list(taken)] = True
    got = Repeat(start=4, length=8, period=2).without(marks)
    assert [(r.start, r.length) for r in got] == left
    assert all(r.period == 2 for r in got)


def test_every_repeat_is_one_and_cannot_be_longer() -> None:
    draw = random.Random(0)
    count = 0
    for _ in range(300):
        items = "".join(draw.choice("abc") for _ in range(draw.randint(0, 24)))
        for r in tandem_repeats(items, turns=2, saved=1):
            count += 1
            whole = items[r.start : r.start + r.length]
            assert whole == (whole[: r.period] * r.length)[: r.length], (items, r)
            end = r.start + r.length
            assert r.start == 0 or items[r.start - 1] != items[r.start - 1 + r.period]
            assert end == len(items) or items[end] != items[end - r.period]
    assert count > 500


def test_a_long_period_is_found_among_many_short_distances() -> None:
    """A block of 300 nodes of 20 kinds, repeated 48 times, with other nodes around it."""
    draw = random.Random(1)
    block = [draw.randrange(20) for _ in range(299)] + ["once"]
    items = [draw.randrange(20) for _ in range(500)] + block * 48 + list(range(100, 400))
    best = tandem_repeats(items, turns=3, saved=40)[0]
    assert best.period == 300 and best.turns == 48
