"""Pooling and its gradients on CPU, computed tap by tap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.core.emit import emit_one
from graphc.ops.elementwise.comparison import GREATER, WHERE, less_equal, where
from graphc.ops.nn.pooling import AVG_POOL, AVG_POOL_GRADIENT, MAX_POOL, MAX_POOL_GRADIENT
from graphc.ops.reductions.reduction import REDUCE_SUM
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, Rules, change, simplify


@dataclass(frozen=True)
class CpuPooling(Pass):
    """Computes pooling tap by tap. Forward, it takes the maximum or the sum of one shifted view for
    each tap. Backward, each tap of the window takes its part of dy (of a maximum, where it holds
    the first one), and values for the same residue of the strides are added.

    XLA:CPU processes each window separately, one element at a time, after writing the operand: 10
    ms for [32, 55, 55, 64] and a 3 x 3 window instead of 2 ms. It lowers JAX's select-and-scatter
    to a search over pairs of values and indices, which runs on one core and writes the indices of
    all elements: 132 ms for [8, 112, 112, 64] instead of 21 ms. No pass of XLA finds the other
    form. Averages of windows that overlap take 0.2 to 0.6 of the time too (3 x 3 over
    [8, 35, 35, 288]: 0.9 ms instead of 3.7), and their gradients 0.03 to 0.4.

    If dx is not zero at a position, x has the maximum of a window there. Therefore the gradient of
    a ReLU before the pooling, `where(x > 0, dx, 0)`, can be computed per window, of which there are
    fewer. The gradient of a bias, a sum of dx over all positions, equals that of dy. Each of these
    reads the result of the ReLU and dx once less.

    Must not: expand large windows, because each tap is several operations of XLA; expand averages
    of windows that do not overlap, which XLA computes as fast; compute per window if dx has other
    users; sum dy if padding may drop some of it.

    Attributes:
        taps: the number of taps of the largest window that is expanded.
    """

    taps: int = 16

    def run(self, program: Program) -> PassResult:
        users, given = program.users(), set(program.output_tensors())

        def alone(tensor: Tensor) -> bool:
            return len(users[tensor]) == 1 and tensor not in given

        rules: Rules = {
            MAX_POOL: self._by_taps,
            MAX_POOL_GRADIENT: self._by_taps,
            AVG_POOL: self._averaged_by_taps,
            AVG_POOL_GRADIENT: self._averaged_by_taps,
            WHERE: lambda rewriter, node: _asked_of_windows(rewriter, node, alone),
            REDUCE_SUM: _sum_of_windows,
        }
        return simplify(self, program, rules)

    def _by_taps(self, rewriter: Rewriter, node: Node) -> Answer:
        if node.attrs["by_taps"] or prod(node.attrs["window"]) > self.taps:
            return None
        return node.replace(attrs={**node.attrs, "by_taps": True})

    def _averaged_by_taps(self, rewriter: Rewriter, node: Node) -> Answer:
        rows = zip(node.attrs["window"], node.attrs["strides"], strict=True)
        overlap = any(size > step for size, step in rows)
        return self._by_taps(rewriter, node) if overlap else None


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
    # In a window with NaN, x may be greater where the gradient goes. The gradient, which is usually
    # NaN, is passed on.
    with rewriter.at(greater):
        below = less_equal(most, least)
    with rewriter.at(gradient):
        zero = rewriter.constant(0, dy.type.dtype)
    return change(node, MAX_POOL_GRADIENT, (x, where(below, zero, dy)), **gradient.attrs)


def _sum_of_windows(rewriter: Rewriter, node: Node) -> Answer:
    """The sum of a pooling's gradient over all positions equals the sum of its dy."""
    gradient = rewriter.maker(node.inputs[0], MAX_POOL_GRADIENT)
    if gradient is None or any(map(any, gradient.attrs["padding"])):
        return None
    places = range(1, node.inputs[0].ndim - 1)
    if not set(places) <= set(node.attrs["axes"]):
        return None
    return node.replace(inputs=(gradient.inputs[1],))
