"""Factorizations of matrices: Cholesky, QR, singular values, and eigenvalues of symmetric ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jax import lax

from graphc.errors import AttributeValueError, GradientError
from graphc.ir.costs import CostContext, dims_of
from graphc.ir.dims import Dim
from graphc.ir.dtypes import real_of
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.checks import known_alike, refuse
from graphc.ops.core.emit import cast, emit, emit_one, promote_inexact
from graphc.ops.matrices.matrix_checks import (
    DTYPES,
    adjoint,
    check_matrices,
    check_square,
    infer_square,
    lesser,
    matrix_operator,
    on_diagonal,
)
from graphc.ops.matrices.matrix_costs import explicit, of_matrices, reflections, singular_vectors
from graphc.typing import TensorLike, TensorTree

__all__ = ["cholesky", "eigh", "eigvalsh", "qr", "svd", "svdvals"]


# -- Cholesky -------------------------------------------------------------------------------


CHOLESKY = matrix_operator(
    "Cholesky(a) -> l",
    infer=infer_square,
    lower=lambda ctx, a: lax.linalg.cholesky(a, symmetrize_input=True),
    cost=of_matrices(lambda m, n, k: n**3 / 3),  # Golub & Van Loan 4.2
    doc="The lower triangular l with a = l l^H of matrices [..., n, n], which are averaged with "
    f"their adjoints; NaN if the average is not positive definite. {DTYPES}",
)


# -- QR -------------------------------------------------------------------------------------


def _infer_qr(ctx: InferContext, a: TensorType, *, full: bool) -> tuple[TensorType, TensorType]:
    check_matrices(ctx, a)
    *stack, m, n = a.shape
    k: Dim = m if full else lesser(ctx, m, n)
    return TensorType(a.dtype, (*stack, m, k)), TensorType(a.dtype, (*stack, k, n))


def _qr_gradient(
    ctx: GradientContext, node: Node, dq: Tensor | None, dr: Tensor | None
) -> Sequence[Tensor | None]:
    q, r = node.outputs
    if not known_alike(q.shape[-1:], r.shape[-1:], q):
        raise _no_gradient(node, "a complete factorization, or of wide matrices")
    return ctx.by_vjp(node, dq, dr)


def _no_gradient(node: Node, of: str) -> GradientError:
    return GradientError(
        f"{node.op.name}: there is no gradient of {of}",
        source=node.source,
        hint="the reduced factorization of tall matrices has one",
    )


def _qr_cost(ctx: CostContext, node: Node) -> int:
    """Triangular form by reflections, then q. Source: Golub & Van Loan 5.2."""
    *stack, m, n = dims_of(node.inputs[0])
    k, columns = min(m, n), dims_of(node.outputs[0])[-1]
    return round(math.prod(stack) * (reflections(m, n, k) + explicit(m, columns, k)))


QR = matrix_operator(
    "QR(a) -> q, r",
    attrs={"full": Attr("bool", default=False, doc="q square")},
    infer=_infer_qr,
    lower=lambda ctx, a, *, full: tuple(lax.linalg.qr(a, full_matrices=full)),
    gradient=_qr_gradient,
    cost=_qr_cost,
    doc="q with orthonormal columns and upper triangular r, a = q r, of matrices [..., m, n]: q "
    f"is [..., m, k] with k = min(m, n), or square if `full`. {DTYPES}",
)


# -- singular values ------------------------------------------------------------------------


def _infer_svd(ctx: InferContext, a: TensorType, *, full: bool) -> tuple[TensorType, ...]:
    s = _infer_singular_values(ctx, a)
    *stack, m, n = a.shape
    k = s.shape[-1]
    u, vh = (*stack, m, m if full else k), (*stack, n if full else k, n)
    return TensorType(a.dtype, u), s, TensorType(a.dtype, vh)


def _infer_singular_values(ctx: InferContext, a: TensorType) -> TensorType:
    check_matrices(ctx, a)
    *stack, m, n = a.shape
    return TensorType(real_of(a.dtype), (*stack, lesser(ctx, m, n)))


def _svd_gradient(
    ctx: GradientContext, node: Node, du: Tensor | None, ds: Tensor | None, dvh: Tensor | None
) -> Sequence[Tensor | None]:
    if node.attrs["full"]:
        raise _no_gradient(node, "full_matrices")
    return ctx.by_vjp(node, du, ds, dvh)


def _svd_cost(ctx: CostContext, node: Node) -> int:
    """With all vectors of the longer side m: 4 m^2 n + 8 m n^2 + 9 n^3. Source: Golub & Van Loan
    8.6."""
    *stack, m, n = dims_of(node.inputs[0])
    k, longer = min(m, n), max(m, n)
    if node.attrs["full"]:
        return math.prod(stack) * (4 * longer**2 * k + 8 * longer * k**2 + 9 * k**3)
    return round(math.prod(stack) * singular_vectors(m, n, k))


SVD = matrix_operator(
    "SVD(a) -> u, s, vh",
    attrs={"full": Attr("bool", default=False, doc="u and vh square")},
    infer=_infer_svd,
    lower=lambda ctx, a, *, full: tuple(lax.linalg.svd(a, full_matrices=full)),
    gradient=_svd_gradient,
    cost=_svd_cost,
    doc="u, vh with orthonormal columns and rows, and singular values s, descending, such that "
    f"a = u diag(s) vh, of matrices [..., m, n]. {DTYPES}",
)

SINGULAR_VALUES = matrix_operator(
    "SingularValues(a) -> s",
    infer=_infer_singular_values,
    lower=lambda ctx, a: lax.linalg.svd(a, compute_uv=False),
    cost=of_matrices(lambda m, n, k: 4 * m * n * k - 4 * k**3 / 3),  # Golub & Van Loan 8.6
    doc=f"The singular values, descending, of matrices [..., m, n]. {DTYPES}",
)


# -- eigenvalues ----------------------------------------------------------------------------


def _eigh_gradient(
    ctx: GradientContext, node: Node, dw: Tensor | None, dv: Tensor | None
) -> Adjoints:
    """Uses M = v^H da v: dw = diag(M), dv = v (F * M), where F_kj = 1 / (w_j - w_k), k != j.

    Equal eigenvalues matter only if the adjoint of the vectors is requested.
    Source: Giles, An extended collection of matrix derivative results, 2008, section 3.1.
    """
    ops, (w, v) = ctx.ops, node.outputs
    diagonal = on_diagonal(v)
    dm = None
    if dw is not None:
        dm = cast(ops.where(diagonal, ops.expand_dims(dw, -1), 0), v.dtype)
    if dv is not None:
        gaps = ops.expand_dims(w, -2) - ops.expand_dims(w, -1)
        inverse = ops.where(diagonal, 0, 1 / ops.where(diagonal, 1, gaps))
        of_v = cast(inverse, v.dtype) * ops.matmul(v, dv, transpose_a=True)
        dm = of_v if dm is None else dm + of_v
    da = ops.matmul(ops.matmul(ops.conj(v), dm), v, transpose_b=True)
    return [0.5 * (da + adjoint(da))]


EIGH = matrix_operator(
    "Eigh(a) -> w, v",
    infer=lambda ctx, a: (TensorType(real_of(a.dtype), (*a.shape[:-2], check_square(ctx, a))), a),
    lower=lambda ctx, a: tuple(lax.linalg.eigh(a))[::-1],  # JAX gives vectors, values
    gradient=_eigh_gradient,
    cost=of_matrices(lambda m, n, k: 9 * n**3),  # Golub & Van Loan 8.3
    doc="The eigenvalues (real, ascending) and the orthonormal eigenvectors, columns of v, of "
    f"matrices [..., n, n], which are averaged with their adjoints. {DTYPES}",
)


# -- functions ------------------------------------------------------------------------------


def cholesky(a: TensorLike, *, upper: bool = False, name: str | None = None) -> Tensor:
    """The Cholesky factor l of positive definite matrices: a = l l^H.

    Args:
        a: [..., n, n]. It is averaged with its adjoint, so both triangles count.
        upper: return l^H instead.
        name: of the node.

    Returns:
        [..., n, n], lower triangular; NaN if `a` is not positive definite.

    Raises:
        ShapeError: not square.
        DTypeError: floats narrower than float32.

    Source: numpy.linalg.cholesky.

    Examples:
        >>> run(gc.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]]))
        Array([[2., 0.],
               [1., 2.]], dtype=float32)
    """
    lower = emit_one(CHOLESKY, promote_inexact(a), name)
    return adjoint(lower) if upper else lower


def qr(a: TensorLike, mode: str = "reduced", *, name: str | None = None) -> TensorTree:
    """The factors q, with orthonormal columns, and r, upper triangular: a = q r.

    Args:
        a: [..., m, n], with k = min(m, n).
        mode: "reduced", "complete" (q is square; no gradient unless a is square), or "r".
        name: of the node.

    Returns:
        q [..., m, k] and r [..., k, n], with k = m for "complete"; only r for "r".

    Raises:
        AttributeValueError: another mode.
        ShapeError: not a matrix, or sides of unlike names.
        DTypeError: floats narrower than float32.

    Source: numpy.linalg.qr.

    Examples:
        >>> q, r = gc.linalg.qr([[3.0], [4.0]])
        >>> run(abs(r))
        Array([[5.]], dtype=float32)
    """
    if mode not in ("reduced", "complete", "r"):
        refuse(
            f'QR: mode must be "reduced", "complete" or "r", got {mode!r}',
            error=AttributeValueError,
        )
    q, r = emit(QR, promote_inexact(a), name=name, full=mode == "complete")
    return r if mode == "r" else (q, r)


def svd(
    a: TensorLike, full_matrices: bool = True, compute_uv: bool = True, *, name: str | None = None
) -> TensorTree:
    """The singular value decomposition a = u diag(s) vh.

    Args:
        a: [..., m, n], with k = min(m, n).
        full_matrices: make u and vh square. This has no gradient unless a is square.
        compute_uv: whether to compute u and vh. Their gradients are infinite if singular values are
            equal; gradients of s alone, with False here, are not.
        name: of the node.

    Returns:
        u [..., m, k], s [..., k] (real, descending) and vh [..., k, n]; or s alone.

    Raises:
        ShapeError: not a matrix, or sides of unlike names.
        DTypeError: floats narrower than float32.

    Source: numpy.linalg.svd.

    Examples:
        >>> u, s, vh = gc.linalg.svd([[0.0, 2.0], [1.0, 0.0]])
        >>> run(s)
        Array([2., 1.], dtype=float32)
    """
    (tensor,) = promote_inexact(a)
    if not compute_uv:
        return emit_one(SINGULAR_VALUES, (tensor,), name)
    square = tensor.ndim >= 2 and known_alike(tensor.shape[-1:], tensor.shape[-2:-1], tensor)
    return emit(SVD, (tensor,), name=name, full=bool(full_matrices) and not square)


def svdvals(a: TensorLike, *, name: str | None = None) -> Tensor:
    """The singular values, descending: `svd(a, compute_uv=False)`.

    Examples:
        >>> run(gc.linalg.svdvals([[0.0, 2.0], [1.0, 0.0]]))
        Array([2., 1.], dtype=float32)
    """
    result: Tensor = svd(a, compute_uv=False, name=name)
    return result


def eigh(a: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The eigenvalues and eigenvectors of symmetric or Hermitian matrices.

    Args:
        a: [..., n, n]. It is averaged with its adjoint, so both triangles count.
        name: of the node.

    Returns:
        The eigenvalues [..., n], real and ascending, and [..., n, n] with the eigenvectors as
        columns. Gradients of the vectors are infinite if eigenvalues are equal.

    Raises:
        ShapeError, DTypeError: as `cholesky`.

    Source: numpy.linalg.eigh.

    Examples:
        >>> values, vectors = gc.linalg.eigh([[2.0, 0.0], [0.0, 1.0]])
        >>> run(values)
        Array([1., 2.], dtype=float32)
    """
    values, vectors = emit(EIGH, promote_inexact(a), name=name)
    return values, vectors


def eigvalsh(a: TensorLike, *, name: str | None = None) -> Tensor:
    """The eigenvalues, ascending, of symmetric or Hermitian matrices [..., n, n]: see `eigh`.

    Examples:
        >>> run(gc.linalg.eigvalsh([[2.0, 0.0], [0.0, 1.0]]))
        Array([1., 2.], dtype=float32)
    """
    return eigh(a, name=name)[0]


OPS: tuple[OpDef, ...] = (CHOLESKY, QR, SVD, SINGULAR_VALUES, EIGH)
