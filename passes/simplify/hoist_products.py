"""Hoist products: matrix products that a loop accumulates become one product after the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from graphc.ir.builder import Builder
from graphc.ir.costs import bytes_of
from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.program import Program
from graphc.ops.core.emit import CAST, emit_one
from graphc.ops.elementwise.arithmetic import ADD
from graphc.ops.elementwise.bits import BITCAST
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.loop_stacks import LoopStacks, rewrite_loops, uses_of
from graphc.passes.core.peak import peak
from graphc.passes.core.rules import Rewriter
from graphc.passes.simplify.prune import Prune

_MOST_MEMORY: Final = 4  # times the carries' bytes, for new stacks
_LEAST_SAVED: Final = 2  # times the bytes that new stacks and casts of stacks move

Axes = tuple[int, ...]


class Operand(NamedTuple):
    """One operand of a product in an iteration.

    Attributes:
        base: the value of the body whose stack is used.
        casts: the casts from `base` to the operand, the last one first; they run after the loop.
        value: the operand itself.
    """

    base: Tensor
    casts: tuple[Node, ...]
    value: Tensor


class Term(NamedTuple):
    """One product that an iteration adds.

    Attributes:
        axes: the contracted axes of each operand.
        casts: the casts of the product before it is added, the last one first.
    """

    product: Node
    operands: tuple[Operand, Operand]
    axes: tuple[Axes, Axes]
    casts: tuple[Node, ...]


@dataclass(frozen=True)
class HoistProducts(Pass):
    """Moves a carry to which a `Scan` only adds matrix products out of the loop.

    The gradient of a matrix that each iteration uses (the recurrent kernel of an LSTM) is carried,
    and each iteration adds a product to it: it reads and writes the whole matrix for a few rows.
    After this pass, the loop stacks the operands, unless their stacks exist already, and one
    product after the loop sums over iterations and rows. XLA moves nothing out of a loop that
    depends on the iteration.

    The pass applies if twice the bytes that it moves (new stacks, and casts of stacks, written and
    read once) are at most the bytes of the carries, read and written in each iteration; and if new
    stacks take at most four times the memory of the carries. One operand of each product must
    already have a stack: loops over micro-batches, whose purpose is to save memory, have no stacks
    of computed values.

    Must not: change a carry that has other uses; multiply float16 if the sum is wider, because the
    total may overflow; exceed `budget`, so it runs after `recompute`. It runs on the program of one
    device, after replicas exchange gradients: they exchange the sum, as before. The terms are added
    in another order, and rounded to the dtype of the product once instead of in each iteration.

    Attributes:
        budget: bytes, as for `recompute`; None for no limit.
    """

    budget: int | None = None

    def run(self, program: Program) -> PassResult:
        hoisted, changed = rewrite_loops(self, program, _without_products)
        if not changed:
            return PassResult(program, 0)
        hoisted = Prune().run(hoisted).program  # stacks that only the products took, and zeros
        if self.budget is not None:
            needed = peak(hoisted)
            if needed > self.budget and needed > peak(program):
                return PassResult(program, 0)
        return PassResult(hoisted, changed)


def _without_products(node: Node, known: Rewriter) -> tuple[Node, list[Node]]:
    """The loop without the carries that are moved, and the nodes that compute their final
    values."""
    if type(node.attrs["length"]) is not int:
        return node, []
    stacks = LoopStacks(node)
    view = stacks.view
    found: dict[int, list[Term]] = {}
    for number, ends in enumerate(zip(view.inner.carries, view.following, strict=True)):
        terms = _terms(stacks, *ends)
        if terms:
            found[number] = terms
    if not _is_worth(stacks, found):  # stacks are shared if all are moved together
        found = {i: terms for i, terms in found.items() if _is_worth(stacks, {i: terms})}
    if not found:
        return node, []
    after = _After(stacks)
    for number, terms in found.items():
        start = view.outer.carries[number]
        after.add_up(None if known.scalar(start) == 0 else start, terms, node.outputs[number])
    return stacks.without(found), after.builder.nodes


def _terms(stacks: LoopStacks, carry: Tensor, result: Tensor) -> list[Term] | None:
    """The products that an iteration adds to a carry without other uses; None if it does more."""
    body = stacks.node.regions[0]
    uses, made = uses_of(body), body.producers()
    if uses[carry] != 1:
        return None
    terms: list[Term] = []
    met = False  # the carry, which something else may take
    pending = [result]
    while pending:
        value = pending.pop()
        if value is carry:
            met = True
            continue
        node = made.get(value)
        if node is None or uses[value] != 1:
            return None
        if node.op is ADD:
            if any(tensor.type != value.type for tensor in node.inputs):
                return None
            pending += reversed(node.inputs)
            continue
        casts: list[Node] = []
        while node is not None and node.op is CAST and _keeps_sums(node):
            casts.append(node)
            value = node.inputs[0]
            node = made.get(value) if uses[value] == 1 else None
        axes = None if node is None else _summed(node)
        if node is None or axes is None:
            return None
        a, b = (_operand(stacks, tensor, made) for tensor in node.inputs)
        if a is None or b is None or not (stacks.has(a.base) or stacks.has(b.base)):
            return None
        terms.append(Term(node, (a, b), axes, tuple(casts)))
    return terms if met else None


def _keeps_sums(cast: Node) -> bool:
    """Whether casting a sum equals summing casts, except for rounding and overflow of float16."""
    before, after = cast.inputs[0].type.dtype, cast.outputs[0].type.dtype
    return is_floating(before) and is_floating(after) and before != np.float16


def _summed(node: Node) -> tuple[Axes, Axes] | None:
    """The contracted axes of a product of two matrices, or of one that contracts more axes; None
    for any other node."""
    if node.op not in (DOT_GENERAL, MATMUL) or not all(t.type.is_static for t in node.inputs):
        return None
    a, b = node.inputs
    if node.op is DOT_GENERAL and not node.attrs["lhs_batch"]:
        return node.attrs["lhs_contract"], node.attrs["rhs_contract"]
    if node.op is MATMUL and a.ndim == b.ndim == 2:
        return (0 if node.attrs["transpose_a"] else 1,), (1 if node.attrs["transpose_b"] else 0,)
    return None


def _operand(stacks: LoopStacks, tensor: Tensor, made: dict[Tensor, Node]) -> Operand | None:
    """The origin of an operand; None if it is the same in all iterations."""
    base, casts = tensor, list[Node]()
    while not stacks.has(base):
        node = made.get(base)
        if node is None or node.op not in (CAST, BITCAST):
            break
        casts.append(node)
        base = node.inputs[0]
    if stacks.has(base):
        return Operand(base, tuple(casts), tensor)
    return None if is_among(base, stacks.view.inner.consts) else Operand(tensor, (), tensor)


def _is_worth(stacks: LoopStacks, found: dict[int, list[Term]]) -> bool:
    """Whether the limits of the class hold; all sizes are bytes of one iteration."""
    carried = sum(bytes_of(stacks.view.inner.carries[number]) for number in found)
    operands = {
        each.value: each for terms in found.values() for term in terms for each in term.operands
    }
    new = sum(bytes_of(value) for value, each in operands.items() if not stacks.has(each.base))
    cast = sum(bytes_of(value) for value, each in operands.items() if each.casts)
    turns: int = stacks.node.attrs["length"]
    return carried >= _LEAST_SAVED * (new + cast) and turns * new <= _MOST_MEMORY * carried


class _After:
    """The nodes after a loop.

    Attributes:
        builder: contains them.
    """

    def __init__(self, stacks: LoopStacks) -> None:
        self.builder = Builder()
        self._stacks = stacks
        self._made: dict[Tensor, Tensor] = {}  # value of the body -> all iterations of it, cast

    def add_up(self, start: Tensor | None, terms: Sequence[Term], result: Tensor) -> None:
        """Defines `result` as the sum of the terms of all iterations; `start` is None if it is
        zero."""
        value = start
        for term in terms:
            a, b = (self._turns(operand) for operand in term.operands)
            lhs, rhs = ((0, *[axis + 1 for axis in axes]) for axes in term.axes)
            with self.builder, self.builder.at(term.product):
                made = emit_one(DOT_GENERAL, (a, b), lhs_contract=lhs, rhs_contract=rhs)
                made = self._cast(made, term.casts)
                value = made if value is None else value + made
        if value is not None:
            self.builder.define((value, result))

    def _turns(self, operand: Operand) -> Tensor:
        if operand.value not in self._made:
            stack = self._stacks.of(operand.base)
            self._made[operand.value] = self._cast(stack, operand.casts)
        return self._made[operand.value]

    def _cast(self, tensor: Tensor, casts: Sequence[Node]) -> Tensor:
        for cast in reversed(casts):
            with self.builder.at(cast):
                tensor = self.builder.add(cast.op, (tensor,), cast.attrs).outputs[0]
        return tensor
