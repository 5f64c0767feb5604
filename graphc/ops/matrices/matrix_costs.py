"""Operation counts of linear algebra.

Source: Golub & Van Loan, Matrix Computations, 4th ed. 2013. Section numbers are given where a
count is used. The counts of iterative algorithms are the averages given there. Lower-order terms
are omitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from graphc.ir.costs import CostContext, CostRule, dims_of, size_of
from graphc.ir.node import Node


def of_matrices(count: Callable[[int, int, int], float]) -> CostRule:
    """`count(m, n, min(m, n))` for each matrix [..., m, n] of the first operand."""

    def cost(ctx: CostContext, node: Node) -> int:
        *stack, m, n = dims_of(node.inputs[0])
        return round(math.prod(stack) * count(m, n, min(m, n)))

    return cost


def product(node: Node, inner: int) -> int:
    """One addition and one multiplication for each element of the first result and each of its
    `inner` terms."""
    return 2 * size_of(node.outputs[0]) * inner


def elimination(m: int, n: int, k: int) -> float:
    """LU factors with partial pivoting: 2 n^3 / 3 for square matrices (section 3.2)."""
    return 2 * m * n * k - (m + n) * k**2 + 2 * k**3 / 3


def reflections(m: int, n: int, k: int) -> float:
    """Triangular form by k Householder reflections: 2 n^2 (m - n / 3) if m >= n (section 5.2)."""
    return 2 * elimination(m, n, k)


def explicit(m: int, columns: int, k: int) -> float:
    """The first columns of the product of k reflections of length m (section 5.1.6)."""
    return 2 * elimination(m, columns, k)


def singular_vectors(m: int, n: int, k: int) -> float:
    """Singular values, and min(m, n) singular vectors on each side: 14 m n^2 + 8 n^3 if m >= n
    (section 8.6)."""
    return 14 * max(m, n) * k**2 + 8 * k**3


SCHUR_FORM = 25  # times n^3: Schur form and Schur vectors (section 7.5.6)
