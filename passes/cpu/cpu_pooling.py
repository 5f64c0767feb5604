"""Max pooling and its gradient on CPU: tap by tap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.core.emit import emit_one
from graphc.ops.elementwise.comparison import GREATER, WHERE, less_equal, where
from graphc.ops.nn.pooling import MAX_POOL, MAX_POOL_GRADIENT
from graphc.ops.reductions.reduction import REDUCE_SUM
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, Rules, change, simplify


@dataclass(frozen=True)
class CpuPooling(Pass):
    """Has max pooling computed tap by tap: forward the largest of as many shifted views; backward
    each tap of the window takes its part of dy where it holds the first maximum, and what lands on
    one residue of the strides is added up.

    XLA:CPU walks over each window apart, one element at a time, after it has written what is
    pooled: 10 ms for [32, 55, 55, 64] and a 3 x 3 window where this takes 2. Of JAX's
    select-and-scatter it makes a search over pairs of values and indices, which runs on one core
    and writes the indices of all elements: 132 ms for [8, 112, 112, 64] where this takes 21. No
    pass of XLA's knows the other form.

    Where an element of dx has anything, x has the largest of a window. So the gradient of a ReLU
    before the pooling, `where(x > 0, dx, 0)`, asks each window instead, of which there are fewer,
    and the gradient of a bias, a sum of dx over all places, is that of dy: the ReLU's result and
    dx are read once less each.

    Must not: write out large windows, for each tap is some operations of XLA's; ask windows where
    dx has other users; sum dy where padding may swallow some of it.

    Attributes:
        taps: of the largest window that is written out.
    """

    taps: int = 16

    def run(self, program: Program) -> PassResult:
        users, given = program.users(), set(program.output_tensors())

        def alone(tensor: Tensor) -> bool:
            return len(users[tensor]) == 1 and tensor not in given

        rules: Rules = {
            MAX_POOL: self._by_taps,
            MAX_POOL_GRADIENT: self._by_taps,
            WHERE: lambda rewriter, node: _asked_of_windows(rewriter, node, alone),
            REDUCE_SUM: _sum_of_windows,
        }
        return simplify(self, program, rules)

    def _by_taps(self, rewriter: Rewriter, node: Node) -> Answer:
        if node.attrs["by_taps"] or prod(node.attrs["window"]) > self.taps:
            return None
        return node.replace(attrs={**node.attrs, "by_taps": True})


def _asked_of_windows(rewriter: Rewriter, node: Node, alone: Callable[[Tensor], bool]) -> Answer:
    """`where(x > a, dx, 0)` as the gradient of a pooling of x by `where(max <= a, 0, dy)`."""
    condition, dx, other = node.inputs
    greater = rewriter.maker(condition, GREATER)
    gradient = rewriter.maker(dx, MAX_POOL_GRADIENT)
    if greater is None or gradient is None or not alone(dx) or rewriter.scalar(other) != 0:
        return None
    x, dy = gradient.inputs
    bound = rewriter.scalar(greater.inputs[1])
    if greater.inputs[0] is not x or bound is None:
        return None
    with rewriter.at(gradient):
        most = emit_one(MAX_POOL, (x,), **gradient.attrs)
        least = rewriter.constant(bound, dy.type.dtype)
    # Of a window with NaN, x may be greater where the gradient goes: what comes, NaN as a rule,
    # goes on.
    with rewriter.at(greater):
        below = less_equal(most, least)
    with rewriter.at(gradient):
        zero = rewriter.constant(0, dy.type.dtype)
    return change(node, MAX_POOL_GRADIENT, (x, where(below, zero, dy)), **gradient.attrs)


def _sum_of_windows(rewriter: Rewriter, node: Node) -> Answer:
    """A sum over all places of a pooling's gradient as that of what it spreads."""
    gradient = rewriter.maker(node.inputs[0], MAX_POOL_GRADIENT)
    if gradient is None or any(map(any, gradient.attrs["padding"])):
        return None
    places = range(1, node.inputs[0].ndim - 1)
    if not set(places) <= set(node.attrs["axes"]):
        return None
    return node.replace(inputs=(gradient.inputs[1],))
