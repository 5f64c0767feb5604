"""Recomputation preserves the results of generated programs, with every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphc.ir.program import Program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.passes.core.peak import peak
from graphc.passes.core.validate import check_meaning
from graphc.passes.memory.loop_pairs import LoopPair, loop_pairs
from graphc.passes.memory.recompute import Recompute, carried_out
from graphc.passes.memory.recompute_plans import Plan, plans
from graphc.passes.memory.stack_less import StackLess
from graphc.passes.simplify.prune import Prune
from tests.passes import generate_pairs
from tests.passes.evaluate import evaluate

EXAMPLES = 200  # for manual runs: thousands

# Cases that must occur among the examples.
PATHS = {
    "nothing again", "something again", "a carry saved", "no value saved", "segments",
    "segments that save a value", "stacked less", "three plans",
}  # fmt: skip


def ways(pair: LoopPair) -> Iterator[Plan]:
    """Every possible plan, for single iterations and for segments of every length."""
    for plan in plans(pair):
        for turns in (None, *range(2, pair.length // 2 + 1)):
            if turns is None or pair.length % turns == 0:
                yield replace(plan, segment=turns, bytes=0)


def paths(pair: LoopPair, plan: Plan) -> Iterator[str]:
    yield "something again" if plan.cost else "nothing again"
    if not plan.saved.isdisjoint(pair.inner.carries):
        yield "a carry saved"
    if plan.saved.isdisjoint(pair.made):
        yield "no value saved"
    elif plan.segment is not None:
        yield "segments that save a value"
    if plan.segment is not None:
        yield "segments"


def same(before: Program, after: Program, seed: int) -> None:
    verify(after, "functional")
    wrong = check_meaning(before, after, evaluate, seed)
    assert wrong is None, f"{wrong}\n{print_program(before)}\n{print_program(after)}"


def test_recomputing_preserves_meaning() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(start=generate_pairs.loop_pairs(), share=st.floats(0, 1), seed=st.integers(0, 3))
    def run(start: Program, share: float, seed: int) -> None:
        before = Prune().run(start).program
        for pair in loop_pairs(before):
            if len(plans(pair)) > 2:
                seen["three plans"] += 1
            for plan in ways(pair):
                same(before, carried_out(before, {pair: plan}), seed)
                seen.update(paths(pair, plan))
        after, changed = Recompute(int(share * peak(before))).run(before)
        assert (after is before) == (changed == 0)
        assert peak(after) <= peak(before)
        same(before, after, seed)
        for moves in (1, 1000):  # with small costs, as little as possible is stacked
            after, changed = StackLess(moves).run(before)
            assert (after is before) == (changed == 0)
            seen["stacked less"] += changed
            same(before, after, seed)

    run()
    assert seen.keys() >= PATHS, PATHS - seen.keys()
