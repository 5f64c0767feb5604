"""ExchangeInLoops: exchanges the values that a loop stacks in each iteration."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor, position_of
from graphc.ir.program import Program, region
from graphc.ir.types import TensorType
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN
from graphc.ops.structure.collective import ALL_REDUCE, REDUCE_SCATTER
from graphc.passes.core.base import Pass, PassResult, run_all_bodies
from graphc.passes.core.loop_stacks import uses_of
from graphc.passes.core.peak import peak

# Minimum bytes of a slice, and of all slices of an iteration. Smaller slices take longer when
# exchanged in each iteration than as one stack: an exchange on 8 GPUs has a latency of 15 us, in
# which a link carries 4 MB.
_LEAST: Final = 2**18
_LEAST_OF_A_TURN: Final = 2**21


@dataclass(frozen=True)
class ExchangeInLoops(Pass):
    """Moves the sum over replicas of values that a `Scan` stacks into its body.

    The backward pass of repeated blocks is a loop that stacks the gradients of all blocks. After
    the loop, all of them would be exchanged at once, and hardly any computation is left that could
    hide the exchange. In the body, the gradients of one block are exchanged while those of the next
    block are computed, if XLA overlaps iterations; otherwise while the rest of the same block is
    computed. XLA itself moves no collective into a loop.

    On CPU nothing runs during an exchange. There, this pass enables `UpdateInLoop`, which applies a
    gradient in the iteration that exchanges it, while the data is still in the caches.

    Must not: move the exchange of a stack that has other users; run before the program is local, or
    after `BucketCollectives` or `UpdateInLoop`.

    Attributes:
        turn: minimum bytes of the slices of an iteration.
        budget: bytes, as for `Recompute`. Only a program that needs more is changed. None changes
            any program.
    """

    turn: int = _LEAST_OF_A_TURN
    budget: int | None = None

    @classmethod
    def on(cls, platform: str, fast_loops: bool, budget: int | None) -> list[ExchangeInLoops]:
        """The pass for a platform, or None if it does not pay there.

        Args:
            fast_loops: whether XLA for GPUs overlaps exchanges in loops with computation. If not,
                the pass changes only programs that need more than the budget.
        """
        if platform == "cpu":
            return [cls(turn=_LEAST)]
        if fast_loops:
            return [cls()]
        return [] if budget is None else [cls(budget=budget)]

    def run(self, program: Program) -> PassResult:
        if self.budget is not None and peak(program) <= self.budget:
            return PassResult(program, 0)
        program, inside = run_all_bodies(replace(self, budget=None), program)
        uses, makers = uses_of(program), program.producers()
        moved: dict[
            Node, dict[int, Node]
        ] = {}  # for each loop: the exchange of each result, by its number
        for node in program.nodes:
            if not _is_of_slices(node) or len(node.inputs) != 1 or uses[node.inputs[0]] != 1:
                continue
            loop = makers.get(node.inputs[0])
            if loop is None or loop.op is not SCAN:
                continue
            view, place = LoopView.of(loop), position_of(node.inputs[0], loop.outputs)
            if place >= len(view.finals) and bytes_of(view.given()[place]) >= _LEAST:
                moved.setdefault(loop, {})[place] = node
        moved = {loop: found for loop, found in moved.items() if self._pays(loop, found)}
        if not moved:
            return PassResult(program, inside)
        gone = {node for exchanges in moved.values() for node in exchanges.values()}
        nodes = [
            _exchanging(node, moved[node]) if node in moved else node
            for node in program.nodes
            if node not in gone
        ]
        return PassResult(program.replace(nodes=tuple(nodes)), inside + len(gone))

    def _pays(self, loop: Node, exchanges: Collection[int]) -> bool:
        results = loop.regions[0].output_tensors()
        return bytes_of(*(results[i] for i in exchanges)) >= self.turn


def _is_of_slices(node: Node) -> bool:
    """Whether a node exchanges each slice of a stack by itself."""
    return node.op is ALL_REDUCE or (node.op is REDUCE_SCATTER and node.attrs["axis"] > 0)


def _exchanging(loop: Node, exchanges: dict[int, Node]) -> Node:
    """The loop that exchanges these results in its body."""
    (body,) = loop.regions
    results = list(body.output_tensors())
    added: list[Node] = []
    for place, node in exchanges.items():
        value = results[place]
        results[place] = Tensor(value.type, f"{value.name}/exchanged")
        attrs = dict(node.attrs)
        if node.op is REDUCE_SCATTER:
            attrs["axis"] -= 1
            piece = node.outputs[0].type
            results[place] = Tensor(TensorType(piece.dtype, piece.shape[1:]), results[place].name)
        added.append(node.replace(inputs=(value,), outputs=(results[place],), attrs=attrs))
    inner = region(body.name, body.input_tensors(), _in_place(body.nodes, added), results)
    outputs = [
        exchanges[i].outputs[0] if i in exchanges else tensor
        for i, tensor in enumerate(loop.outputs)
    ]
    return loop.replace(outputs=tuple(outputs), regions=(inner,))


def _in_place(nodes: Sequence[Node], exchanges: Sequence[Node]) -> list[Node]:
    """The nodes, with each exchange directly after the node that computes its operand."""
    makers = {tensor: node for node in nodes for tensor in node.outputs}
    behind: dict[Node | None, list[Node]] = {}
    for exchange in exchanges:
        behind.setdefault(makers.get(exchange.inputs[0]), []).append(exchange)
    ordered = list(behind.get(None, []))
    for node in nodes:
        ordered += [node, *behind.get(node, [])]
    return ordered
