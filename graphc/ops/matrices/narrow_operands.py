"""Products of widened operands: which of them XLA computes from the narrow operands."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import ml_dtypes
import numpy as np

from graphc.ir.dtypes import DType
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.core.emit import CAST
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL

PRODUCTS: Final = (MATMUL, DOT_GENERAL)

# The dtype of operands -> the dtype of sums. Every product of two such numbers is exact in the wide
# dtype. On CPU, products from 64 rows on take 0.08 to 0.2 of the time with int8 and 0.4 to 0.6 with
# bf16, without a wide copy of the operands in memory, and other forms as long; uint8, int16 and
# float16 gain nothing.
_SUMS: Final[dict[DType, DType]] = {
    np.dtype(np.int8): np.dtype(np.int32),
    np.dtype(ml_dtypes.bfloat16): np.dtype(np.float32),
}


def widens(node: Node) -> bool:
    """Whether a product may take the operand of this cast in place of its result."""
    if node.op is not CAST:
        return False
    total = _SUMS.get(node.inputs[0].type.dtype)
    return total is not None and total == node.attrs["dtype"]  # to NumPy, None equals float64


def narrow_in_products(program: Program, apart: Collection[Tensor] = ()) -> set[Tensor]:
    """The results of casts that are not computed, because only products use them, which take the
    operands of the casts. Nodes whose results are in `apart` do not count as users.

    Products of one row are left out: XLA:CPU widens their weights in memory, and takes 0.5 to 0.6
    of the time if they are wide already.
    """
    casts = {node.outputs[0] for node in program.nodes if widens(node)}
    if not casts:
        return casts
    found = casts - set(program.output_tensors())
    for node in program.nodes:
        if node.outputs and node.outputs[0] in apart:
            continue
        if node.op not in PRODUCTS or not all(t in casts for t in node.inputs) or _one_row(node):
            found.difference_update(node.inputs)
    return found


def _one_row(product: Node) -> bool:
    """Whether an operand is known to be a vector, apart from axes of size 1."""
    a, b = product.inputs
    if product.op is MATMUL:
        summed: Sequence[int] = (a.ndim - 2 if product.attrs["transpose_a"] else a.ndim - 1,)
        summed_of_b: Sequence[int] = (b.ndim - 1 if product.attrs["transpose_b"] else b.ndim - 2,)
    else:
        summed, summed_of_b = product.attrs["lhs_contract"], product.attrs["rhs_contract"]
    return any(
        all(dim == 1 for axis, dim in enumerate(x.type.shape) if axis not in axes)
        for x, axes in ((a, summed), (b, summed_of_b))
    )
