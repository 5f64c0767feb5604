"""The plans for a pair of loops: the best for every price of a byte, compared with all plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, combinations

from hypothesis import HealthCheck, given, settings

from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.passes.memory.loop_pairs import LoopPair, loop_pairs
from graphc.passes.memory.recompute_plans import again, plans
from graphc.passes.simplify.prune import Prune
from tests.passes import generate_pairs
from tests.passes.check import program

MANY = 9  # the number of values of a body for which all subsets are tried


def pairs_of(text: str) -> list[LoopPair]:
    return loop_pairs(program(text))


def all_ways(pair: LoopPair) -> Iterator[tuple[int, int]]:
    """(bytes, cost) of every possible set of saved values."""
    values = [*pair.inner.carries, *pair.made]
    for saved in subsets(values):
        found = again(pair, frozenset(saved), pair.taken.values())
        if found is not None:
            cost = sum(pair.costs[node] or 0 for node in found.nodes)
            yield sum(pair.weights[t] for t in found.begin), cost


def subsets(values: list[Tensor]) -> Iterable[tuple[Tensor, ...]]:
    return chain.from_iterable(combinations(values, n) for n in range(len(values) + 1))


def test_no_way_is_better_than_the_best_plan_at_any_price() -> None:
    tried = 0

    @settings(
        max_examples=200,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(start=generate_pairs.loop_pairs())
    def run(start: Program) -> None:
        nonlocal tried
        for pair in loop_pairs(Prune().run(start).program):
            if len(pair.made) + len(pair.inner.carries) > MANY:
                continue
            tried += 1
            ours = [(plan.bytes, plan.cost) for plan in plans(pair)]
            assert ours == sorted(ours, reverse=True)
            assert [cost for _, cost in ours] == sorted(cost for _, cost in ours)
            for price in (0, 1, 3, 10, 30, 100, 1000, 10**6):
                least = min(price * size + cost for size, cost in all_ways(pair))
                assert min(price * size + cost for size, cost in ours) <= least

    run()
    assert tried > 40


EXCHANGE = """
program p(x: f32[64], dy: f32[64]) {
  %%0, %%1 = Scan(x) {consts=0, carries=1, length=7} : f32[64], f32[7, 64]
      with layer(a0: f32[64]) {
    %%0 = %s : f32[64]
    %%1 = Tanh(%%0) : f32[64]
    return r0 = %%1, r1 = %%0
  }
  %%2 = Scan(dy, %%1) {consts=0, carries=1, length=7, reverse=true} : f32[64]
      with layer_grad(a0: f32[64], a1: f32[64]) {
    %%0 = Multiply(a0, a1) : f32[64]
    return r0 = %%0
  }
  return x = %%2
}
"""


def test_what_replicas_exchange_is_not_computed_again() -> None:
    """One more collective in the backward pass would cost more than the bytes that it saves."""
    (local,) = pairs_of(EXCHANGE % "Sin(a0)")
    (exchanged,) = pairs_of(EXCHANGE % 'AllReduce(a0) {op="sum"}')
    assert next(iter(local.costs.values())) is not None
    assert next(iter(exchanged.costs.values())) is None
    assert [plan.segment for plan in plans(exchanged)] == [None]


def test_loops_the_same_way_are_no_pair() -> None:
    assert len(pairs_of(EXCHANGE % "Sin(a0)")) == 1
    assert pairs_of((EXCHANGE % "Sin(a0)").replace(", reverse=true", "")) == []
