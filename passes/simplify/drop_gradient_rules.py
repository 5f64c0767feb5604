"""Drop gradient rules: what only gradients ask for, in programs of which none is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ops.control.custom_gradient import CUSTOM_GRADIENT, UNDIFFERENTIABLE
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, Rules, simplify


@dataclass(frozen=True)
class DropGradientRules(Pass):
    """Nodes that only say how to differentiate become their operands.

    Before a program is made local: the region of a `CustomGradient` has the types of the whole,
    and nobody asks for it any more.

    Must not: run where a gradient may still be taken.
    """

    def run(self, program: Program) -> PassResult:
        return simplify(self, program, _RULES)


def _custom_gradient(rewriter: Rewriter, node: Node) -> Answer:
    return node.inputs[: node.attrs["count"]]


def _undifferentiable(rewriter: Rewriter, node: Node) -> Answer:
    return node.inputs[0]


_RULES: Final[Rules] = {
    CUSTOM_GRADIENT: _custom_gradient,
    UNDIFFERENTIABLE: _undifferentiable,
}
