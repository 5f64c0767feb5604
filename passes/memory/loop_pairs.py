"""Pairs of loops: a loop, and a loop in the opposite direction that uses the first one's stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure, walk
from graphc.ops.control.bodies import Parts, parts_of
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN
from graphc.ops.structure.collective import EXCHANGES
from graphc.passes.core.costs import node_cost

# How many floating-point operations take as long as moving one byte: from 5 to 100 on CPUs and
# GPUs.
_FLOPS_A_BYTE = 10


@dataclass(frozen=True, eq=False)
class LoopPair:
    """Two `Scan`s of the same length, in opposite directions, as in a training step.

    Attributes:
        forward, backward: the loops.
        alive: values of the program that stay in memory until the backward loop in any case.
    """

    forward: Node
    backward: Node
    alive: frozenset[Tensor] = field(repr=False)

    @property
    def length(self) -> int:
        return int(self.forward.attrs["length"])

    @property
    def body(self) -> Program:
        """The body of the forward loop."""
        return self.forward.regions[0]

    @cached_property
    def outer(self) -> Parts:
        """The operands of the forward loop."""
        return parts_of(self.forward, self.forward.inputs)

    @cached_property
    def inner(self) -> Parts:
        """The inputs of its body."""
        return parts_of(self.forward, self.body.input_tensors())

    @cached_property
    def made(self) -> dict[Tensor, Node]:
        """Maps each value of the forward body to the node that computes it."""
        return self.body.producers()

    @cached_property
    def stacks(self) -> dict[Tensor, Tensor]:
        """Maps each stack that the forward loop returns to the value in its body."""
        view = LoopView.of(self.forward)
        return dict(zip(view.stacks, view.ys, strict=True))

    @cached_property
    def taken(self) -> dict[Tensor, Tensor]:
        """Maps each slice input of the backward body to the value of the forward body that was
        stacked."""
        outside = parts_of(self.backward, self.backward.inputs).xs
        inside = parts_of(self.backward, self.backward.regions[0].input_tensors()).xs
        return {
            inner: self.stacks[outer]
            for inner, outer in zip(inside, outside, strict=True)
            if outer in self.stacks
        }

    @cached_property
    def weights(self) -> dict[Tensor, int]:
        """Maps each value of the forward body to the bytes needed to store it for the backward body
        instead of computing it again there."""
        kept = {value for stack, value in self.stacks.items() if stack in self.alive}
        found: dict[Tensor, int] = {}
        for inside, outside in (
            *zip(self.inner.consts, self.outer.consts, strict=True),
            *zip(self.inner.xs, self.outer.xs, strict=True),
        ):
            found[inside] = 0 if outside in self.alive else bytes_of(outside)
        for tensor in (*self.inner.carries, *self.made):
            found[tensor] = 0 if tensor in kept else self.length * bytes_of(tensor)
        return found

    @cached_property
    def costs(self) -> dict[Node, int | None]:
        """Maps each node of the forward body to the cost of computing it once more in each
        iteration, or to None if it must not run twice."""
        return {node: self.length * cost if (cost := _cost(node)) else cost for node in self.nodes}

    @property
    def nodes(self) -> Sequence[Node]:
        return self.body.nodes

    @cached_property
    def saved_bytes(self) -> int:
        """The bytes of the stacks that are stored only for the backward loop."""
        values = dict.fromkeys(self.taken.values())
        return sum(self.weights[value] for value in values)


def _cost(node: Node) -> int | None:
    effects_or_exchange = not is_pure(node) or any(inner.op in EXCHANGES for inner in walk(node))
    if effects_or_exchange:
        return None
    cost = node_cost(node)
    return 1 + cost.flops + _FLOPS_A_BYTE * cost.bytes


def loop_pairs(program: Program) -> list[LoopPair]:
    """The loop pairs of a bound program, those with the largest stacks first. No loop is in two
    pairs."""
    place = {node: i for i, node in enumerate(program.nodes)}
    producers = program.producers()
    last_use = {tensor: place[users[-1]] for tensor, users in program.users().items()}
    always = {*program.input_tensors(), *program.output_tensors()}
    found: list[LoopPair] = []
    for backward in program.nodes:
        if backward.op is not SCAN:
            continue
        xs = parts_of(backward, backward.inputs).xs
        for forward in dict.fromkeys(producers[x] for x in xs if x in producers):
            if not _are_opposite(forward, backward):
                continue
            at = place[backward]
            operands = (*forward.inputs, *forward.outputs)
            later = {t for t in operands if last_use.get(t, -1) > at}
            own = set(forward.inputs).intersection(backward.inputs)
            alive = frozenset({*always.intersection(operands), *later, *own})
            pair = LoopPair(forward, backward, alive)
            if pair.taken:
                found.append(pair)
    found.sort(key=lambda pair: -pair.saved_bytes)
    chosen: list[LoopPair] = []
    busy: set[Node] = set()
    for pair in found:
        if busy.isdisjoint((pair.forward, pair.backward)):
            busy.update((pair.forward, pair.backward))
            chosen.append(pair)
    return chosen


def _are_opposite(forward: Node, backward: Node) -> bool:
    if forward.op is not SCAN or forward.attrs["reverse"] == backward.attrs["reverse"]:
        return False
    return bool(forward.attrs["length"] == backward.attrs["length"])
