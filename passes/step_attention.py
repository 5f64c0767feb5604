"""Step attention: long ones some queries at a time, or by the kernel of the device's library."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ops.attention import ATTENTION, ATTENTION_GRADIENT
from graphc.passes.attention_steps import steps
from graphc.passes.base import Pass, PassResult, run_bodies
from graphc.passes.target import Target


@dataclass(frozen=True)
class StepAttention(Pass):
    """Sets how each `Attention` and its gradient are computed: all at once; some queries at a
    time, which needs memory for the weights of these only; or by cuDNN's flash attention.

    XLA has no such choice: it computes what it is given, and writes all weights to memory.

    Must not: touch short ones, for which loops cost more than they save; nor ask for cuDNN where
    it may not be there (a program for any platform), or for what it does not do: float32,
    dropout, odd lengths, masks of causal attention.

    Attributes:
        target: the device at hand.
    """

    target: Target = field(default_factory=Target)

    def run(self, program: Program) -> PassResult:
        changed = 0
        nodes: list[Node] = []
        for node in program.nodes:
            after, inside = self._stepped(node)
            nodes.append(after)
            changed += inside
        if not changed:
            return PassResult(program, 0)
        return PassResult(program.replace(nodes=tuple(nodes)), changed)

    def _stepped(self, node: Node) -> tuple[Node, int]:
        if node.regions:
            return run_bodies(self, node)
        if node.op not in (ATTENTION, ATTENTION_GRADIENT):
            return node, 0
        if node.attrs["rows"] or node.attrs["each_entry"] or node.attrs["flash"]:
            return node, 0  # as it was asked for
        types = [tensor.type for tensor in node.inputs]
        if node.op is ATTENTION_GRADIENT:
            del types[3]  # dy
        if node.attrs["dropout"]:
            del types[-1]  # the key, or what was kept
        found = steps(types, node.attrs, self.target)
        return (node.replace(attrs={**node.attrs, **found}), 1) if found else (node, 0)
