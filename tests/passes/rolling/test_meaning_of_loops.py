"""Rolling and grouping preserve the results of generated programs with repeated blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphc.ir.compare import difference
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ir.rewrite import clone
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.passes.core.base import Pass
from graphc.passes.core.validate import check_meaning
from graphc.passes.rolling.group_alike import GroupAlike
from graphc.passes.rolling.roll_repeats import RollRepeats
from graphc.passes.simplify.eliminate_common import EliminateCommon
from graphc.passes.simplify.prune import Prune
from tests.passes.evaluate import evaluate
from tests.passes.generate_repeated import repeated

ROLL = RollRepeats(turns=2, saved=1, work=0)
GROUP = GroupAlike(fewest=2)
WAYS: tuple[tuple[Pass, ...], ...] = (
    (ROLL, GROUP, Prune()),
    (Prune(), EliminateCommon(), ROLL, GROUP, Prune()),
    (GROUP, Prune()),
)
EXAMPLES = 200  # for manual runs: thousands

# Cases that must occur among the examples, so that every path of the passes is tested.
PATHS = (
    "a loop", "a loop in reverse", "a loop that shares a value", "a loop of two carries",
    "a loop that stacks its carry", "a loop that holds a carry for two turns",
    "a loop in a loop", "a node of two results in a loop",
    "a stack", "an unstack", "a part of a stack", "a stack turned around",
    "a map", "two maps", "a map that shares a value", "a node of two results in a map",
)  # fmt: skip


def after(program: Program, *passes: Pass, seed: int) -> Program:
    """Runs the passes, and checks after each that the program is valid and computes the same."""
    for a_pass in passes:
        before = program
        program, changed = a_pass.run(before)
        verify(program, "functional")
        assert (program is before) == (changed == 0)
        wrong = check_meaning(before, program, evaluate, seed)
        assert wrong is None, (
            f"{a_pass.name}: {wrong}\n{print_program(before)}\n{print_program(program)}"
        )
    return program


def paths(program: Program) -> Iterator[str]:
    """Which of `PATHS` the passes took, derived from the resulting program."""
    kinds = Counter(node.op.name for node in program.nodes)
    names = {
        "Stack": "a stack", "Unstack": "an unstack", "Slice": "a part of a stack",
        "Reverse": "a stack turned around", "Map": "a map",
    }  # fmt: skip
    yield from (names[kind] for kind in kinds if kind in names)
    if kinds["Map"] > 1:
        yield "two maps"
    for node in program.nodes:
        if node.op.name == "Map":
            if len(node.inputs) > node.attrs["mapped"]:
                yield "a map that shares a value"
            if any(inner.op.name == "Split" for inner in node.regions[0].nodes):
                yield "a node of two results in a map"
        elif node.op.name == "Scan" and node.regions[0].name != "scan_body":
            yield from paths_of_loop(node)


def paths_of_loop(node: Node) -> Iterator[str]:
    body, carries = node.regions[0], node.attrs["carries"]
    yield "a loop"
    if node.attrs["reverse"]:
        yield "a loop in reverse"
    if node.attrs["consts"]:
        yield "a loop that shares a value"
    if carries > 1:
        yield "a loop of two carries"
    if not set(body.input_tensors()).isdisjoint(body.output_tensors()[carries:]):
        yield "a loop that stacks its carry"
    entering = body.input_tensors()[node.attrs["consts"] :][:carries]
    if not set(entering).isdisjoint(body.output_tensors()[:carries]):
        yield "a loop that holds a carry for two turns"
    if any(inner.op.name == "Scan" for inner in body.nodes):
        yield "a loop in a loop"
    if any(inner.op.name == "Split" for inner in body.nodes):
        yield "a node of two results in a loop"


def test_rolling_and_grouping_preserve_meaning() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(before=repeated(), seed=st.integers(0, 3))
    def run(before: Program, seed: int) -> None:
        for way in WAYS:
            done = after(before, *way, seed=seed)
            seen.update(set(paths(done)))
            again = clone(before)
            for a_pass in way:
                again = a_pass.run(again).program
            assert difference(done, again) is None, "not the same each time"

    run()
    assert seen.keys() >= set(PATHS), set(PATHS) - seen.keys()
