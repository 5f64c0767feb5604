"""Remove dropout: what a network does when nothing is learnt from it."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.draws.random_draws import DROPOUT
from graphc.ops.nn.attention import ATTENTION
from graphc.ops.structure.state import IDENTITY
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, change, simplify


@dataclass(frozen=True)
class RemoveDropout(Pass):
    """Dropout gives its operand, and attention keeps all its weights.

    It changes the meaning, so it runs where that is asked for: in `gc.freeze`. XLA cannot know
    that nothing is learnt from a program. What was scaled by 1 / (1 - rate) in training stays as
    it is, since the mean is the same (Srivastava et al., JMLR 15, 2014).

    Must not: touch a dropout whose mask is used elsewhere, as gradients do; nor other draws: a
    model may sample what it gives.
    """

    def run(self, program: Program) -> PassResult:
        used = {t for node in program.nodes for t in node.inputs}
        used.update(program.output_tensors())

        def dropout(rewriter: Rewriter, node: Node) -> Answer:
            if _kept(node) in used:
                return None
            return node.replace(
                op=IDENTITY, inputs=node.inputs[:1], outputs=node.outputs[:1], attrs={}
            )

        def attention(rewriter: Rewriter, node: Node) -> Answer:
            if not node.attrs["dropout"] or _kept(node) in used:
                return None
            whole = change(node, ATTENTION, node.inputs[:-1], **{**node.attrs, "dropout": 0.0})
            return whole.replace(outputs=node.outputs[:1])

        return simplify(self, program, {DROPOUT: dropout, ATTENTION: attention})


def _kept(node: Node) -> Tensor:
    """The mask, its second result."""
    return node.outputs[1]
