"""Householder reflections: their products, and the Hessenberg form."""

from __future__ import annotations

import math
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import CostContext, dims_of
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.checks import no_gradient
from graphc.ops.core.emit import emit, emit_one, promote_inexact
from graphc.ops.core.jvp_override import with_slope_of
from graphc.ops.matrices.batch_dims import check_stack
from graphc.ops.matrices.matrix_checks import DTYPES, check_matrices, infer_square, matrix_operator
from graphc.ops.matrices.matrix_costs import explicit, of_matrices
from graphc.typing import TensorLike

__all__ = ["hessenberg", "householder_product"]


HESSENBERG = matrix_operator(
    "Hessenberg(a) -> h, q",
    cpu_only=True,
    infer=lambda ctx, a: (infer_square(ctx, a), a),
    lower=lambda ctx, a: tuple(jax.scipy.linalg.hessenberg(a, calc_q=True)),
    gradient=no_gradient(
        lambda node: "Hessenberg: there is no gradient of a Hessenberg form",
        hint="gc.linalg.qr, gc.linalg.eig and gc.linalg.eigh have gradients",
    ),
    cost=of_matrices(lambda m, n, k: 14 / 3 * n**3),  # with q; Golub & Van Loan 7.4.2
    doc="h, zero below the first subdiagonal, and unitary q such that a = q h q^H, of matrices "
    f"[..., n, n]. On CPU. {DTYPES} Source: jax.scipy.linalg.hessenberg.",
)


def _infer_product(ctx: InferContext, a: TensorType, taus: TensorType) -> TensorType:
    check_matrices(ctx, a)
    ctx.require(taus.rank > 0, "taus must be a vector, got a scalar")
    check_stack(ctx, (a, 2), (taus, 1))
    sizes = (taus.shape[-1], a.shape[-1], a.shape[-2])
    for i, what in enumerate(("taus than columns", "columns than rows")):
        least, most = sizes[i], sizes[i + 1]
        if isinstance(least, int) and isinstance(most, int):
            ctx.require(least <= most, f"there are more {what}")
    return a


def _compact(a: Any, taus: Any) -> Any:
    """The product as 1 - v t v^H with triangular t.

    Source: Schreiber & Van Loan, SIAM J. Sci. Stat. Comput. 10, 1989; Puglisi, ibid. 13, 1992.
    """
    (m, n), k = a.shape[-2:], taus.shape[-1]
    v = jnp.tril(a[..., :k], -1) + jnp.eye(m, k, dtype=a.dtype)
    vh = jnp.conj(jnp.swapaxes(v, -1, -2))
    scale = taus[..., None] * jnp.eye(k, dtype=a.dtype)
    t = lax.linalg.triangular_solve(
        jnp.eye(k, dtype=a.dtype) + scale @ jnp.triu(vh @ v, 1), scale, left_side=True, lower=False
    )
    return jnp.eye(m, n, dtype=a.dtype) - v @ (t @ vh[..., :n])


_reflected = with_slope_of(_compact, lax.linalg.householder_product)


def _product_cost(ctx: CostContext, node: Node) -> int:
    """Golub & Van Loan 5.1.6."""
    a, taus = node.inputs
    *stack, m, n = dims_of(a)
    return round(math.prod(stack) * explicit(m, n, dims_of(taus)[-1]))


HOUSEHOLDER_PRODUCT = matrix_operator(
    "HouseholderProduct(a, taus) -> q",
    infer=_infer_product,
    lower=lambda ctx, a, taus: _reflected(a, taus),
    cost=_product_cost,
    doc="The first n columns of the product of the reflections 1 - taus[i] v v^H, where v has "
    "zeros, a 1 at index i, and then column i of a [..., m, n] below its diagonal; taus [..., k], "
    f"k <= n <= m. {DTYPES} Source: jax.lax.linalg.householder_product.",
)


def hessenberg(a: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The Hessenberg form a = q h q^H: h, zero below the first subdiagonal, and unitary q; on CPU.

    Args:
        a: [..., n, n].
        name: of the node.

    Raises:
        ShapeError, DTypeError: as `det`.
        GradientError: when a gradient is computed.

    Source: scipy.linalg.hessenberg with calc_q=True.

    Examples:
        >>> h, q = gc.linalg.hessenberg([[1.0, 2.0], [3.0, 4.0]])
        >>> run(h)
        Array([[1., 2.],
               [3., 4.]], dtype=float32)
    """
    h, q = emit(HESSENBERG, promote_inexact(a), name=name)
    return h, q


def householder_product(a: TensorLike, taus: TensorLike, *, name: str | None = None) -> Tensor:
    """The first columns of the product of Householder reflections.

    Args:
        a: [..., m, n], n at most m; below the diagonal, column by column, the vectors of the
            reflections, whose element on the diagonal is 1.
        taus: [..., k], k at most n: the factors of the outer products of the vectors.
        name: of the node.

    Returns:
        [..., m, n], with orthonormal columns if 2 real(tau) = |tau|^2 |v|^2.

    Raises:
        ShapeError: sizes that do not fit.
        DTypeError: floats narrower than float32.

    Source: LAPACK's orgqr.

    Examples:
        >>> run(gc.linalg.householder_product(gc.eye(2), [0.0, 0.0]))
        Array([[ 1.,  0.],
               [-0.,  1.]], dtype=float32)
    """
    return emit_one(HOUSEHOLDER_PRODUCT, promote_inexact(a, taus), name)


OPS: tuple[OpDef, ...] = (HESSENBERG, HOUSEHOLDER_PRODUCT)
