"""Writes the loops of a pair according to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from graphc.errors import PassError
from graphc.ir.node import Node, Tensor
from graphc.ir.program import region
from graphc.ir.rewrite import clone, used_from
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import RESHAPE
from graphc.ops.control.bodies import fresh, parts_of, slice_type, stacked_type
from graphc.ops.control.loop_view import LoopView
from graphc.passes.core.building import node_of
from graphc.passes.memory.loop_pairs import LoopPair
from graphc.passes.memory.recompute_plans import Plan, again


class Written(NamedTuple):
    """The nodes that replace the two loops of a pair, in order."""

    forward: tuple[Node, ...]
    backward: tuple[Node, ...]


def write(pair: LoopPair, plan: Plan) -> Written:
    """The pair rewritten according to the plan. Stacks that are no longer used are left to
    pruning."""
    if plan.segment is None:
        forward, backward = _with_saved(pair, plan)
        return Written((forward,), (backward,))
    return _in_segments(pair, plan, plan.segment)


# -- iteration by iteration ------------------------------------------------------------------


def _with_saved(pair: LoopPair, plan: Plan) -> tuple[Node, Node]:
    """The forward loop, which stacks the values that the plan saves, and the backward loop, which
    computes the missing values at the start of each iteration."""
    found = again(pair, plan.saved, pair.taken.values())
    if found is None:
        raise PassError(f"the plan for {pair.backward.name!r} is incomplete")
    stack_of = {value: stack for stack, value in pair.stacks.items()}
    missing = [t for t in found.begin if t in plan.saved and t not in stack_of]
    place = {t: i for i, t in enumerate([*pair.inner.carries, *pair.made])}
    missing.sort(key=place.__getitem__)
    new = [Tensor(stacked_type(t.type, pair.length), t.name) for t in missing]
    stack_of.update(zip(missing, new, strict=True))
    forward = LoopView.of(pair.forward).with_ys(zip(missing, new, strict=True)).write()
    consts = dict(zip(pair.inner.consts, pair.outer.consts, strict=True))
    stack_of.update(zip(pair.inner.xs, pair.outer.xs, strict=True))
    taking = _Taking(pair.backward)
    values: dict[Tensor, Tensor] = {}
    for tensor in pair.weights:  # in the order of the body
        if tensor in consts and tensor in found.begin:
            values[tensor] = taking.const(consts[tensor], tensor)
        elif tensor in found.begin:
            values[tensor] = taking.slice(stack_of[tensor], tensor)
    nodes = _copied(found.nodes, values)
    instead = {inner: values[value] for inner, value in pair.taken.items()}
    return forward, taking.loop(nodes, {a: b for a, b in instead.items() if a is not b})


def _copied(nodes: Sequence[Node], values: dict[Tensor, Tensor]) -> list[Node]:
    """The nodes with new results, which are added to `values`; `values` must hold their
    operands."""
    copies = []
    for node in nodes:
        outputs = tuple([Tensor(t.type, f"{t.name}/again") for t in node.outputs])
        inputs = tuple([values[t] for t in node.inputs])
        regions = tuple(map(clone, node.regions))
        copies.append(node.replace(inputs=inputs, outputs=outputs, regions=regions))
        values.update(zip(node.outputs, outputs, strict=True))
    return copies


class _Taking:
    """A loop that is given more operands. An operand that it already has is not added again."""

    def __init__(self, loop: Node) -> None:
        self._view = view = LoopView.of(loop)
        self._consts: dict[Tensor, Tensor] = dict(
            zip(view.outer.consts, view.inner.consts, strict=True)
        )
        self._xs: dict[Tensor, Tensor] = dict(zip(view.outer.xs, view.inner.xs, strict=True))

    def const(self, outer: Tensor, like: Tensor) -> Tensor:
        """The body's input for an operand that is the same in each iteration."""
        if outer not in self._consts:
            self._consts[outer] = fresh(like)
            self._view = self._view.with_consts([(outer, self._consts[outer])])
        return self._consts[outer]

    def slice(self, outer: Tensor, like: Tensor) -> Tensor:
        """The body's input for the slices of an operand."""
        if outer not in self._xs:
            self._xs[outer] = fresh(like)
            self._view = self._view.with_xs([(outer, self._xs[outer])])
        return self._xs[outer]

    def loop(self, nodes: Sequence[Node], instead: Mapping[Tensor, Tensor]) -> Node:
        """The loop with `nodes` before the nodes of its body, in which values are replaced."""
        view = self._view.substituted(instead)
        return view.with_nodes([*nodes, *view.nodes]).write()


# -- several iterations at once --------------------------------------------------------------


def _in_segments(pair: LoopPair, plan: Plan, turns: int) -> Written:
    """The pair as loops over segments of `turns` iterations.

    The forward loop stacks the carries at the start of each segment, and the values that are used
    outside the backward loop. The backward loop runs each segment forward once more, then backward.
    """
    forward, backward = pair.forward, pair.backward
    first = _Segment(pair.length // turns, turns)
    carries = tuple(map(fresh, pair.outer.carries))
    run = first.loop(forward, carries)
    entering = [Tensor(stacked_type(t.type, first.count), t.name) for t in carries]
    written = first.close(forward, carries, (run,), (*run.outputs, *carries), entering)

    second = _Segment(pair.length // turns, turns, first.cuts)
    rerun = second.loop(forward, [second.slice(stack) for stack in entering])
    made = dict(zip(forward.outputs, rerun.outputs, strict=True))
    back_carries = tuple(map(fresh, parts_of(backward, backward.inputs).carries))
    back = second.loop(
        backward, back_carries, {s: made[s] for s in pair.stacks.keys() - pair.alive}
    )
    inner = LoopPair(rerun, back, frozenset(second.inputs))
    twin = dict(zip(pair.weights, inner.weights, strict=True))
    rerun, back = _with_saved(inner, Plan(frozenset(twin[t] for t in plan.saved), None, 0, 0))
    body = (_without_effects(rerun, {*back.inputs}), back)
    return Written(written, second.close(backward, back_carries, body, back.outputs))


def _without_effects(loop: Node, used: set[Tensor]) -> Node:
    """The loop with only the used stacks. Its body computes nothing else: the first run has already
    had the effects of the body."""
    view = LoopView.of(loop).only_stacks(used)
    return view.with_nodes(used_from(view.nodes, view.given())).write()


class _Segment:
    """The body of a loop over segments, while it is being built.

    Attributes:
        count, turns: the number of segments, and the number of iterations in each.
        cuts: stacks of n slices -> the same values as stacks of segments, for those already
            defined.
        inputs: the inputs of the body so far: operands that all segments share, then the others.
    """

    def __init__(self, count: int, turns: int, cuts: Mapping[Tensor, Tensor] | None = None) -> None:
        self.count, self.turns = count, turns
        self.cuts = dict(cuts or {})
        self._consts: dict[Tensor, Tensor] = {}
        self._xs: dict[Tensor, Tensor] = {}
        self._before: list[Node] = []

    @property
    def inputs(self) -> list[Tensor]:
        return [*self._consts.values(), *self._xs.values()]

    def loop(
        self, loop: Node, carries: Sequence[Tensor], instead: Mapping[Tensor, Tensor] | None = None
    ) -> Node:
        """The loop over the iterations of one segment; `instead` maps to stacks computed in it."""
        given = parts_of(loop, loop.inputs)
        stacks = instead or {}
        inputs = [
            *(self._consts.setdefault(t, Tensor(t.type, t.name)) for t in given.consts),
            *carries,
            *(stacks[x] if x in stacks else self._piece(x, loop) for x in given.xs),
        ]
        outputs = [
            Tensor(t.type if i < len(carries) else self._inside(t.type), t.name)
            for i, t in enumerate(loop.outputs)
        ]
        return loop.replace(
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attrs={**loop.attrs, "length": self.turns},
            regions=tuple(map(clone, loop.regions)),
        )

    def slice(self, stack: Tensor) -> Tensor:
        """The body's input for a stack with one slice for each segment."""
        return self._xs.setdefault(stack, Tensor(slice_type(stack.type), stack.name))

    def close(
        self,
        loop: Node,
        carries: Sequence[Tensor],
        nodes: Sequence[Node],
        results: Sequence[Tensor],
        more: Sequence[Tensor] = (),
    ) -> tuple[Node, ...]:
        """The nodes that compute the results of `loop`, and the stacks `more` of the last
        `results`."""
        count = len(carries)
        body_inputs = [*self._consts.values(), *carries, *self._xs.values()]
        body = region(loop.regions[0].name, body_inputs, nodes, results)
        pieces = {stack: self._cut(stack) for stack in loop.outputs[count:]}
        xs = [self.cuts.get(x, x) for x in self._xs]
        attrs = {**loop.attrs, "consts": len(self._consts), "length": self.count, "unroll": 1}
        nested = loop.replace(
            inputs=(*self._consts, *parts_of(loop, loop.inputs).carries, *xs),
            outputs=(*loop.outputs[:count], *pieces.values(), *more),
            attrs=attrs,
            regions=(body,),
        )
        joined = [_reshape(piece, stack, loop) for stack, piece in pieces.items()]
        return (*self._before, nested, *joined)

    def _piece(self, stack: Tensor, loop: Node) -> Tensor:
        """The body's input for the part of a stack that belongs to one segment."""
        if stack not in self.cuts:
            cut = self.cuts[stack] = self._cut(stack)
            self._before.append(_reshape(stack, cut, loop))
        return self._xs.setdefault(stack, Tensor(self._inside(stack.type), stack.name))

    def _cut(self, stack: Tensor) -> Tensor:
        shape = (self.count, self.turns, *stack.type.shape[1:])
        return Tensor(TensorType(stack.type.dtype, shape), stack.name)

    def _inside(self, type: TensorType) -> TensorType:
        """The type of the part of a stack that belongs to one segment."""
        return TensorType(type.dtype, (self.turns, *type.shape[1:]))


def _reshape(operand: Tensor, result: Tensor, loop: Node) -> Node:
    shape = result.type.shape
    return node_of(RESHAPE, (operand,), (result,), like=loop, name="segments", shape=shape)
