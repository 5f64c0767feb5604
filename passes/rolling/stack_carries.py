"""Stack carries: what a loop adds up for alike variables becomes one carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.program import Program, region
from graphc.ops.arrays.stacking import STACK, UNSTACK
from graphc.ops.control.bodies import split
from graphc.ops.control.scan import SCAN
from graphc.ops.elementwise.arithmetic import ADD
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.building import node_of


@dataclass(frozen=True)
class StackCarries(Pass):
    """In loops: carries that only add the pieces of one stack become one, which adds the stack; and
    a stack of values from outside is made outside, once.

    `RollRepeats` in the body of a loop over micro-batches leaves both: gradients come stacked, and
    are added to a carry for each variable; variables are stacked in each turn. Outside, state that
    is stacked is stored so, and `GroupAlike` finds the optimizer's updates at the stacks. XLA keeps
    each carry, and copies each stack, in every turn.

    Must not: touch a carry that the body uses otherwise, or a piece that anything else takes.
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
    """The loop with stacks of constants given to it, and the nodes that make them outside."""
    (body,), count = node.regions, node.attrs["consts"]
    inputs = body.input_tensors()
    outer = dict(zip(inputs[:count], node.inputs, strict=False))
    stacks = [n for n in body.nodes if n.op is STACK and all(t in outer for t in n.inputs)]
    if not stacks:
        return node, []
    before = [
        node_of(STACK, [outer[t] for t in n.inputs], like=n, axis=n.attrs["axis"]) for n in stacks
    ]
    kept = [n for n in body.nodes if n not in set(stacks)]
    new = region(
        body.name,
        [*inputs[:count], *(n.outputs[0] for n in stacks), *inputs[count:]],
        kept,
        body.output_tensors(),
    )
    given = [n.outputs[0] for n in before]
    return (
        node.replace(
            inputs=(*node.inputs[:count], *given, *node.inputs[count:]),
            attrs={**node.attrs, "consts": count + len(stacks)},
            regions=(new,),
        ),
        before,
    )


class _Row(NamedTuple):
    """Carries, by position, that add the pieces of one stack."""

    carries: tuple[int, ...]
    adds: tuple[Node, ...]
    pieces: Node


def _joined(node: Node) -> tuple[Node, list[Node], list[Node]]:
    """The loop with rows of carries joined; nodes that make their starts, and take them apart."""
    rows = _rows(node)
    if not rows:
        return node, [], []
    (body,), consts, carries = node.regions, node.attrs["consts"], node.attrs["carries"]
    outer, inner = (split(x, consts, carries) for x in (node.inputs, body.input_tensors()))
    results = body.output_tensors()
    gone = {i for row in rows for i in row.carries}
    left = [i for i in range(carries) if i not in gone]
    dropped = {n for row in rows for n in (*row.adds, row.pieces)}
    nodes = [n for n in body.nodes if n not in dropped]
    starts, behind = [], []
    taken, given, finals = list[Tensor](), list[Tensor](), list[Tensor]()
    for row in rows:
        start = node_of(STACK, [outer.carries[i] for i in row.carries], like=row.pieces, axis=0)
        whole = row.pieces.inputs[0]
        carry = Tensor(whole.type, whole.name)
        add = node_of(ADD, (carry, whole), like=row.adds[0])
        final = Tensor(whole.type, whole.name)
        apart = [node.outputs[i] for i in row.carries]
        starts.append(start)
        nodes.append(add)
        taken.append(carry)
        given.append(add.outputs[0])
        finals.append(final)
        behind.append(node_of(UNSTACK, (final,), apart, like=row.pieces, axis=0))
    new = region(
        body.name,
        [*inner.consts, *(inner.carries[i] for i in left), *taken, *inner.xs],
        nodes,
        [*(results[i] for i in left), *given, *results[carries:]],
    )
    loop = node.replace(
        inputs=(
            *outer.consts,
            *(outer.carries[i] for i in left),
            *(n.outputs[0] for n in starts),
            *outer.xs,
        ),
        outputs=(*(node.outputs[i] for i in left), *finals, *node.outputs[carries:]),
        attrs={**node.attrs, "carries": len(left) + len(rows)},
        regions=(new,),
    )
    return loop, starts, behind


def _rows(node: Node) -> list[_Row]:
    (body,), consts, carries = node.regions, node.attrs["consts"], node.attrs["carries"]
    users = body.users()
    results = body.output_tensors()
    held = {t: i for i, t in enumerate(split(body.input_tensors(), consts, carries).carries)}
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
    """The carry that `piece` is added to and nothing else, and the node that does."""
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
