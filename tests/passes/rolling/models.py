"""Helpers for tests of rolling: the nodes before and after, for programs with the same
inputs."""

from __future__ import annotations

from textwrap import dedent, indent

from graphc.ir.program import Program
from graphc.passes.core.base import Pass
from graphc.passes.rolling.roll_repeats import RollRepeats
from tests.passes.check import check, check_stays

ROLL = RollRepeats(turns=3, saved=4, work=0)

FEEDS = ", ".join(f"{name}: f32[2]" for name in "xyz")
STATE = ", ".join(f"{name}: state f32[2]" for name in "abcdefg")


def text(nodes: str) -> str:
    """A program of these nodes; feeds x, y, z and state a to g are f32[2]."""
    return f"program p({FEEDS}, {STATE}) {{\n{indent(dedent(nodes).strip(), '  ')}\n}}"


def rolls(before: str, after: str, a_pass: Pass = ROLL) -> None:
    """Checks that the pass turns the nodes `before` into the nodes `after`."""
    check(a_pass, text(before), text(after))


def stays(nodes: str, a_pass: Pass = ROLL) -> None:
    """Checks that the pass changes nothing."""
    check_stays(a_pass, text(nodes))


def layers(weights: str, x: str = "x", start: int = 0, activation: str = "Tanh") -> str:
    """`x = tanh(x * w)` for each of the weights: two nodes each, numbered from `start` on."""
    lines = []
    for number, weight in enumerate(weights):
        place = start + 2 * number
        lines.append(f"%{place} = Multiply({x}, {weight}) : f32[2]")
        lines.append(f"%{place + 1} = {activation}(%{place}) : f32[2]")
        x = f"%{place + 1}"
    return "\n".join(lines)


# The body of a loop over the layers that `layers` writes.
LAYER = """with layer(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          return r0 = %1
        }"""


def loops(before: Program, a_pass: Pass = ROLL) -> list[tuple[int, int]]:
    """(iterations, nodes of an iteration) of each loop in the rolled program."""
    rolled = a_pass.run(before).program
    scans = [node for node in rolled.nodes if node.op.name == "Scan"]
    return [(node.attrs["length"], len(node.regions[0].nodes)) for node in scans]
