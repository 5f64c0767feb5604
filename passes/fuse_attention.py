"""Fuse attention: the usual spellings of it become the one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from graphc.errors import VerifyError
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.rewrite import sort_nodes, substitute
from graphc.ops.activation import SOFTMAX
from graphc.ops.math import EXP
from graphc.passes.attention_build import Builder
from graphc.passes.attention_logits import Finder
from graphc.passes.attention_match import Found, match
from graphc.passes.attention_steps import steps
from graphc.passes.attention_terms import NoMatch
from graphc.passes.base import Pass, PassResult, run_bodies
from graphc.passes.target import Target

_FEWEST_WEIGHTS = 1 << 16  # smaller ones are not looked at


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Makes `softmax(scale * query @ key^T + masks) @ value`, in its usual spellings, the operator
    `Attention`, and what computes its adjoints `AttentionGradient`.

    It starts at each softmax (the operator, or exponentials over their sum) and follows the values
    both ways: to the product of queries and keys, and to all that uses the weights. Axes may lie
    in any order; several may be heads, and queries may share keys. The scale may be a factor or a
    divisor of any operand; masks may be added or chosen with `where`. The backward pass may have
    been written by any differentiator: see `attention_algebra`.

    Worth it: XLA takes the products one by one and keeps all weights in memory, time * source
    elements for each head. The operator can be computed some queries at a time, or by the
    device's library: see `StepAttention`.

    Must not: be applied where the weights are needed for anything else, a fetch say; nor to
    attention that is computed at once anyway, which would gain nothing. Results are those of
    exact arithmetic: rounding differs, and a query that sees no key gives the mean of some values:
    of all in place of NaN where `where` hides them with minus infinity, of those that a causal
    mask leaves where an added mask hides the rest.

    Attributes:
        target: the device at hand.
        every: fuse short ones too.
    """

    target: Target = field(default_factory=Target)
    every: bool = False

    def run(self, program: Program) -> PassResult:
        changed = 0
        nodes: list[Node] = []
        node = None
        try:
            for node in program.nodes:
                inside = 0
                if node.regions:
                    node, inside = run_bodies(self, node)
                nodes.append(node)
                changed += inside
            if changed:
                program = program.replace(nodes=tuple(nodes))
            starts = [node for node in program.nodes if self._may_start(node)]
            for node in starts:
                after = self._fused(program, node)
                if after is not None:
                    program = after
                    changed += 1
        except Exception as error:
            raise self.fault(node, error) from error
        return PassResult(program, changed)

    def _may_start(self, node: Node) -> bool:
        if node.op is not SOFTMAX and node.op is not EXP:
            return False
        dims = node.outputs[0].type.shape
        known = [dim for dim in dims if isinstance(dim, int)]
        if len(known) < max(len(dims), 2):
            return False
        return self.every or prod(known) >= _FEWEST_WEIGHTS

    def _fused(self, program: Program, node: Node) -> Program | None:
        nodes = program.nodes
        finder = Finder(program.producers())
        found = match(node, nodes, _places(program), finder)
        if found is None:
            return None
        built = self._built(found, finder, node)
        if built is None:
            return None
        more, instead = built
        try:
            ordered = sort_nodes([*substitute(nodes, instead), *more])
        except VerifyError:  # an operand comes from what is to be replaced, as where the adjoint
            return None  # of a softmax over another axis looks like an attention of its own
        return substitute(program.replace(nodes=ordered), instead)

    def _built(
        self, found: Found, finder: Finder, node: Node
    ) -> tuple[Sequence[Node], dict[Tensor, Tensor]] | None:
        try:
            builder = Builder(found, finder, node)
            types = [tensor.type for tensor in builder.operands]
            if not self.every and not steps(types, builder.attrs, self.target):
                return None
            instead = builder.build()
        except NoMatch:
            return None
        return builder.nodes, instead


def _places(program: Program) -> dict[Tensor, list[int]]:
    """Tensor -> where the nodes stand that take it; the end for what the program gives."""
    found: dict[Tensor, list[int]] = {}
    for place, node in enumerate(program.nodes):
        for tensor in node.inputs:
            found.setdefault(tensor, []).append(place)
    for tensor in program.output_tensors():
        found.setdefault(tensor, []).append(len(program.nodes))
    return found
