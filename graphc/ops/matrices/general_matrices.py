"""Factorizations and eigenvalues of general square matrices, and tridiagonal systems."""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from graphc.ir.costs import size_of
from graphc.ir.dtypes import INT32, as_dtype, promote
from graphc.ir.node import Tensor
from graphc.ir.opdef import InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.diagonals import tril, triu
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.shape import expand_dims
from graphc.ops.core.checks import no_gradient, refuse
from graphc.ops.core.defining import define
from graphc.ops.core.emit import cast, convert, emit, emit_one, promote_inexact, promote_operands
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.comparison import equal
from graphc.ops.matrices.batch_dims import of_each
from graphc.ops.matrices.matrix_checks import (
    DTYPES,
    check_matrices,
    check_square,
    infer_square,
    lesser,
    matrix_operator,
    on_diagonal,
)
from graphc.ops.matrices.matrix_costs import SCHUR_FORM, elimination, of_matrices
from graphc.ops.matrices.solving import triangular_solve
from graphc.typing import TensorLike

__all__ = ["eig", "eigvals", "lu", "lu_factor", "lu_solve", "schur", "tridiagonal_solve"]


# -- LU -------------------------------------------------------------------------------------


def _infer_lu(ctx: InferContext, a: TensorType) -> tuple[TensorType, ...]:
    check_matrices(ctx, a)
    *stack, m, n = a.shape
    return (
        a,
        TensorType(INT32, (*stack, lesser(ctx, m, n))),
        TensorType(INT32, (*stack, m)),
    )


LU = matrix_operator(
    "LU(a) -> lu, pivots, permutation",
    infer=_infer_lu,
    lower=lambda ctx, a: tuple(lax.linalg.lu(a)),
    cost=of_matrices(elimination),
    doc="The LU factors of matrices [..., m, n] with exchanged rows: l below the diagonal, "
    "without its unit diagonal, and u. Row i was exchanged with row pivots[i] (int32) and came "
    f"from row permutation[i]. {DTYPES} Source: jax.lax.linalg.lu.",
)


# -- eigenvalues ----------------------------------------------------------------------------


def _infer_eig(ctx: InferContext, a: TensorType) -> tuple[TensorType, TensorType]:
    n = check_square(ctx, a)
    dtype = promote(a.dtype, as_dtype("complex64"))
    return TensorType(dtype, (*a.shape[:-2], n)), TensorType(dtype, a.shape)


EIG = matrix_operator(
    "Eig(a) -> w, v",
    infer=_infer_eig,
    lower=lambda ctx, a: tuple(
        lax.linalg.eig(a, compute_left_eigenvectors=False, enable_eigvec_derivs=True)
    ),
    cost=of_matrices(lambda m, n, k: (SCHUR_FORM + 4 / 3) * n**3),  # back substitution, a product
    doc="The eigenvalues, unordered, and the eigenvectors, which are the columns of v with norm "
    f"1, of matrices [..., n, n]: complex. On CPU and GPU. {DTYPES} Source: jax.lax.linalg.eig.",
)


SCHUR = matrix_operator(
    "Schur(a) -> t, z",
    cpu_only=True,
    infer=lambda ctx, a: (infer_square(ctx, a), a),
    lower=lambda ctx, a: tuple(lax.linalg.schur(a)),
    gradient=no_gradient(
        lambda node: "Schur: there is no gradient of a Schur decomposition",
        hint="gc.linalg.eig and gc.linalg.eigh have gradients",
    ),
    cost=of_matrices(lambda m, n, k: SCHUR_FORM * n**3),
    doc="Upper triangular t (with 2x2 blocks on the diagonal for real matrices) and unitary z "
    f"such that a = z t z^H, of matrices [..., n, n]. On CPU. {DTYPES} Source: "
    "jax.lax.linalg.schur.",
)


# -- tridiagonal systems --------------------------------------------------------------------


def _infer_tridiagonal(
    ctx: InferContext, lower: TensorType, main: TensorType, upper: TensorType, b: TensorType
) -> TensorType:
    check_matrices(ctx, b)
    for diagonal in (lower, main, upper):
        ctx.require(diagonal.dtype == b.dtype, f"dtypes differ: {diagonal} and {b}", dtype=True)
        ctx.require(
            diagonal.rank == b.rank - 1,
            f"the diagonals of {b} must have the sizes [..., m], got {diagonal}",
        )
        for own, other in zip(diagonal.shape, b.shape[:-1], strict=True):
            ctx.unify(own, other, "sizes of a diagonal and of b")
    return b


TRIDIAGONAL_SOLVE = define(
    "TridiagonalSolve(lower, main, upper, b) -> x",
    precision="wide",
    infer=_infer_tridiagonal,
    lower=lambda ctx, *operands: lax.linalg.tridiagonal_solve(*operands),
    layout=of_each(1),  # systems are independent of each other
    # Elimination of one diagonal, 3 m; 5 m for each column. Source: Golub & Van Loan 4.3.
    cost=lambda ctx, node: 3 * size_of(node.inputs[1]) + 5 * size_of(node.outputs[0]),
    doc="x [..., m, n] of a x = b, where a [..., m, m] has these diagonals [..., m]: the first "
    f"element of `lower` and the last of `upper` are ignored. {DTYPES} Source: "
    "jax.lax.linalg.tridiagonal_solve.",
)


# -- functions ------------------------------------------------------------------------------


def lu_factor(a: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The factors l and u of matrices with exchanged rows, in one array, and the exchanges.

    Args:
        a: [..., m, n].
        name: of the node.

    Returns:
        [..., m, n]: u, and below the diagonal l without its unit diagonal; and int32
        [..., min(m, n)]: the row that row i was exchanged with.

    Raises:
        ShapeError: not a matrix, or sides of unlike names.
        DTypeError: floats narrower than float32.

    Source: scipy.linalg.lu_factor.

    Examples:
        >>> factors = gc.linalg.lu_factor([[2.0, 0.0], [0.0, 4.0]])
        >>> run(gc.linalg.lu_solve(factors, [2.0, 8.0]))
        Array([1., 2.], dtype=float32)
    """
    factors, pivots, _ = emit(LU, promote_inexact(a), name=name)
    return factors, pivots


def lu(a: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of matrices a = p l u: p exchanges rows, l is lower and u upper triangular.

    Args:
        a: [..., m, n], with k = min(m, n).
        name: of the node.

    Returns:
        p [..., m, m], l [..., m, k] with ones on the diagonal, and u [..., k, n].

    Raises:
        ShapeError, DTypeError: as `lu_factor`.

    Source: scipy.linalg.lu.

    Examples:
        >>> p, l, u = gc.linalg.lu([[0.0, 2.0], [1.0, 1.0]])
        >>> run(p @ l @ u)
        Array([[0., 2.],
               [1., 1.]], dtype=float32)
    """
    factors, pivots, permutation = emit(LU, promote_inexact(a), name=name)
    count = pivots.shape[-1]
    left = factors[..., :count]
    unit = cast(on_diagonal(left), factors.dtype)
    rows = iota(permutation.shape[-1:], 0)
    p = equal(expand_dims(rows, -1), expand_dims(permutation, -2))
    return cast(p, factors.dtype), tril(left, -1) + unit, triu(factors[..., :count, :])


def lu_solve(
    factors: tuple[TensorLike, TensorLike], b: TensorLike, *, name: str | None = None
) -> Tensor:
    """The solution x of a x = b for a square matrix that `lu_factor` factored.

    Args:
        factors: the results of `lu_factor`: [n, n] and int32 [n]. Pivots out of range raise errors
            in runs with `CompileOptions(check_numerics=True)`.
        b: [n] or [n, k].
        name: of the node.

    Raises:
        ShapeError: not one square matrix, or sizes that do not fit.

    Source: scipy.linalg.lu_solve.

    Examples:
        >>> factors = gc.linalg.lu_factor([[2.0, 0.0], [0.0, 4.0]])
        >>> run(gc.linalg.lu_solve(factors, [2.0, 8.0]))
        Array([1., 2.], dtype=float32)
    """
    lu, pivots = (convert(part) for part in factors)
    count = pivots.shape[0] if pivots.ndim else None
    if lu.ndim != 2 or not isinstance(count, int):
        refuse("lu_solve: takes one matrix of known size", lu=lu, pivots=pivots)
    pivots = in_range(pivots, 0, count, "pivots", of="lu_solve")
    order = iota(pivots.shape, 0)
    for i in range(count):  # apply the exchanges in order
        j = pivots[i]
        here, there = order[i], take(order, j, mode="clip")
        order = order.at[i].set(there).at[j].set(here)
    right = take(convert(b), order, mode="clip")
    columns = right if right.ndim == 2 else expand_dims(right, -1)
    half = triangular_solve(lu, columns, lower=True, unit_diagonal=True)
    found = triangular_solve(lu, half, lower=False, name=name)
    return found if right.ndim == 2 else found[:, 0]


def eig(a: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The eigenvalues and eigenvectors of any square matrices; on CPU and GPU.

    Args:
        a: [..., n, n].
        name: of the node.

    Returns:
        The eigenvalues [..., n], unordered, and [..., n, n] with the eigenvectors as columns of
        norm 1; complex. Gradients are infinite if eigenvalues are equal.

    Raises:
        ShapeError: not square.
        DTypeError: floats narrower than float32.

    Source: numpy.linalg.eig.

    Examples:
        >>> values, vectors = gc.linalg.eig([[0.0, -1.0], [1.0, 0.0]])
        >>> run(gc.sort(gc.imag(values)))
        Array([-1.,  1.], dtype=float32)
    """
    values, vectors = emit(EIG, promote_inexact(a), name=name)
    return values, vectors


def eigvals(a: TensorLike, *, name: str | None = None) -> Tensor:
    """The eigenvalues of any square matrices: see `eig`. Source: numpy.linalg.eigvals.

    Examples:
        >>> run(gc.sort(gc.imag(gc.linalg.eigvals([[0.0, -1.0], [1.0, 0.0]]))))
        Array([-1.,  1.], dtype=float32)
    """
    return eig(a, name=name)[0]


def schur(a: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The Schur form a = z t z^H with unitary z and upper triangular t, which has 2x2 blocks on the
    diagonal for real matrices. On CPU.

    Args:
        a: [..., n, n].
        name: of the node.

    Raises:
        ShapeError: not square.
        DTypeError: floats narrower than float32.
        GradientError: when a gradient is computed.

    Source: scipy.linalg.schur.

    Examples:
        >>> t, z = gc.linalg.schur([[1.0, 2.0], [0.0, 3.0]])
        >>> run(gc.round(gc.real(z @ t @ z.T), 3))
        Array([[1., 2.],
               [0., 3.]], dtype=float32)
    """
    upper, vectors = emit(SCHUR, promote_inexact(a), name=name)
    return upper, vectors


def tridiagonal_solve(
    lower: TensorLike,
    main: TensorLike,
    upper: TensorLike,
    b: TensorLike,
    *,
    name: str | None = None,
) -> Tensor:
    """The solution x of a x = b for tridiagonal a.

    Args:
        lower: [..., m]: below the main diagonal; the first element is ignored.
        main: [..., m].
        upper: [..., m]: above it; the last element is ignored.
        b: [..., m, n].
        name: of the node.

    Returns:
        [..., m, n].

    Raises:
        ShapeError: sizes that do not fit.
        DTypeError: floats narrower than float32.

    Source: jax.lax.linalg.tridiagonal_solve.

    Examples:
        >>> run(gc.linalg.tridiagonal_solve([0.0, 0.0], [2.0, 4.0], [0.0, 0.0], [[2.0], [8.0]]))
        Array([[1.],
               [2.]], dtype=float32)
    """
    operands: Sequence[Tensor] = promote_operands(lower, main, upper, b)
    return emit_one(TRIDIAGONAL_SOLVE, promote_inexact(*operands), name)


OPS: tuple[OpDef, ...] = (LU, EIG, SCHUR, TRIDIAGONAL_SOLVE)
