"""StackCarries: carries that accumulate the slices of one stack become one carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.program import Program
from graphc.ops.arrays.stacking import STACK, UNSTACK, stack, unstack
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN
from graphc.ops.elementwise.arithmetic import ADD
from graphc.passes.core.base import Pass, PassResult


@dataclass(frozen=True)
class StackCarries(Pass):
    """Replaces the carries of a loop that only add the pieces of one stack by one carry that adds
    the stack, and creates a stack of values from outside the loop once, outside the loop.

    `RollRepeats` in the body of a loop over micro-batches leaves both: gradients are stacked and
    then added to one carry per variable, and variables are stacked in each iteration. Outside of
    the loop, stacked state is stored as a stack, and `GroupAlike` finds the optimizer's updates
    from the stacks. XLA keeps each carry, and copies each stack in every iteration.

    Must not: change a carry that the body uses otherwise, or a piece that has other users.
    """

    def run(self, program: Program) -> PassResult:
        nodes: list[Node] = []
        changed = 0
        node: Node | None = None
        try:
            for node in program.nodes:
                if node.op is SCAN:
                    node, before = _hoisted(node)
                    node, starts, behind = _joined(node)
                    nodes += [*before, *starts, node, *behind]
                    changed += len(before) + len(behind)
                else:
                    nodes.append(node)
        except Exception as error:
            raise self.fault(node, error) from error
        if not changed:
            return PassResult(program, 0)
        return PassResult(program.replace(nodes=tuple(nodes)), changed)


def _hoisted(node: Node) -> tuple[Node, list[Node]]:
    """The loop, which takes stacks of constants as operands, and the nodes that compute them
    outside."""
    view = LoopView.of(node)
    outer = dict(zip(view.inner.consts, view.outer.consts, strict=True))
    stacks = [n for n in view.nodes if n.op is STACK and all(t in outer for t in n.inputs)]
    if not stacks:
        return node, []
    with Builder() as builder:
        for n in stacks:
            with builder.at(n):
                stack([outer[t] for t in n.inputs], n.attrs["axis"])
    pairs = [(b.outputs[0], n.outputs[0]) for b, n in zip(builder.nodes, stacks, strict=True)]
    kept = [n for n in view.nodes if n not in set(stacks)]
    return view.with_consts(pairs).with_nodes(kept).write(), builder.nodes


class _Row(NamedTuple):
    """Carries, given by position, that add the pieces of one stack."""

    carries: tuple[int, ...]
    adds: tuple[Node, ...]
    pieces: Node


def _joined(node: Node) -> tuple[Node, list[Node], list[Node]]:
    """The loop with rows of carries joined, the nodes that compute their initial values, and the
    nodes that split the results."""
    rows = _rows(node)
    if not rows:
        return node, [], []
    view = LoopView.of(node)
    gone = {i for row in rows for i in row.carries}
    dropped = {n for row in rows for n in (*row.adds, row.pieces)}
    starts, inside, behind = Builder(), Builder(), Builder()
    joined = []
    for row in rows:
        whole = row.pieces.inputs[0]
        carry, final = (Tensor(whole.type, whole.name) for _ in range(2))
        with starts, starts.at(row.pieces):
            start = stack([view.outer.carries[i] for i in row.carries])
        with inside, inside.at(row.adds[0]):
            joined.append((start, carry, carry + whole, final))
        with behind, behind.at(row.pieces):
            apart = [view.finals[i] for i in row.carries]
            behind.define(*zip(unstack(final), apart, strict=True))
    nodes = [*(n for n in view.nodes if n not in dropped), *inside.nodes]
    loop = view.without_carries(gone).with_carries(joined).with_nodes(nodes).write()
    return loop, starts.nodes, behind.nodes


def _rows(node: Node) -> list[_Row]:
    view, (body,) = LoopView.of(node), node.regions
    users, results = body.users(), body.output_tensors()
    held = {t: i for i, t in enumerate(view.inner.carries)}
    rows = []
    for pieces in body.nodes:
        if pieces.op is not UNSTACK or pieces.attrs["axis"] != 0:
            continue
        found = [_added(t, users, held, results) for t in pieces.outputs]
        if all(found):
            numbers, adds = zip(*[pair for pair in found if pair], strict=True)
            rows.append(_Row(numbers, adds, pieces))
    return rows


def _added(
    piece: Tensor,
    users: dict[Tensor, list[Node]],
    held: dict[Tensor, int],
    results: Sequence[Tensor],
) -> tuple[int, Node] | None:
    """The carry to which `piece` is added, if it has no other use, and the addition."""
    takers = users.get(piece, [])
    if len(takers) != 1 or takers[0].op is not ADD or is_among(piece, results):
        return None
    (add,) = takers
    before = next((t for t in add.inputs if t in held), None)
    if before is None or before.type != piece.type or users[before] != [add]:
        return None
    number, after = held[before], add.outputs[0]
    once = sum(tensor is after for tensor in results) == 1
    alone = once and not users.get(after) and not is_among(before, results)
    return (number, add) if alone and results[number] is after else None
