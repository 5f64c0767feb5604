"""Straight weights: weights of products are stored as [in, out]."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.shape import transpose
from graphc.ops.core.emit import CAST, to_dtype
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.matrices.narrow_operands import widens
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.loop_stacks import uses_of
from graphc.passes.core.rules import Answer, Rewriter, change, simplify
from graphc.passes.frozen.frozen import frozen_tensors


@dataclass(frozen=True)
class StraightWeights(Pass):
    """Rewrites products with transposed state, `x @ w.T`, so that the state itself is transposed:
    models of PyTorch and ONNX store weights as [out, in].

    It assumes that all state is constant, so it is for `gc.freeze`, which transposes once for all
    runs. XLA:CPU computes `x @ w` in 0.5x to 1x of the time for 2 rows and more: 0.68x for
    [32, 3072] by [3072, 768], 0.92x for 197 rows.

    Must not: change products of one row, which take 1.1x to 1.25x; change state that something else
    uses too, such as a table of embeddings, which would be kept twice.

    Attributes:
        moving: names of state that is not constant.
    """

    moving: tuple[str, ...] = ()

    def run(self, program: Program) -> PassResult:
        frozen = frozen_tensors(program, self.moving)
        uses = uses_of(program)

        def straight(rewriter: Rewriter, node: Node) -> Answer:
            x, w = node.inputs
            if not node.attrs["transpose_b"] or w not in frozen:
                return None
            if x in frozen or _one_row(x, node.attrs["transpose_a"]):
                return None
            # The narrow operand of a cast, so that the product finds the cast; see
            # `narrow_operands`.
            cast = rewriter.maker(w, CAST)
            given = w if cast is None or not widens(cast) else cast.inputs[0]
            if max(uses[w], uses[given]) > 1:
                return None
            axes = range(len(w.type.shape))
            turned = to_dtype(transpose(given, (*axes[:-2], axes[-1], axes[-2])), w.type.dtype)
            return change(node, MATMUL, (x, turned), **{**node.attrs, "transpose_b": False})

        return simplify(self, program, {MATMUL: straight})


def _one_row(x: Tensor, transposed: bool) -> bool:
    """Whether an operand is known to have one row for each matrix of the other."""
    *batch, rows, columns = x.type.shape
    return all(dim == 1 for dim in (*batch, columns if transposed else rows))
