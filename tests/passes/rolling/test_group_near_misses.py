"""GroupAlike: nodes that do not change, and how far groups are followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphc.ir.opdef import Effects
from graphc.passes.rolling.group_alike import GroupAlike
from graphc.passes.simplify.prune import Prune
from tests.passes.check import check_stays, program

GROUP = GroupAlike()
WEIGHTS = "w0: state f32[2], w1: state f32[2], w2: state f32[2]"

STAYS = {
    "fewer than three": """
        program p(dw: f32[2, 2], w0: state f32[2], w1: state f32[2]) {
          %0, %1 = Unstack(dw) : f32[2], f32[2]
          %2 = Subtract(w0, %0) : f32[2]
          %3 = Subtract(w1, %1) : f32[2]
          return state w0 = %2, state w1 = %3
        }
    """,
    "state of which a part lies in another stack": f"""
        program p(dw: f32[3, 2], {WEIGHTS}, v: state f32[2]) {{
          %0 = Stack(w0, w1, w2) : f32[3, 2]
          %1, %2, %3 = Unstack(dw) : f32[2], f32[2], f32[2]
          %4 = Subtract(w1, %1) : f32[2]
          %5 = Subtract(w2, %2) : f32[2]
          %6 = Subtract(v, %3) : f32[2]
          return stack = %0, a = %4, b = %5, c = %6
        }}
    """,
    "state in two orders at once": f"""
        program p(c: bool[3, 2], {WEIGHTS}) {{
          %0, %1, %2 = Unstack(c) : bool[2], bool[2], bool[2]
          %3 = Where(%0, w0, w1) : f32[2]
          %4 = Where(%1, w1, w2) : f32[2]
          %5 = Where(%2, w2, w0) : f32[2]
          return a = %3, b = %4, c = %5
        }}
    """,
    "feeds, which would have to be copied": """
        program p(dw: f32[3, 2], x: f32[2], y: f32[2], z: f32[2]) {
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Subtract(x, %0) : f32[2]
          %4 = Subtract(y, %1) : f32[2]
          %5 = Subtract(z, %2) : f32[2]
          return a = %3, b = %4, c = %5
        }
    """,
    "one of another kind": f"""
        program p(dw: f32[3, 2], {WEIGHTS}) {{
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Subtract(w0, %0) : f32[2]
          %4 = Add(w1, %1) : f32[2]
          %5 = Subtract(w2, %2) : f32[2]
          return a = %3, b = %4, c = %5
        }}
    """,
    "one the other way round": f"""
        program p(dw: f32[3, 2], {WEIGHTS}) {{
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Subtract(w0, %0) : f32[2]
          %4 = Subtract(%1, w1) : f32[2]
          %5 = Subtract(w2, %2) : f32[2]
          return a = %3, b = %4, c = %5
        }}
    """,
    "on different devices": """
        program p(dw: f32[3, 2]) {
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Tanh(%0) : f32[2] on /device:GPU:0
          %4 = Tanh(%1) : f32[2] on /device:GPU:1
          %5 = Tanh(%2) : f32[2] on /device:GPU:0
          return a = %3, b = %4, c = %5
        }
    """,
    "slices along another axis": """
        program p(dw: f32[2, 3]) {
          %0, %1, %2 = Unstack(dw) {axis=1} : f32[2], f32[2], f32[2]
          %3 = Tanh(%0) : f32[2]
          %4 = Tanh(%1) : f32[2]
          %5 = Tanh(%2) : f32[2]
          return a = %3, b = %4, c = %5
        }
    """,
    "loops": """
        program p(dw: f32[3, 2], x: f32[2], y: f32[2], z: f32[2]) {
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Scan(%0, dw) {consts=0, carries=1, length=3} : f32[2] with s(a: f32[2], b: f32[2]) {
            %0 = Add(a, b) : f32[2]
            return r = %0
          }
          %4 = Scan(%1, dw) {consts=0, carries=1, length=3} : f32[2] with s(a: f32[2], b: f32[2]) {
            %0 = Add(a, b) : f32[2]
            return r = %0
          }
          %5 = Scan(%2, dw) {consts=0, carries=1, length=3} : f32[2] with s(a: f32[2], b: f32[2]) {
            %0 = Add(a, b) : f32[2]
            return r = %0
          }
          return a = %3, b = %4, c = %5
        }
    """,
    "made by nodes of different kinds": f"""
        program p({WEIGHTS}) {{
          %0 = Tanh(w0) : f32[2]
          %1 = Tanh(w1) : f32[2]
          %2 = Sin(w2) : f32[2]
          %3 = Stack(%0, %1, %2) : f32[3, 2]
          return stack = %3
        }}
    """,
    "made by one node twice": """
        program p(x: f32[2], y: f32[2]) {
          %0 = Stack(x, x, y) : f32[3, 2]
          %1 = Tanh(x) : f32[2]
          %2 = Tanh(y) : f32[2]
          %3 = Stack(%1, %1, %2) : f32[3, 2]
          return before = %0, after = %3
        }
    """,
    "made of results at different places": """
        program p(a: state f32[4], b: state f32[4], c: state f32[4]) {
          %0, %1 = Split(a) {axis=0, sizes=[2, 2]} : f32[2], f32[2]
          %2, %3 = Split(b) {axis=0, sizes=[2, 2]} : f32[2], f32[2]
          %4, %5 = Split(c) {axis=0, sizes=[2, 2]} : f32[2], f32[2]
          %6 = Tanh(%0) : f32[2]
          %7 = Tanh(%3) : f32[2]
          %8 = Tanh(%4) : f32[2]
          %9 = Stack(%6, %7, %8) : f32[3, 2]
          return stack = %9
        }
    """,
    "of operands that are all the same": """
        program p(x: f32[2], y: f32[2]) {
          %0 = Add(x, y) : f32[2]
          %1 = Add(x, y) : f32[2]
          %2 = Add(x, y) : f32[2]
          %3 = Stack(%0, %1, %2) : f32[3, 2]
          return stack = %3
        }
    """,
    "steps that need each other, one of which is in two rows": """
        program p(x: f32[2]) {
          %0 = Tanh(x) : f32[2]
          %1 = Tanh(%0) : f32[2]
          %2 = Tanh(%0) : f32[2]
          %3 = Tanh(%1) : f32[2]
          %4 = Tanh(%3) : f32[2]
          %5 = Stack(x, %0, %1) : f32[3, 2]
          %6 = Stack(%1, %3, %4) : f32[3, 2]
          return first = %5, second = %6, other = %2
        }
    """,
    "stacks of stacks": """
        program p(dw: f32[3, 2], x: f32[2]) {
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Stack(%0, x) : f32[2, 2]
          %4 = Stack(%1, x) : f32[2, 2]
          %5 = Stack(%2, x) : f32[2, 2]
          return a = %3, b = %4, c = %5
        }
    """,
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    check_stays(GROUP, STAYS[name])


def test_nodes_with_effects_stay() -> None:
    start = program(
        """
        program p(dw: f32[3, 2]) {
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Tanh(%0) : f32[2]
          %4 = Tanh(%1) : f32[2]
          %5 = Tanh(%2) : f32[2]
          return a = %3, b = %4, c = %5
        }
        """
    )
    assert GROUP.run(start).changed == 1
    first, *others = start.nodes
    shows = replace(others[0].op, effects=Effects.HOST)
    others = [node.replace(op=shows) for node in others]
    assert GROUP.run(start.replace(nodes=(first, *others))).changed == 0


def test_each_device_has_a_map_of_its_own() -> None:
    start = program(
        """
        program p(dw: f32[3, 2], dv: f32[3, 2]) {
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Square(%0) : f32[2] on /device:GPU:0
          %4 = Square(%1) : f32[2] on /device:GPU:0
          %5 = Square(%2) : f32[2] on /device:GPU:0
          %6, %7, %8 = Unstack(dv) : f32[2], f32[2], f32[2]
          %9 = Square(%6) : f32[2] on /device:GPU:1
          %10 = Square(%7) : f32[2] on /device:GPU:1
          %11 = Square(%8) : f32[2] on /device:GPU:1
          return a = %3, b = %4, c = %5, d = %9, e = %10, f = %11
        }
        """
    )
    grouped = Prune().run(GROUP.run(start).program).program
    maps = [node for node in grouped.nodes if node.op.name == "Map"]
    assert [node.device for node in maps] == ["/device:GPU:0", "/device:GPU:1"]
    assert [[n.device for n in node.regions[0].nodes] for node in maps] == [
        ["/device:GPU:0"],
        ["/device:GPU:1"],
    ]


def columns(depth: int, first: str, last: str) -> str:
    """Three parallel chains of Tanh, from w0, w1 and w2 or from the results of `first`."""
    row = ["w0", "w1", "w2"] if not first else ["%a", "%b", "%c"]
    lines = [first]
    for place in range(depth):
        new = [f"%n{place}{letter}" for letter in "abc"]
        lines += [f"{n} = Tanh({t}) : f32[2]" for n, t in zip(new, row, strict=True)]
        row = new
    nodes = "\n".join([*lines, last.format(*row)])
    return f"program p(x: f32[3, 2], {WEIGHTS}) {{\n{nodes}\n}}"


def test_from_a_stack_on_rows_are_followed_to_any_depth() -> None:
    first, last = "%a, %b, %c = Unstack(x) : f32[2], f32[2], f32[2]", "return a = {0}, b = {1}"
    assert GROUP.run(program(columns(600, first, last))).changed == 600


def test_back_from_a_stack_they_are_followed_a_hundred_operands() -> None:
    last = "%s = Stack({0}, {1}, {2}) : f32[3, 2]\nreturn a = %s"
    assert GROUP.run(program(columns(100, "", last))).changed == 100
    check_stays(GROUP, columns(600, "", last))
