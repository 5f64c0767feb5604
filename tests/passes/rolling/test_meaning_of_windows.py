"""JoinWindows, and rolling after it, preserve the results of generated unrolled steps."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphc.ir.compare import difference
from graphc.ir.program import Program
from graphc.ir.rewrite import clone
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.passes.core.validate import random_inputs
from graphc.passes.rolling.group_alike import GroupAlike
from graphc.passes.rolling.join_windows import JoinWindows
from graphc.passes.rolling.roll_repeats import RollRepeats
from graphc.passes.simplify.prune import Prune
from tests.passes.evaluate import evaluate
from tests.passes.generate_windows import windowed

WAY = (
    JoinWindows(fewest=2),
    Prune(),
    RollRepeats(turns=2, saved=1, work=0),
    GroupAlike(fewest=2),
    Prune(),
)
EXAMPLES = 300  # for manual runs: thousands

# Cases that must occur among the examples.
PATHS = {
    "Unstack", "Stack", "a loop", "a loop in reverse", "a stack taken apart", "a stack joined",
    "sums that stay",
}  # fmt: skip


def paths(joined: Program, done: Program) -> set[str]:
    kinds = Counter(node.op.name for node in joined.nodes)
    found = {name for name in ("Unstack", "Stack") if kinds[name]}
    if kinds["Pad"] > 2:
        found.add("sums that stay")
    scans = [node for node in done.nodes if node.op.name == "Scan"]
    if scans:
        found.add("a loop")
        left = Counter(node.op.name for node in done.nodes)
        if kinds["Unstack"] > left["Unstack"]:
            found.add("a stack taken apart")
        if kinds["Stack"] > left["Stack"]:
            found.add("a stack joined")
    if any(node.attrs["reverse"] for node in scans):
        found.add("a loop in reverse")
    return found


def test_windows_preserve_meaning_exactly() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(before=windowed(), seed=st.integers(0, 3))
    def run(before: Program, seed: int) -> None:
        inputs = random_inputs(before, seed)
        wanted = evaluate(before, inputs)
        program, again = before, clone(before)
        joined = before
        for a_pass in WAY:
            program, again = a_pass.run(program).program, a_pass.run(again).program
            verify(program, "functional")
            for want, got in zip(wanted, evaluate(program, inputs), strict=True):
                assert np.array_equal(np.asarray(want), np.asarray(got)), (
                    f"{a_pass.name}\n{print_program(before)}\n{print_program(program)}"
                )
            joined = program if isinstance(a_pass, JoinWindows) else joined
        assert difference(program, again) is None, "not the same each time"
        seen.update(paths(joined, program))

    run()
    assert seen.keys() >= PATHS, PATHS - seen.keys()
