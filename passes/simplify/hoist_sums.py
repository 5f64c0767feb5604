"""Hoist sums: rows that a loop adds to a table are added after the loop, all at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from graphc.ir.dims import product
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.indexing import SCATTER_ADD
from graphc.ops.control.loop_view import LoopView
from graphc.ops.elementwise.arithmetic import ADD
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.loop_stacks import LoopStacks, rewrite_loops, uses_of
from graphc.passes.core.rules import Rewriter


class Added(NamedTuple):
    """One sum into the carry in an iteration: `ScatterAdd(carry, indices, updates)`."""

    node: Node
    indices: Tensor
    updates: Tensor


@dataclass(frozen=True)
class HoistSums(Pass):
    """Moves a carry to which a `Scan` only adds looked-up rows out of the loop.

    The gradient of lookups in a loop (a recurrent network that looks up its inputs) is a carried
    table. Each iteration adds a table of zeros with a few other rows. After this pass, the loop
    stacks these rows and their indices, and one `ScatterAdd` after the loop adds them all. The cost
    no longer depends on the size of the table, and `sparse-gradients` sees the gradient of an
    ordinary lookup. XLA moves nothing out of a loop that depends on the iteration.

    Must not: stack more rows than the table has, unless `always`; change a carry that has other
    uses. The rows are added in another order.

    Attributes:
        always: apply for all sizes. Lazy updates, which begin here, must not depend on sizes.
    """

    always: bool = False

    def run(self, program: Program) -> PassResult:
        return rewrite_loops(self, program, self._hoisted)

    def _hoisted(self, node: Node, known: Rewriter) -> tuple[Node, list[Node]]:
        """The loop without the carries that are moved, and the nodes that compute their final
        values."""
        view = LoopView.of(node)
        found: dict[int, list[Added]] = {}
        for number, ends in enumerate(zip(view.inner.carries, view.following, strict=True)):
            added = _sums(node.regions[0], *ends)
            if added and (self.always or _is_worth(node, added)):
                found[number] = added
        return _without(node, found) if found else (node, [])


def _sums(body: Program, carry: Tensor, result: Tensor) -> list[Added] | None:
    """The sums that an iteration adds to a carry without other uses; None if it does more."""
    uses, made = uses_of(body), body.producers()
    zeros = Rewriter()
    zeros.made.update(made)
    added: list[Added] = []
    value = result
    while value is not carry:
        node = made.get(value)
        step = None if node is None or uses[value] != 1 else _added(node, made, zeros)
        if step is None:
            return None
        value, one = step
        added.append(one)
    return added if uses[carry] == 1 else None


def _added(node: Node, made: dict[Tensor, Node], zeros: Rewriter) -> tuple[Tensor, Added] | None:
    """The sum so far, and the rows that `node` adds to it."""
    if node.op is SCATTER_ADD and node.attrs["axis"] == 0 and zeros.scalar(node.inputs[0]) != 0:
        return node.inputs[0], Added(node, node.inputs[1], node.inputs[2])
    if node.op is not ADD:
        return None
    for value, other in (node.inputs, node.inputs[::-1]):
        one = made.get(other)
        if one is None or one.op is not SCATTER_ADD or one.attrs["axis"] != 0:
            continue
        if zeros.scalar(one.inputs[0]) == 0 and value.type == other.type:
            return value, Added(one, one.inputs[1], one.inputs[2])
    return None


def _is_worth(node: Node, added: list[Added]) -> bool:
    """Whether all iterations together add fewer rows than the table has."""
    lookups = sum((product(each.indices.type.shape) for each in added), start=0)
    total = lookups * node.attrs["length"]
    rows = added[0].node.outputs[0].type.shape[0]
    return isinstance(total, int) and isinstance(rows, int) and total <= rows


def _without(node: Node, found: dict[int, list[Added]]) -> tuple[Node, list[Node]]:
    stacks = LoopStacks(node)
    after: list[Node] = []
    for number, added in found.items():
        value = stacks.view.outer.carries[number]
        for i, each in enumerate(reversed(added)):
            operands = (value, stacks.of(each.indices), stacks.of(each.updates))
            last = i == len(added) - 1
            value = node.outputs[number] if last else Tensor(value.type, f"{value.name}/sum{i}")
            name = f"{node.name}/{each.node.name}"
            after.append(each.node.replace(inputs=operands, outputs=(value,), name=name))
    return stacks.without(found), after
