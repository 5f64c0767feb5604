"""Fuse attention: the usual forms of attention become one operator."""

from __future__ import annotations

from collections.abc import Sequence
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
from graphc.passes.attention.split_batch import split_batches
from graphc.passes.core.base import Pass, PassResult, run_all_bodies
from graphc.passes.core.target import Target
from graphc.passes.simplify.prune import Prune
from graphc.passes.simplify.simplify_shapes import SimplifyShapes

_FEWEST_WEIGHTS = 1 << 16  # attentions with fewer weights are not considered


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Replaces `softmax(scale * query @ key^T + masks) @ value`, in its usual forms, by the
    operator `Attention`, and the computation of its adjoints by `AttentionGradient`.

    It starts at each softmax (the operator, or exponentials over their sum) and searches in both
    directions: back to the product of queries and keys, and on to all uses of the weights. Axes may
    be in any order; several may be heads, and queries may share keys. The scale may be a factor or
    a divisor of any operand; masks may be added or selected with `where`. Any differentiator may
    have written the backward pass: see `attention_algebra`.

    XLA computes the products one by one and keeps all weights in memory, time * source elements for
    each head. The operator can be computed some queries at a time, or by the device's library: see
    `StepAttention`.

    Must not: apply if the weights have other uses, such as a fetch; apply to attention that is
    computed all at once anyway, which would gain nothing. Results equal those of exact arithmetic,
    but rounding differs, and a query that sees no key returns the mean of some values: of all
    values instead of NaN if `where` masks them with minus infinity, and of the values that a causal
    mask leaves if an added mask hides them.

    Attributes:
        target: the compilation target.
        every: also fuse short attentions.
    """

    target: Target = field(default_factory=Target)
    every: bool = False

    def run(self, program: Program) -> PassResult:
        program, changed = run_all_bodies(self, program)
        try:
            program, fused = self._fused(program, self._starts(program))
            split = split_batches(program) if self._starts(program) else program
            if split is not program:
                split = Prune().run(SimplifyShapes().run(split).program).program
                split, more = self._fused(split, self._starts(split))
                program, fused = (split, fused + more) if more else (program, fused)
        except Exception as error:
            raise self.fault(None, error) from error
        return PassResult(program, changed + fused)

    def _starts(self, program: Program) -> list[Node]:
        return [node for node in program.nodes if self._may_start(node)]

    def _may_start(self, node: Node) -> bool:
        if node.op is not SOFTMAX and node.op is not EXP:
            return False
        dims = node.outputs[0].type.shape
        known = [dim for dim in dims if isinstance(dim, int)]
        if len(known) < max(len(dims), 2):
            return False
        return self.every or prod(known) >= _FEWEST_WEIGHTS

    def _fused(self, program: Program, starts: Sequence[Node]) -> tuple[Program, int]:
        """The program with the attentions around `starts`, and their number.

        They are inserted all at once, because sorting a program of many blocks takes long. If two
        overlap, or one contains operands of another, they are inserted one after the other.
        """
        producers, places = program.producers(), _places(program)
        more: list[Node] = []
        instead: dict[Tensor, Tensor] = {}
        count = 0
        for node in starts:
            finder = Finder(producers)
            found = match(node, program.nodes, places, finder)
            built = None if found is None else self._built(found, finder, node)
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
            # An operand depends on a node to be replaced, for example if the adjoint of a softmax
            # over another axis looks like a separate attention.
            return self._one_by_one(program, starts) if len(starts) > 1 else (program, 0)
        return substitute(program.replace(nodes=nodes), instead), count

    def _one_by_one(self, program: Program, starts: Sequence[Node]) -> tuple[Program, int]:
        changed = 0
        for node in starts:
            program, fused = self._fused(program, [node])
            changed += fused
        return program, changed

    def _built(
        self, found: Found, finder: Finder, node: Node
    ) -> tuple[Sequence[Node], dict[Tensor, Tensor]] | None:
        """The nodes of the attention around a softmax, and the tensors that they replace."""
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
    """Tensor -> the indices of its users; `len(nodes)` for an output of the program."""
    found: dict[Tensor, list[int]] = {}
    for place, node in enumerate(program.nodes):
        for tensor in node.inputs:
            found.setdefault(tensor, []).append(place)
    for tensor in program.output_tensors():
        found.setdefault(tensor, []).append(len(program.nodes))
    return found
