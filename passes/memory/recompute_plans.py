"""Plans for a pair of loops: which values the backward loop reads from stacks, and which it
recomputes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from graphc.errors import PassError
from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor
from graphc.passes.memory.closures import cheapest
from graphc.passes.memory.loop_pairs import LoopPair

_MANY = 60  # nodes of a body above which only the best plans are looked for
_ENOUGH = 40  # best plans


@dataclass(frozen=True)
class Plan:
    """One way to run a pair of loops.

    Attributes:
        saved: the values of the forward body, including carries, that are stacked.
        segment: the number of iterations per segment. The forward iterations of a segment run
            again, from the carries saved at its start, before its backward iterations. None: each
            iteration is recomputed separately.
        bytes: the bytes stored between the forward and the backward loop, and within a segment.
        cost: the cost of the recomputation, in floating-point operations or their equivalent.
    """

    saved: frozenset[Tensor] = field(repr=False)
    segment: int | None
    bytes: int
    cost: int


class Again(NamedTuple):
    """A recomputation: the nodes, in order, and the values that they and the backward body start
    from."""

    nodes: list[Node]
    begin: frozenset[Tensor]


def again(pair: LoopPair, saved: frozenset[Tensor], wanted: Iterable[Tensor]) -> Again | None:
    """Returns the nodes that compute the values `wanted` from saved values and inputs of the
    forward body. Returns None if they need a carry that is not saved, or a node that must not run
    twice."""
    inputs = {*pair.inner.consts, *pair.inner.xs}
    needed: set[Node] = set()
    begin: set[Tensor] = set()
    waiting = list(wanted)
    seen: set[Tensor] = set()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if tensor in saved or tensor in inputs:
            begin.add(tensor)
            continue
        node = pair.made.get(tensor)
        if node is None or pair.costs[node] is None:
            return None
        if node not in needed:
            needed.add(node)
            waiting.extend(node.inputs)
    return Again([node for node in pair.nodes if node in needed], frozenset(begin))


def plans(pair: LoopPair) -> list[Plan]:
    """Ways to run the pair, from the one that recomputes nothing to the one that needs the fewest
    bytes. Each needs fewer bytes, and more time, than the one before."""
    flat = _best(pair)
    if len(pair.nodes) <= _MANY:
        flat += [plan for each in flat for plan in _with_more(pair, each)]
    found = sorted([*flat, *_segmented(pair, flat)], key=lambda plan: (plan.cost, plan.bytes))
    useful: list[Plan] = []
    for plan in found:
        if not useful or plan.bytes < useful[-1].bytes:
            useful.append(plan)
    return useful


def _plan(pair: LoopPair, saved: Iterable[Tensor]) -> Plan | None:
    found = again(pair, frozenset(saved), pair.taken.values())
    if found is None:
        return None
    cost = sum(pair.costs[node] or 0 for node in found.nodes)
    inputs = {*pair.inner.consts, *pair.inner.xs}
    return Plan(found.begin - inputs, None, sum(pair.weights[t] for t in found.begin), cost)


# -- the best plans --------------------------------------------------------------------------


def _best(pair: LoopPair) -> list[Plan]:
    """All plans that are optimal for some price per byte.

    For one price, the best plan is a minimal cut. A third plan lies between two plans exactly if
    there is one at the price at which the two cost the same.
    """
    most = sum(cost or 0 for cost in pair.costs.values()) + 1
    first, last = at_price(pair, 0, 1), at_price(pair, most, 1)
    found = [first]
    waiting = [(first, last)]
    while waiting and len(found) < _ENOUGH:
        waiting.sort(key=lambda ends: ends[0].bytes - ends[1].bytes)
        a, b = waiting.pop()  # the two that are farthest apart
        price, per = b.cost - a.cost, a.bytes - b.bytes
        if price <= 0 or per <= 0:
            continue
        between = at_price(pair, price, per)
        if per * between.cost + price * between.bytes < per * a.cost + price * a.bytes:
            waiting += [(a, between), (between, b)]
            found.append(between)
    return [*found, last] if last.bytes < first.bytes else found


def at_price(pair: LoopPair, price: int, per: int) -> Plan:
    """The best plan if `per` bytes cost `price`.

    There are two kinds of choices. Having a value in the backward iteration costs its bytes.
    Computing a node there saves the bytes of its results, and requires having its results and
    operands.
    """
    values = list(pair.weights)
    number = {tensor: i for i, tensor in enumerate(values)}
    costs = [price * pair.weights[tensor] for tensor in values]
    implied: list[tuple[int, int]] = []
    choices: dict[Node, int] = {}
    for node in pair.nodes:
        cost = pair.costs[node]
        if cost is None:
            continue
        choices[node] = choice = len(costs)
        costs.append(per * cost - sum(costs[number[t]] for t in node.outputs))
        implied += [(choice, number[t]) for t in (*node.inputs, *node.outputs)]
    chosen = cheapest(costs, implied, [number[t] for t in pair.taken.values()])
    computed = {t for node, i in choices.items() if i in chosen for t in node.outputs}
    saved = [values[i] for i in chosen if i < len(values)]
    plan = _plan(pair, [t for t in saved if t not in computed])
    if plan is None:
        raise PassError(f"{pair.backward.name!r} cannot run from the saved values")
    return plan


def _with_more(pair: LoopPair, plan: Plan) -> Iterator[Plan]:
    """Plans that each save one more value than the plan before: the most useful one per byte."""
    while True:
        found = again(pair, plan.saved, pair.taken.values())
        made = [] if found is None else [t for node in found.nodes for t in node.outputs]
        more = [_plan(pair, (*plan.saved, tensor)) for tensor in made]
        better = [p for p in more if p is not None and p.cost < plan.cost]
        if not better:
            return
        plan = min(better, key=lambda p: ((p.bytes - plan.bytes) / (plan.cost - p.cost), p.bytes))
        yield plan


# -- several iterations at once --------------------------------------------------------------


def _segmented(pair: LoopPair, flat: Iterable[Plan]) -> Iterator[Plan]:
    """Each plan within segments. For n iterations in segments of m, n / m carries are stored, and m
    times the values that the plan saves. Source: A. Griewank, Achieving logarithmic growth of
    temporal and spatial complexity in reverse automatic differentiation, 1992; T. Chen et al.,
    Training deep nets with sublinear memory cost, 2016."""
    length = pair.length
    results = pair.body.output_tensors()[: len(pair.inner.carries)]
    carried = sum(map(bytes_of, pair.inner.carries))
    inputs = {*pair.inner.consts, *pair.inner.xs}
    for plan in flat:
        run = again(pair, frozenset(pair.inner.carries), (*results, *plan.saved))
        if run is None:
            continue
        fixed = sum(pair.weights[t] for t in inputs if t in run.begin)
        once = sum(pair.costs[node] or 0 for node in run.nodes)
        each = sum(map(bytes_of, plan.saved))
        for turns in range(2, length // 2 + 1):
            if length % turns == 0:
                stacked = length // turns * carried + turns * each
                yield Plan(plan.saved, turns, fixed + stacked, plan.cost + once)
