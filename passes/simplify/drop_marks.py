"""Drop marks: nodes that `minimize`, index functions and custom gradients add for other passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ops.control.custom_gradient import CUSTOM_GRADIENT, UNDIFFERENTIABLE
from graphc.ops.core.ranges import IN_RANGE
from graphc.ops.structure.training import GRADIENTS, LOSS_ADJOINT, UPDATED
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Rule, Rules, first_operand, simplify


@dataclass(frozen=True)
class DropMarks(Pass):
    """Removes the marks of a training step: where its gradients begin and end, and which values it
    updates.

    Marks compute nothing, but they separate nodes that other passes must see side by side. XLA
    ignores them.

    Options:
        keep_ranges: keep the marks of integers that must be in a range, for `CheckNumerics`.

    Must not: run before the passes that read the marks; remove the marks of gradients that are
    summed over micro-batches, which `Accumulate` needs once sizes are bound.
    """

    keep_ranges: bool = False

    def run(self, program: Program) -> PassResult:
        rules = _RULES if self.keep_ranges else {**_RULES, IN_RANGE: first_operand}
        return simplify(self, program, rules)


_RULES: Final[dict[OpDef, Rule]] = {
    LOSS_ADJOINT: first_operand,
    GRADIENTS: lambda rw, node: node.inputs if node.attrs["accumulate"] == 1 else None,
    UPDATED: lambda rw, node: node.inputs[len(node.outputs) :],
}


@dataclass(frozen=True)
class DropGradientRules(Pass):
    """Replaces nodes that only define a derivative by their operands.

    It runs before a program is made local, because the region of a `CustomGradient` has global
    types, and no gradient needs it any more.

    Must not: run where a gradient may still be computed.
    """

    def run(self, program: Program) -> PassResult:
        return simplify(self, program, _OF_GRADIENTS)


_OF_GRADIENTS: Final[Rules] = {
    CUSTOM_GRADIENT: lambda rw, node: node.inputs[: node.attrs["count"]],
    UNDIFFERENTIABLE: first_operand,
}
