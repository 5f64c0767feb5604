"""Faster routines for special symmetric matrices: tridiagonal ones, and updated factors."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import CostContext, dims_of, size_of
from graphc.ir.dtypes import FLOAT64
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.cost_rules import times_operand
from graphc.ops.core.defining import define
from graphc.ops.core.emit import emit_one, promote_inexact
from graphc.ops.core.jvp_override import with_slope_of
from graphc.ops.matrices.batch_dims import check_stack, of_each
from graphc.ops.matrices.matrix_checks import check_square, matrix_operator
from graphc.typing import TensorLike

__all__ = ["cholesky_update", "eigh_tridiagonal"]

_DTYPES = "float32 and float64."


def _check_real(ctx: InferContext, *types: TensorType) -> None:
    real = ("float32", "float64")
    ctx.require_dtype(types, lambda dtype: dtype.name in real, "float32 or float64")


# -- eigenvalues of tridiagonal matrices ------------------------------------------------------


def _infer_tridiagonal(ctx: InferContext, d: TensorType, e: TensorType) -> TensorType:
    _check_real(ctx, d, e)
    ctx.require(d.rank > 0 and e.rank > 0, f"the diagonals must be vectors, got {d} and {e}")
    check_stack(ctx, (d, 1), (e, 1))
    ctx.unify(d.shape[-1] - 1, e.shape[-1], "the length of the subdiagonal and the size of e")
    return d


def _from_dense(d: Any, e: Any) -> Any:
    n = d.shape[-1]
    beside = jnp.zeros((*d.shape, n), d.dtype).at[..., jnp.arange(1, n), jnp.arange(n - 1)].set(e)
    dense = d[..., None] * jnp.eye(n, dtype=d.dtype) + beside + jnp.swapaxes(beside, -1, -2)
    return jnp.linalg.eigvalsh(dense)


def _by_bisection(d: Any, e: Any) -> Any:
    def of_one(d: Any, e: Any) -> Any:
        return jax.scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True)

    # It squares e, which must neither overflow nor underflow.
    size = jnp.maximum(jnp.max(jnp.abs(d), -1), jnp.max(jnp.abs(e), -1))[..., None]
    size = jnp.where((size > 0) & jnp.isfinite(size), size, 1)
    return size * jnp.vectorize(of_one, signature="(n),(m)->(n)")(d / size, e / size)


_tridiagonal_eigenvalues = with_slope_of(_from_dense, _by_bisection)


def _bisection_cost(ctx: CostContext, node: Node) -> int:
    """A Sturm sequence, 4 n, for each bit of each eigenvalue. Source: Golub & Van Loan 8.4."""
    (w,) = node.outputs
    bits = 52 if w.type.dtype == FLOAT64 else 23
    return 4 * dims_of(w)[-1] * bits * size_of(w)


EIGH_TRIDIAGONAL = define(
    "EighTridiagonal(d, e) -> w",
    precision="wide",
    infer=_infer_tridiagonal,
    lower=lambda ctx, d, e: _tridiagonal_eigenvalues(d, e) if d.shape[-1] > 1 else d,
    layout=of_each(1),
    cost=_bisection_cost,
    doc="The eigenvalues [..., n] in ascending order of symmetric matrices with the diagonal d "
    "[..., n] and the subdiagonal e [..., n - 1], by bisection; gradients by the eigenvectors of "
    f"the full matrices. {_DTYPES} Source: Barth, Martin & Wilkinson, Numerische Mathematik 9, "
    "1967.",
)


# -- updates of Cholesky factors --------------------------------------------------------------


def _infer_update(ctx: InferContext, factor: TensorType, w: TensorType) -> TensorType:
    _check_real(ctx, factor, w)
    n = check_square(ctx, factor)
    ctx.require(w.rank > 0, "w must be a vector, got a scalar")
    check_stack(ctx, (factor, 2), (w, 1))
    ctx.unify(n, w.shape[-1], "the side of factor and the size of w")
    return factor


def _factor_of_sum(factor: Any, w: Any) -> Any:
    lower = jnp.tril(factor)
    total = lower @ jnp.swapaxes(lower, -1, -2) + w[..., :, None] * w[..., None, :]
    return lax.linalg.cholesky(total, symmetrize_input=True)


def _by_rotations(factor: Any, w: Any) -> Any:
    """One matrix after the other, because JAX's routine takes no stacks."""

    def of_one(pair: tuple[Any, Any]) -> Any:
        return lax.linalg.cholesky_update(jnp.tril(pair[0]).T, pair[1]).T

    if factor.ndim == 2:
        return of_one((factor, w))
    n = factor.shape[-1]
    found = lax.map(of_one, (factor.reshape(-1, n, n), w.reshape(-1, n)))
    return found.reshape(factor.shape)


_updated = with_slope_of(_factor_of_sum, _by_rotations)


CHOLESKY_UPDATE = matrix_operator(
    "CholeskyUpdate(factor, w) -> updated",
    infer=_infer_update,
    lower=lambda ctx, factor, w: _updated(factor, w),
    cost=times_operand(3),  # Golub & Van Loan 6.5: n rotations of 6 n / 2
    doc="The Cholesky factors of l l^T + w w^T, of a lower triangular factor l [..., n, n] and w "
    f"[..., n], in n^2 steps each. {_DTYPES} Source: jax.lax.linalg.cholesky_update; Golub & Van "
    "Loan, Matrix Computations, 4th ed. 2013, section 6.5.4.",
)


def eigh_tridiagonal(d: TensorLike, e: TensorLike, *, name: str | None = None) -> Tensor:
    """The eigenvalues of symmetric tridiagonal matrices, in ascending order.

    Args:
        d: [..., n]: the diagonal.
        e: [..., n - 1]: the subdiagonal and superdiagonal.
        name: of the node.

    Returns:
        [..., n].

    Raises:
        ShapeError: sizes that do not fit.
        DTypeError: neither float32 nor float64.

    Source: scipy.linalg.eigh_tridiagonal with eigvals_only=True.

    Examples:
        >>> run(gc.linalg.eigh_tridiagonal([1.0, 3.0], [0.0]))
        Array([1., 3.], dtype=float32)
    """
    return emit_one(EIGH_TRIDIAGONAL, promote_inexact(d, e), name)


def cholesky_update(factor: TensorLike, w: TensorLike, *, name: str | None = None) -> Tensor:
    """The Cholesky factors of l l^T + w w^T, from those of l l^T.

    Args:
        factor: l [..., n, n], as returned by `cholesky`. Elements above the diagonal are not read.
        w: [..., n].
        name: of the node.

    Returns:
        [..., n, n], lower triangular.

    Raises:
        ShapeError: not square, or sizes that do not fit.
        DTypeError: neither float32 nor float64.

    Source: jax.lax.linalg.cholesky_update, which takes and returns upper triangles.

    Examples:
        >>> run(gc.linalg.cholesky_update(gc.eye(2), [1.0, 0.0]))
        Array([[1.4142, 0.    ],
               [0.    , 1.    ]], dtype=float32)
    """
    return emit_one(CHOLESKY_UPDATE, promote_inexact(factor, w), name)


OPS: tuple[OpDef, ...] = (EIGH_TRIDIAGONAL, CHOLESKY_UPDATE)
