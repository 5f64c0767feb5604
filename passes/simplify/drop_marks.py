"""Drop marks, which `minimize` and functions of indices wrote for other passes to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphc.ir.node import Node
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ops.core.ranges import IN_RANGE
from graphc.ops.structure.training import GRADIENTS, LOSS_ADJOINT, UPDATED
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, Rule, simplify


@dataclass(frozen=True)
class DropMarks(Pass):
    """Removes the marks of a training step: where its gradients begin and end, what it updates.

    They do nothing, and stand between nodes that other passes want to see side by side; XLA would
    not mind them.

    Options:
        keep_ranges: keep the marks of integers that must lie in a range, for `CheckNumerics`.

    Must not: run before the passes that read them; remove those of gradients that are summed over
    micro-batches, which `Accumulate` needs once sizes are bound.
    """

    keep_ranges: bool = False

    def run(self, program: Program) -> PassResult:
        rules = _RULES if self.keep_ranges else {**_RULES, IN_RANGE: _in_range}
        return simplify(self, program, rules)


def _loss_adjoint(rw: Rewriter, node: Node) -> Answer:
    return node.inputs[0]


def _gradients(rw: Rewriter, node: Node) -> Answer:
    return node.inputs if node.attrs["accumulate"] == 1 else None


def _updated(rw: Rewriter, node: Node) -> Answer:
    return node.inputs[len(node.outputs) :]


def _in_range(rw: Rewriter, node: Node) -> Answer:
    return node.inputs[0]


_RULES: Final[dict[OpDef, Rule]] = {
    LOSS_ADJOINT: _loss_adjoint,
    GRADIENTS: _gradients,
    UPDATED: _updated,
}
