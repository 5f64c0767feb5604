"""Loops: values that are faster to recompute than to stack are recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.joining import SPLIT
from graphc.ops.arrays.shape import RESHAPE
from graphc.ops.core.emit import CAST
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.costs import node_cost
from graphc.passes.core.elementwise import is_elementwise
from graphc.passes.memory.loop_pairs import LoopPair
from graphc.passes.memory.recompute import Course, all_pairs, carried_out, changing
from graphc.passes.memory.recompute_plans import at_price

_PARTS: Final = 1024  # of a byte: the unit of time, because costs are ints


@dataclass(frozen=True)
class StackLess(Pass):
    """The backward pass of a loop recomputes values that take less time to compute than to stack.

    A stack costs more than its bytes. It is filled with zeros, and each iteration copies a value
    into it. A backward iteration copies the value out again, because kernels of cuBLAS, cuDNN and
    CPU libraries take no slices. So it is better to recompute norms, activations and narrow matrix
    products. For a given price of a stacked byte, the choice is exact (`recompute_plans.at_price`).
    XLA does not change what a loop stacks.

    Must not: recompute nodes with effects, or values exchanged between replicas.

    Attributes:
        moves: the number of reads and writes of each byte that are due to stacking.
        flops: the FLOPs in a matrix product that take as long as the transfer of one byte. By
            default those of an H100 in float32, from its data sheet.
        narrow_flops: the same for products of 16 bits or fewer.
        other_flops: the same for other operators, such as convolutions and sorting.
    """

    moves: int = 4
    flops: int = 20
    narrow_flops: int = 295
    other_flops: int = 20

    def run(self, program: Program) -> PassResult:
        pairs = [_TimedPair(p.forward, p.backward, p.alive, self) for p in all_pairs(program)]
        chosen: Course = {pair: at_price(pair, self.moves * _PARTS, 1) for pair in pairs}
        changed = len(changing(chosen))
        return PassResult(carried_out(program, chosen) if changed else program, changed)


@dataclass(frozen=True, eq=False)
class _TimedPair(LoopPair):
    """A pair of loops. A node's cost is what memory can transfer in the node's time, in parts of a
    byte."""

    rates: StackLess

    @cached_property
    def costs(self) -> dict[Node, int | None]:
        body = _Body(self.body, self.rates)
        times = {node: self.length * (1 + body.time(node)) for node in self.nodes}
        return {node: times[node] if cost else cost for node, cost in super().costs.items()}


class _Body:
    """The costs of the nodes of a loop body."""

    def __init__(self, body: Program, rates: StackLess) -> None:
        self._rates = rates
        self._made = body.producers()
        self._users = body.users()
        self._fused = {node for node in body.nodes if is_elementwise(node)}

    def time(self, node: Node) -> int:
        """The time of a node. Elementwise nodes are fused, so they write only values that another
        kernel reads."""
        if node.op in (RESHAPE, CAST):
            return 0
        if node in self._fused or node.op is SPLIT:
            read = [t for t in node.outputs if not self._fused.issuperset(self._users.get(t, ()))]
            return _PARTS * 2 * sum(map(self._size, read))
        moved = sum(map(self._size, {*node.inputs, *node.outputs}))
        return max(_PARTS * moved, _PARTS * node_cost(node).flops // self._rate(node))

    def _rate(self, node: Node) -> int:
        """The FLOPs that take as long as one byte."""
        if node.op not in (MATMUL, DOT_GENERAL):
            return self._rates.other_flops
        narrow = all(t.type.dtype.itemsize <= 2 for t in node.outputs)
        return self._rates.narrow_flops if narrow else self._rates.flops

    def _size(self, tensor: Tensor) -> int:
        """The bytes of the value in its narrowest form. Casts are fused, so this form is stored."""
        made, users = self._made.get(tensor), self._users.get(tensor, ())
        same = [tensor]
        if made is not None and made.op is CAST:
            same.append(made.inputs[0])
        if users and all(user.op is CAST for user in users):
            same.append(users[0].outputs[0])
        return min(map(bytes_of, same))
