"""The carries, slices and shared values of a loop over repeated nodes."""

from __future__ import annotations

from textwrap import indent

from graphc.passes.rolling.recurrence import (
    Carried,
    Carry,
    Inner,
    Invariant,
    Recurrence,
    Stacked,
    recurrences,
)
from tests.passes.check import program


def of(nodes: str, period: int, first: int = 0) -> list[Recurrence]:
    """The recurrences of the nodes from position `first` on, with `period` nodes per iteration."""
    state = ", ".join(f"w{i}: state f32[2]" for i in range(5))
    text = f"program p(x: f32[2], y: f32[2], {state}) {{\n{indent(nodes, '  ')}\n  return\n}}"
    row = program(text).nodes[first:]
    turns = [row[i : i + period] for i in range(0, len(row) - period + 1, period)]
    return recurrences(turns, first)


def names(tensors: tuple | list) -> list[str]:
    return [t.name for t in tensors]


def test_a_carry_a_shared_value_and_one_of_each_iteration() -> None:
    (found,) = of(
        """
        %0 = Multiply(x, w0) : f32[2]
        %1 = Add(%0, y) : f32[2]
        %2 = Multiply(%1, w1) : f32[2]
        %3 = Add(%2, y) : f32[2]
        %4 = Multiply(%3, w2) : f32[2]
        %5 = Add(%4, y) : f32[2]
        """,
        period=2,
    )
    assert found.operands == [[Carried(0), Stacked(0)], [Inner(0, 0), Invariant(0)]]
    (carry,) = found.carries
    assert carry.initial.name == "x" and carry.following == Inner(1, 0)
    assert names(found.invariants) == ["y"]
    assert [names(stack) for stack in found.stacks] == [["w0", "w1", "w2"]]
    assert (found.begin, len(found.turns), found.period, found.saved) == (0, 3, 2, 4)


def test_one_result_carried_twice_from_different_beginnings() -> None:
    (found,) = of(
        """
        %0 = Add(x, y) : f32[2]
        %1 = Add(%0, %0) : f32[2]
        %2 = Add(%1, %1) : f32[2]
        """,
        period=1,
    )
    assert found.operands == [[Carried(0), Carried(1)]]
    assert [c.initial.name for c in found.carries] == ["x", "y"]
    assert {c.following for c in found.carries} == {Inner(0, 0)}


def test_one_carry_used_twice_is_one() -> None:
    (found,) = of(
        """
        %0 = Add(x, x) : f32[2]
        %1 = Add(%0, %0) : f32[2]
        """,
        period=1,
    )
    assert found.operands == [[Carried(0), Carried(0)]] and len(found.carries) == 1


def test_the_second_result_of_a_node_is_distinguished_from_the_first() -> None:
    (found,) = of(
        """
        %0, %1 = Split(x) {axis=0, sizes=[1, 1]} : f32[1], f32[1]
        %2 = Concatenate(%1, %0) {axis=0} : f32[2]
        %3, %4 = Split(%2) {axis=0, sizes=[1, 1]} : f32[1], f32[1]
        %5 = Concatenate(%4, %3) {axis=0} : f32[2]
        """,
        period=2,
    )
    assert found.operands == [[Carried(0)], [Inner(0, 1), Inner(0, 0)]]


def test_the_second_result_of_a_node_is_carried() -> None:
    (found,) = of(
        """
        %0 = Concatenate(x, y) {axis=0} : f32[4]
        %1, %2 = Split(%0) {axis=0, sizes=[2, 2]} : f32[2], f32[2]
        %3 = Concatenate(%2, y) {axis=0} : f32[4]
        %4, %5 = Split(%3) {axis=0, sizes=[2, 2]} : f32[2], f32[2]
        """,
        period=2,
    )
    assert [carry.following for carry in found.carries] == [Inner(1, 1)]


def test_the_first_iteration_may_take_anything_from_before_for_a_carry() -> None:
    """The initial value may be in an earlier iteration: here the loop starts at the second node."""
    (found,) = of(
        """
        %0 = Negative(x) : f32[2]
        %1 = Multiply(%0, w0) : f32[2]
        %2 = Multiply(%1, w1) : f32[2]
        %3 = Multiply(%2, w2) : f32[2]
        """,
        period=1,
        first=1,
    )
    assert found.begin == 1 and found.carries[0].initial.name == "%0"


def test_a_first_iteration_wired_otherwise_stays_outside() -> None:
    """The first iteration computes the value that the other iterations carry."""
    (found,) = of(
        """
        %0 = Tanh(x) : f32[2]
        %1 = Multiply(%0, %0) : f32[2]
        %2 = Tanh(%1) : f32[2]
        %3 = Multiply(%2, %1) : f32[2]
        %4 = Tanh(%3) : f32[2]
        %5 = Multiply(%4, %3) : f32[2]
        """,
        period=2,
    )
    assert (found.begin, len(found.turns)) == (2, 2)


def test_an_iteration_wired_otherwise_in_the_middle_makes_two() -> None:
    before, after = of(
        """
        %0 = Multiply(x, w0) : f32[2]
        %1 = Multiply(%0, w1) : f32[2]
        %2 = Multiply(w2, %1) : f32[2]
        %3 = Multiply(%2, w3) : f32[2]
        %4 = Multiply(%3, w4) : f32[2]
        """,
        period=1,
    )
    assert (before.begin, len(before.turns)) == (0, 2)
    assert (after.begin, len(after.turns)) == (2, 3)
    assert after.carries[0].initial.name == "w2"
    assert names(after.stacks[0]) == ["%1", "w3", "w4"]  # the operand of the loop's first iteration


def test_a_value_of_two_iterations_back_follows_from_a_carry() -> None:
    (found,) = of(
        """
        %0 = Add(x, y) : f32[2]
        %1 = Add(%0, x) : f32[2]
        %2 = Add(%1, %0) : f32[2]
        %3 = Add(%2, %1) : f32[2]
        """,
        period=1,
    )
    assert len(found.turns) == 4 and found.operands == [[Carried(0), Carried(1)]]
    assert [each.following for each in found.carries] == [Inner(0, 0), Carried(0)]
    assert [each.initial.name for each in found.carries] == ["x", "y"]


def test_a_value_of_two_iterations_back_may_begin_as_another_carry() -> None:
    """The second iteration takes w0 instead of the first result of the pattern."""
    (found,) = of(
        """
        %0 = Add(x, y) : f32[2]
        %1 = Add(%0, w0) : f32[2]
        %2 = Add(%1, %0) : f32[2]
        %3 = Add(%2, %1) : f32[2]
        """,
        period=1,
    )
    assert len(found.turns) == 4 and found.operands == [[Carried(0), Carried(2)]]
    assert [each.following for each in found.carries] == [Inner(0, 0), Inner(0, 0), Carried(1)]
    assert [each.initial.name for each in found.carries] == ["x", "w0", "y"]


def test_values_of_three_iterations_back_end_the_stretch() -> None:
    first, *_ = of(
        """
        %0 = Add(x, y) : f32[2]
        %1 = Add(%0, w0) : f32[2]
        %2 = Add(%1, x) : f32[2]
        %3 = Add(%2, %0) : f32[2]
        %4 = Add(%3, %1) : f32[2]
        """,
        period=1,
    )
    assert len(first.turns) == 3 and first.operands == [[Carried(0), Stacked(0)]]


def test_iterations_without_a_carry_are_a_recurrence_too() -> None:
    (found,) = of("\n".join(f"%{i} = Multiply(x, w{i}) : f32[2]" for i in range(3)), period=1)
    assert found.carries == [] and found.operands == [[Invariant(0), Stacked(0)]]


def test_one_iteration_is_none() -> None:
    assert of("%0 = Negative(x) : f32[2]", period=1) == []
    assert recurrences([]) == []


def test_a_part_is_a_recurrence_of_its_own() -> None:
    (whole,) = of(
        """
        %0 = Multiply(x, w0) : f32[2]
        %1 = Add(%0, y) : f32[2]
        %2 = Multiply(%1, w1) : f32[2]
        %3 = Add(%2, y) : f32[2]
        %4 = Multiply(%3, w2) : f32[2]
        %5 = Add(%4, y) : f32[2]
        """,
        period=2,
    )
    part = whole.part(1, 2)
    assert (part.begin, len(part.turns)) == (2, 2)
    assert part.carries == [Carry(whole.turns[0][1].outputs[0], Inner(1, 0))]
    assert [names(stack) for stack in part.stacks] == [["w1", "w2"]]
    assert part.operands == whole.operands
