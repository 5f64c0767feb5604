"""Sums over differences from a mean, on CPU: one pass over x, without a stored difference."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.core.emit import emit_one
from graphc.ops.elementwise.arithmetic import MULTIPLY, SUBTRACT, multiply
from graphc.ops.elementwise.powers import SQUARE, square
from graphc.ops.nn.normalization import VARIANCE
from graphc.ops.reductions.reduction import REDUCE_SUM
from graphc.ops.structure.ordering import FENCE
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, Rules, simplify

_FORWARD, _BACKWARD = 0, 1  # numbers of fences, so that the two sums do not share a difference


@dataclass(frozen=True)
class CpuMoments(Pass):
    """Makes each sum over `x - mean` compute this difference separately: the variance of batch
    norm, also as a sum of squares, and the gradient of its scale, `sum(dy * (x - mean))`. The
    mean is fenced, so that these differences are not shared with the normalized x.

    Otherwise XLA sees one value with several users, stores it (it is as large as x), and reads it
    again for each sum. Its reduction library subtracts and multiplies while it sums if this is
    possible: normalizing [8, 56, 56, 256] with gradients takes 0.63x the time.

    Must not: fence small tensors, which stay in the cache.

    Attributes:
        elements: the number of elements of the smallest tensor to which it applies.
    """

    elements: int = 1 << 16

    def run(self, program: Program) -> PassResult:
        rules: Rules = {VARIANCE: self._variance, REDUCE_SUM: self._sum}
        return simplify(self, program, rules)

    def _variance(self, rewriter: Rewriter, node: Node) -> Answer:
        x, mean = node.inputs
        if not self._is_worth_it(rewriter, x, mean):
            return None
        return node.replace(inputs=(x, _fenced(mean, _FORWARD)))

    def _sum(self, rewriter: Rewriter, node: Node) -> Answer:
        squares = rewriter.maker(node.inputs[0], SQUARE)
        if squares is not None:
            own = self._own(rewriter, squares.inputs[0], _FORWARD)
            return None if own is None else node.replace(inputs=(square(own),))
        product = rewriter.maker(node.inputs[0], MULTIPLY)
        if product is None:
            return None
        a, b = product.inputs
        for factor in (a, b):
            own = self._own(rewriter, factor, _FORWARD if a is b else _BACKWARD)
            if own is not None:
                factors = [own if other is factor else other for other in (a, b)]
                return node.replace(inputs=(multiply(*factors),))
        return None

    def _own(self, rewriter: Rewriter, factor: Tensor, number: int) -> Tensor | None:
        """Computes `factor` again if it is the difference of a large tensor from a mean."""
        difference = rewriter.maker(factor, SUBTRACT)
        if difference is None or not self._is_worth_it(rewriter, *difference.inputs):
            return None
        x, mean = difference.inputs
        return x - _fenced(mean, number)

    def _is_worth_it(self, rewriter: Rewriter, x: Tensor, mean: Tensor) -> bool:
        sizes = [dim for dim in x.type.shape if isinstance(dim, int)]
        return (
            len(sizes) == x.type.rank
            and prod(sizes) >= self.elements
            and x.type.rank > 1
            and mean.type.shape != x.type.shape
            and rewriter.maker(mean, FENCE) is None
        )


def _fenced(mean: Tensor, number: int) -> Tensor:
    return emit_one(FENCE, (mean,), number=number)
