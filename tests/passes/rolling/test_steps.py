"""RollRepeats: an unrolled recurrence that shares its weights, forward and backward."""

from __future__ import annotations

from graphc.ir.program import Program
from graphc.passes.rolling.roll_repeats import RollRepeats
from graphc.passes.simplify.prune import Prune
from tests.passes.check import program

ROLL = RollRepeats(turns=3, saved=4, work=0)


def steps(size: int, count: int = 10) -> Program:
    """h = tanh(h * w); then, from the last step to the first, g = sin(g * a). The first and the
    last step have no sine."""
    lines, h = [], "x"
    for t in range(count):
        lines.append(f"%a{t} = Multiply({h}, w) : f32[{size}]")
        lines.append(f"%h{t} = Tanh(%a{t}) : f32[{size}]")
        h = f"%h{t}"
    g = "y"
    for t in reversed(range(count)):
        lines.append(f"%b{t} = Multiply({g}, %a{t}) : f32[{size}]")
        g = f"%b{t}"
        if 0 < t < count - 1:
            lines.append(f"%c{t} = Sin({g}) : f32[{size}]")
            g = f"%c{t}"
    nodes = "\n".join(lines)
    return program(
        f"program p(x: f32[{size}], y: f32[{size}], w: state f32[{size}]) {{\n{nodes}\n"
        f"return y = {h}, g = {g}\n}}"
    )


def kinds(before: Program) -> list[str]:
    rolled = Prune().run(ROLL.run(before).program).program
    return [
        f"Scan {node.attrs['length']}" if node.op.name == "Scan" else node.op.name
        for node in rolled.nodes
    ]


def test_the_forward_loop_has_the_steps_that_the_backward_loop_reads() -> None:
    """No stack is sliced: the results of the first and the last step are separate values."""
    step = ["Multiply", "Tanh"]
    found = kinds(steps(1 << 16))
    assert found == [*step, "Scan 8", *step, "Multiply", "Scan 8", "Multiply"]


def test_parts_of_small_stacks_are_copied_and_single_slices_taken() -> None:
    found = kinds(steps(2, 20))
    assert "Scan 20" in found and "Scan 18" in found
    assert "Unstack" not in found  # it would make all twenty slices
    assert found.count("Slice") == 3 and found.count("Reshape") == 2


def test_what_is_computed_of_weights_for_all_steps_comes_before_the_loop() -> None:
    lines, h = ["%w = Exp(w) : f32[2]"], "x"
    for t in range(5):
        lines.append(f"%a{t} = Multiply({h}, %w) : f32[2]")
        if t == 0:
            lines.append("%v = Sin(w) : f32[2]")  # just before its first use
        lines.append(f"%b{t} = Add(%a{t}, %v) : f32[2]")
        h = f"%b{t}"
    nodes = "\n".join(lines)
    before = program(f"program p(x: f32[2], w: state f32[2]) {{\n{nodes}\nreturn y = {h}\n}}")
    assert kinds(before) == ["Exp", "Sin", "Scan 5"]
