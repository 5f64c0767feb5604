"""Fuse attention: the usual spellings of it become the one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from graphc.errors import VerifyError
from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.rewrite import sort_nodes, substitute
from graphc.ops.elementwise.activation import SOFTMAX
from graphc.ops.elementwise.transcendental import EXP
from graphc.passes.attention.attention_build import Fused
from graphc.passes.attention.attention_logits import Finder
from graphc.passes.attention.attention_match import Found, match
from graphc.passes.attention.attention_steps import steps
from graphc.passes.attention.attention_terms import NoMatch
from graphc.passes.core.base import Pass, PassResult, run_all_bodies
from graphc.passes.core.target import Target

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
        program, changed = run_all_bodies(self, program)
        starts = [node for node in program.nodes if self._may_start(node)]
        try:
            program, fused = self._fused(program, starts)
        except Exception as error:
            raise self.fault(None, error) from error
        return PassResult(program, changed + fused)

    def _may_start(self, node: Node) -> bool:
        if node.op is not SOFTMAX and node.op is not EXP:
            return False
        dims = node.outputs[0].type.shape
        known = [dim for dim in dims if isinstance(dim, int)]
        if len(known) < max(len(dims), 2):
            return False
        return self.every or prod(known) >= _FEWEST_WEIGHTS

    def _fused(self, program: Program, starts: Sequence[Node]) -> tuple[Program, int]:
        """The program with the attentions around `starts`, and how many there are.

        They are put in all at once, since a program of many blocks takes long to sort. Where two
        overlap, or one contains what another needs, they are put in one after the other.
        """
        producers, places = program.producers(), _places(program)
        more: list[Node] = []
        instead: dict[Tensor, Tensor] = {}
        count = 0
        for node in starts:
            built = self._attention(program, node, producers, places)
            if built is None:
                continue
            if len(starts) > 1 and not instead.keys().isdisjoint(built[1]):
                return self._one_by_one(program, starts)
            more += built[0]
            instead |= built[1]
            count += 1
        if count == 0:
            return program, 0
        try:
            nodes = sort_nodes(substitute([*program.nodes, *more], instead))
        except VerifyError:
            # An operand comes from what is to be replaced, as where the adjoint of a softmax over
            # another axis looks like an attention of its own.
            return self._one_by_one(program, starts) if len(starts) > 1 else (program, 0)
        return substitute(program.replace(nodes=nodes), instead), count

    def _one_by_one(self, program: Program, starts: Sequence[Node]) -> tuple[Program, int]:
        changed = 0
        for node in starts:
            program, fused = self._fused(program, [node])
            changed += fused
        return program, changed

    def _attention(
        self,
        program: Program,
        node: Node,
        producers: Mapping[Tensor, Node],
        places: Mapping[Tensor, list[int]],
    ) -> tuple[Sequence[Node], dict[Tensor, Tensor]] | None:
        """The nodes of the attention around a softmax, and what they give in place of what."""
        finder = Finder(producers)
        found = match(node, program.nodes, places, finder)
        return None if found is None else self._built(found, finder, node)

    def _built(
        self, found: Found, finder: Finder, node: Node
    ) -> tuple[Sequence[Node], dict[Tensor, Tensor]] | None:
        try:
            with Builder(node) as builder:
                fused = Fused(found, finder)
                types = [tensor.type for tensor in fused.operands]
                if not self.every and not steps(types, fused.attrs, self.target):
                    return None
                instead = fused.write()
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
