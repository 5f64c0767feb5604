"""Prune: removes nodes whose results are not needed."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import PURE, Effects
from graphc.ir.program import Program, effects_of
from graphc.passes.core.base import Pass, PassResult, run_bodies

# A node that has only these effects can be removed; any other effect keeps it.
_WITHOUT_TRACE = Effects.READ | Effects.FEED


@dataclass(frozen=True)
class Prune(Pass):
    """Removes nodes that no output needs, and unused results of loops with the work that computes
    them.

    XLA would remove them too, after JAX has traced and lowered each one. Only here is an unused
    result of a loop still a result, and not an array that each iteration writes.

    Must not: remove a node with host effects (print, callback), or change the ports: the caller
    still passes an input that nothing reads.
    """

    def run(self, program: Program) -> PassResult:
        needed = {port.tensor for port in program.outputs}
        kept: list[Node] = []
        changed = 0
        node = None
        try:
            for node in reversed(program.nodes):
                if needed.isdisjoint(node.outputs) and _leaves_no_trace(node):
                    changed += 1
                    continue
                if node.regions:
                    node, inside = self._prune_regions(node, needed)
                    changed += inside
                needed.update(node.inputs)
                kept.append(node)
        except Exception as error:
            raise self.fault(node, error) from error
        if not changed:
            return PassResult(program, 0)
        return PassResult(program.replace(nodes=tuple(reversed(kept))), changed)

    def _prune_regions(self, node: Node, needed: set[Tensor]) -> tuple[Node, int]:
        node, changed = run_bodies(self, node)
        if node.op.prune_outputs is None:
            return node, changed
        smaller = node.op.prune_outputs(node, {t for t in node.outputs if t in needed})
        if smaller is node:
            return node, changed
        return smaller, changed + 1


def _leaves_no_trace(node: Node) -> bool:
    effects = effects_of(node) if node.regions else node.op.effects
    return effects is PURE or not effects & ~_WITHOUT_TRACE
