"""Products of many matrices. No operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir.dims import Shape
from graphc.ir.node import Tensor
from graphc.ops.core.checks import is_static, refuse
from graphc.ops.core.emit import promote_operands
from graphc.ops.matrices.matrix_product import matmul
from graphc.typing import TensorLike

__all__ = ["multi_dot"]


def multi_dot(arrays: Sequence[TensorLike], *, name: str | None = None) -> Tensor:
    """The matrix product of all `arrays`, in the order with the fewest multiplications.

    Args:
        arrays: two or more matrices; the first and the last may be vectors. With named sizes, the
            order is from left to right.
        name: of the node.

    Raises:
        ShapeError: fewer than two, other ranks, or sizes that do not fit.

    Source: numpy.linalg.multi_dot.

    Examples:
        >>> run(gc.linalg.multi_dot([[1, 2], [[1, 0], [0, 1]], [3, 4]]))
        Array(11, dtype=int32)
    """
    tensors = promote_operands(*arrays) if arrays else []
    if len(tensors) < 2:
        refuse(f"multi_dot: two or more arrays are needed, got {len(tensors)}")
    for i, x in enumerate(tensors):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, len(tensors) - 1)):
            refuse(f"multi_dot: number {i} must be a matrix", x=x)
    sizes = _chain_sizes(tensors)
    if not is_static(*sizes):
        sizes = ()
    return _chain(tensors, sizes, name)


def _chain_sizes(tensors: Sequence[Tensor]) -> Shape:
    """The rows of the first operand, then the columns of each; 1 for the missing axis of a
    vector."""
    first, *rest = tensors
    start = (1, first.shape[0]) if first.ndim == 1 else first.shape
    return (*start, *(1 if x.ndim == 1 else x.shape[1] for x in rest))


def _chain(tensors: Sequence[Tensor], sizes: Sequence[Any], name: str | None) -> Tensor:
    if len(tensors) == 1:
        return tensors[0]
    cut = _best_cuts(sizes)[0, len(tensors)] if sizes else len(tensors) - 1
    left = _chain(tensors[:cut], sizes[: cut + 1], None)
    return matmul(left, _chain(tensors[cut:], sizes[cut:], None), name=name)


def _best_cuts(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """The position of the last product in each run of matrices.

    Source: Cormen et al., Introduction to Algorithms, 3rd ed. 2009, section 15.2.
    """
    count = len(sizes) - 1
    cost = {(i, i + 1): 0 for i in range(count)}
    cuts = {}
    for length in range(2, count + 1):
        for i in range(count - length + 1):
            j = i + length
            cost[i, j], cuts[i, j] = min(
                (cost[i, k] + cost[k, j] + sizes[i] * sizes[k] * sizes[j], k)
                for k in range(i + 1, j)
            )
    return cuts
