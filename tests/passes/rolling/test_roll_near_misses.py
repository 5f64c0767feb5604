"""RollRepeats: blocks that differ, and repetitions that are too small for a loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphc.ir.opdef import Effects
from graphc.passes.rolling.roll_repeats import RollRepeats
from tests.passes.check import program
from tests.passes.rolling.models import LAYER, ROLL, layers, loops, rolls, stays, text


def test_a_first_and_a_last_iteration_that_differ_stay_outside() -> None:
    rolls(
        f"""
        %0 = Multiply(x, a) : f32[2]
        %1 = Relu(%0) : f32[2]
        {layers("bcd", "%1", 2)}
        %8 = Multiply(%7, e) : f32[2]
        return y = %8
        """,
        f"""
        %0 = Multiply(x, a) : f32[2]
        %1 = Relu(%0) : f32[2]
        %2 = Stack(b, c, d) : f32[3, 2]
        %3 = Scan(%1, %2) {{consts=0, carries=1, length=3}} : f32[2] {LAYER}
        %4 = Multiply(%3, e) : f32[2]
        return y = %4
        """,
    )


def test_what_a_first_iteration_has_in_common_does_not_shift_the_others() -> None:
    """From the first product to the last Tanh there are four iterations that begin inside a block.
    Iterations of the three whole blocks carry one value instead of two."""
    rolls(
        """
        %0 = Relu(x) : f32[2]
        %1 = Multiply(%0, a) : f32[2]
        %2 = Add(x, %1) : f32[2]
        %3 = Tanh(%2) : f32[2]
        %4 = Multiply(%3, b) : f32[2]
        %5 = Add(%2, %4) : f32[2]
        %6 = Tanh(%5) : f32[2]
        %7 = Multiply(%6, c) : f32[2]
        %8 = Add(%5, %7) : f32[2]
        %9 = Tanh(%8) : f32[2]
        %10 = Multiply(%9, d) : f32[2]
        %11 = Add(%8, %10) : f32[2]
        %12 = Tanh(%11) : f32[2]
        return y = %11, z = %12
        """,
        """
        %0 = Relu(x) : f32[2]
        %1 = Multiply(%0, a) : f32[2]
        %2 = Add(x, %1) : f32[2]
        %3 = Stack(b, c, d) : f32[3, 2]
        %4 = Scan(%2, %3) {consts=0, carries=1, length=3} : f32[2]
            with block(a0: f32[2], a1: f32[2]) {
          %0 = Tanh(a0) : f32[2]
          %1 = Multiply(%0, a1) : f32[2]
          %2 = Add(a0, %1) : f32[2]
          return r0 = %2
        }
        %5 = Tanh(%4) : f32[2]
        return y = %4, z = %5
        """,
    )


def test_an_iteration_in_the_middle_that_differs_parts_two_loops() -> None:
    rolls(
        f"""
        {layers("abc")}
        %6 = Multiply(%5, d) : f32[2]
        %7 = Relu(%6) : f32[2]
        {layers("efg", "%7", 8)}
        return y = %13
        """,
        f"""
        %0 = Stack(a, b, c) : f32[3, 2]
        %1 = Scan(x, %0) {{consts=0, carries=1, length=3}} : f32[2] {LAYER}
        %2 = Multiply(%1, d) : f32[2]
        %3 = Relu(%2) : f32[2]
        %4 = Stack(e, f, g) : f32[3, 2]
        %5 = Scan(%3, %4) {{consts=0, carries=1, length=3}} : f32[2] {LAYER}
        return y = %5
        """,
    )


def test_a_kind_that_changes_for_good_makes_two_loops() -> None:
    """The product between them could belong to either loop."""
    before = f"{layers('aaa')}\n{layers('bbb', '%5', 6, 'Relu')}\nreturn y = %11"
    assert loops(program(text(before))) == [(3, 2), (3, 2)]


def test_an_inner_value_that_is_fed_cuts_the_chain() -> None:
    """The feed z replaces %4, so there are two chains."""
    rolls(
        f"""
        {layers("ab")}
        %4 = Multiply(%3, c) : f32[2]
        {layers("defg", "z", 5)}
        return y = %12, cut = %4
        """,
        f"""
        {layers("ab")}
        %4 = Multiply(%3, c) : f32[2]
        %5 = Stack(d, e, f, g) : f32[4, 2]
        %6 = Scan(z, %5) {{consts=0, carries=1, length=4}} : f32[2] {LAYER}
        return y = %6, cut = %4
        """,
    )


def test_a_value_fed_in_the_middle_leaves_a_loop_on_either_side() -> None:
    before = f"{layers('abc')}\n{layers('defg', 'z', 6)}\nreturn y = %13, before = %5"
    assert loops(program(text(before))) == [(3, 2), (4, 2)]


def test_layers_outside_that_are_more_than_half_as_many_leave_no_loop() -> None:
    """The kernels of a layer are compiled for the two outside layers anyway."""
    cut = f"{layers('ab')}\n%4 = Multiply(%3, c) : f32[2]"
    assert loops(program(text(f"{cut}\n{layers('defg', 'z', 5)}\nreturn y = %12, cut = %4"))) == [
        (4, 2)
    ]
    stays(f"{cut}\n{layers('def', 'z', 5)}\nreturn y = %10, cut = %4")


def test_what_goes_back_three_iterations_stays_flat() -> None:
    stays(
        """
        %0 = Add(x, y) : f32[2]
        %1 = Add(%0, z) : f32[2]
        %2 = Add(%1, x) : f32[2]
        %3 = Add(%2, %0) : f32[2]
        %4 = Add(%3, %1) : f32[2]
        return y = %4
        """
    )


CHAIN = f"{layers('abcd')}\nreturn y = %7"


def test_too_few_iterations_nodes_or_elements_are_not_worth_a_loop() -> None:
    """Four iterations of two nodes with two elements each."""
    for worth in (ROLL, RollRepeats(4, 6, 4)):
        assert loops(program(text(CHAIN)), worth) == [(4, 2)]
    for not_worth in (RollRepeats(5, 6, 4), RollRepeats(4, 7, 4), RollRepeats(4, 6, 5)):
        stays(CHAIN, not_worth)
    stays(CHAIN, RollRepeats())


@pytest.mark.parametrize("place", [0, 1, 7])
def test_a_node_on_another_device_is_no_part_of_an_iteration(place: int) -> None:
    lines = CHAIN.splitlines()
    lines[place] += " on /device:GPU:1"
    rolled = ROLL.run(program(text("\n".join(lines)))).program
    assert [node.device for node in rolled.nodes].count("/device:GPU:1") == 1
    scans = [node for node in rolled.nodes if node.op.name == "Scan"]
    assert [node.attrs["length"] for node in scans] == [3]
    assert not any(inner.device for scan in scans for inner in scan.regions[0].nodes)


@pytest.mark.parametrize(("shown", "rolled"), [([0], [(3, 2)]), ([1], []), ([0, 1, 2, 3], [])])
def test_nodes_with_effects_are_never_rolled(
    shown: list[int], rolled: list[tuple[int, int]]
) -> None:
    """Nodes after them or between them may be rolled."""
    start = program(text(CHAIN))
    shows = replace(start.nodes[1].op, effects=Effects.HOST)
    nodes = [
        node.replace(op=shows) if i % 2 and i // 2 in shown else node
        for i, node in enumerate(start.nodes)
    ]
    before = start.replace(nodes=tuple(nodes))
    assert loops(before) == rolled
    after = ROLL.run(before).program
    assert [node.op for node in after.nodes].count(shows) == len(shown)


def test_iterations_that_do_not_need_each_other_are_left_to_group_alike() -> None:
    nodes = [line for i, w in enumerate("abcdef") for line in layers(w, "x", 2 * i).splitlines()]
    stays("\n".join([*nodes, "return a = %1, b = %3, c = %5, d = %7, e = %9, f = %11"]))


def test_iterations_that_begin_in_the_middle_do_not_need_each_other_for_that() -> None:
    """From the first Tanh to the last product, three iterations carry the product."""
    stays(
        """
        %0 = Tanh(x) : f32[2]
        %1 = Square(%0) : f32[2]
        %2 = Multiply(y, a) : f32[2]
        %3 = Tanh(%2) : f32[2]
        %4 = Square(%3) : f32[2]
        %5 = Multiply(y, b) : f32[2]
        %6 = Tanh(%5) : f32[2]
        %7 = Square(%6) : f32[2]
        %8 = Multiply(y, c) : f32[2]
        return a = %1, b = %4, c = %7, d = %8
        """
    )


def test_a_sum_that_grows_from_iteration_to_iteration_makes_no_loop() -> None:
    """A norm over many parameters is such a sum: one node of four needs the previous iteration."""
    nodes, total = [], "x"
    for i, w in enumerate("abcdef"):
        p = 4 * i
        nodes += [
            f"%{p} = Multiply({w}, y) : f32[2]",
            f"%{p + 1} = Tanh(%{p}) : f32[2]",
            f"%{p + 2} = Multiply(%{p + 1}, %{p + 1}) : f32[2]",
            f"%{p + 3} = Add({total}, %{p + 2}) : f32[2]",
        ]
        total = f"%{p + 3}"
    stays("\n".join([*nodes, f"return norm = {total}"]))


def test_work_counts_as_well_as_nodes() -> None:
    """One node of five needs the previous iteration, but does most of the work: so it is in the
    backward pass of layers whose activations have long derivatives."""
    inputs = ", ".join(f"{name}: state f32[8, 8]" for name in "abcdef")
    nodes, last = [], "x"
    for i, w in enumerate("abcdef"):
        p = 5 * i
        nodes += [
            f"%{p} = Tanh({w}) : f32[8, 8]",
            f"%{p + 1} = Sin(%{p}) : f32[8, 8]",
            f"%{p + 2} = Tanh(%{p + 1}) : f32[8, 8]",
            f"%{p + 3} = Cos(%{p + 2}) : f32[8, 8]",
            f"%{p + 4} = MatMul({last}, %{p + 3}) : f32[8, 8]",
        ]
        last = f"%{p + 4}"
    body = "\n".join(f"  {node}" for node in nodes)
    chain = f"program p(x: f32[8, 8], {inputs}) {{\n{body}\n  return y = {last}\n}}"
    assert loops(program(chain)) == [(6, 5)]
    assert loops(program(chain.replace("MatMul", "Add"))) == []
