"""Remove dropout: makes a network deterministic for inference."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.draws.dropout import DROPOUT
from graphc.ops.nn.attention import ATTENTION
from graphc.ops.structure.state import IDENTITY
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, change, simplify


@dataclass(frozen=True)
class RemoveDropout(Pass):
    """Dropout returns its operand, and attention keeps all its weights.

    This changes the meaning, so it runs only on request, in `gc.freeze`. XLA cannot know that a
    program is not used for training. The scale 1 / (1 - rate) needs no correction, because the mean
    is the same (Srivastava et al., JMLR 15, 2014).

    Must not: change a dropout whose mask has other users, such as gradients; or other draws,
    because a model may sample its output.
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
