"""Square roots of matrices, polar factors, and the equation a x + x b = c."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import CostContext, dims_of
from graphc.ir.dtypes import as_dtype, promote
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.emit import emit, emit_one, promote_inexact, to_dtype
from graphc.ops.elementwise.complex_parts import real
from graphc.ops.matrices.batch_dims import check_stack
from graphc.ops.matrices.matrix_checks import (
    DTYPES,
    check_matrices,
    check_square,
    matrix_operator,
    matrix_transpose,
)
from graphc.ops.matrices.matrix_costs import SCHUR_FORM, of_matrices, singular_vectors
from graphc.ops.matrices.matrix_product import matmul
from graphc.typing import TensorLike

__all__ = ["polar", "solve_sylvester", "sqrtm"]


# -- a x + x b = c ----------------------------------------------------------------------------


def _infer_sylvester(ctx: InferContext, a: TensorType, b: TensorType, c: TensorType) -> TensorType:
    check_matrices(ctx, a, b, c)
    check_stack(ctx, (c, 2), (a, 2), (b, 2))
    for label, other, size in (("rows", a, c.shape[-2]), ("columns", b, c.shape[-1])):
        side = ctx.unify(other.shape[-2], other.shape[-1], "sides of a matrix that must be square")
        ctx.unify(side, size, f"the side of a square matrix and the {label} of c")
    return c


def _solve_sylvester(a: Any, b: Any, c: Any) -> Any:
    """x by Schur forms on CPU. Elsewhere JAX has no Schur forms, and x is computed by
    eigenvectors."""
    # JAX treats sums of eigenvalues below an absolute `tol` as 0.
    size = jnp.maximum(*[jnp.max(jnp.abs(m), (-2, -1), keepdims=True) for m in (a, b)])
    size = jnp.where((size > 0) & jnp.isfinite(size), size, 1)
    a, b, c = a / size, b / size, c / size
    tol = 4 * float(np.finfo(c.dtype).eps)

    def by(method: str) -> Any:
        return lambda a, b, c: jax.scipy.linalg.solve_sylvester(a, b, c, method=method, tol=tol)

    by_vectors = by("eigen")
    if not jnp.iscomplexobj(c):  # the eigenvectors are complex, their product is not
        by_vectors = lambda a, b, c: by("eigen")(a, b, c).real.astype(c.dtype)  # noqa: E731
    return lax.platform_dependent(a, b, c, cpu=by("schur"), default=by_vectors)


def _sylvester(a: Any, b: Any, c: Any) -> Any:
    """x with a x + x b = c, for JAX values, with the derivatives of a linear equation."""

    def transposed(x: Any) -> Any:
        return jnp.swapaxes(x, -1, -2)

    return lax.custom_linear_solve(
        lambda x: a @ x + x @ b,
        c,
        solve=lambda _, c: _solve_sylvester(*lax.stop_gradient((a, b)), c),
        transpose_solve=lambda _, c: _solve_sylvester(
            *lax.stop_gradient((transposed(a), transposed(b))), c
        ),
    )


def _sylvester_gradient(ctx: GradientContext, node: Node, dx: Tensor) -> Adjoints:
    a, b, _ = node.inputs
    x = node.outputs[0]
    dc = emit_one(SYLVESTER, (matrix_transpose(a), matrix_transpose(b), dx))
    return [-matmul(dc, x, transpose_b=True), -matmul(x, dc, transpose_a=True), dc]


def _sylvester_cost(ctx: CostContext, node: Node) -> int:
    """Both Schur forms, c transformed, substitution, x transformed back.

    Source: Bartels & Stewart, in Golub & Van Loan 7.6.3.
    """
    *stack, m, n = dims_of(node.outputs[0])
    return math.prod(stack) * (SCHUR_FORM * (m**3 + n**3) + 5 * m * n * (m + n))


SYLVESTER = matrix_operator(
    "Sylvester(a, b, c) -> x",
    infer=_infer_sylvester,
    lower=lambda ctx, a, b, c: _sylvester(a, b, c),
    gradient=_sylvester_gradient,
    cost=_sylvester_cost,
    doc="x [..., m, n] with a x + x b = c, of matrices a [..., m, m], b [..., n, n] and c [..., "
    "m, n] of one stack; NaN if a and -b share an eigenvalue. On GPU by eigenvectors, which must "
    f"span the space. {DTYPES} Source: Bartels & Stewart, CACM 15, 1972.",
)


# -- square roots -----------------------------------------------------------------------------


@jax.custom_jvp
def _root(a: Any) -> Any:
    """The square roots of a stack of complex matrices."""
    return jnp.vectorize(jax.scipy.linalg.sqrtm, signature="(n,n)->(n,n)")(a)


@_root.defjvp
def _root_slope(operands: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    """The derivative of y with y y = a: dy with y dy + dy y = da."""
    y = _root(*operands)
    return y, _sylvester(y, y, tangents[0])


def _infer_root(ctx: InferContext, a: TensorType) -> TensorType:
    check_square(ctx, a)
    return TensorType(promote(a.dtype, as_dtype("complex64")), a.shape)


def _root_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    y = matrix_transpose(node.outputs[0])
    da = emit_one(SYLVESTER, (y, y, dy))
    own = node.inputs[0].dtype
    return [da if own == da.dtype else to_dtype(real(da), own)]


MATRIX_SQUARE_ROOT = matrix_operator(
    "MatrixSquareRoot(a) -> y",
    cpu_only=True,
    infer=_infer_root,
    lower=lambda ctx, a: _root(a.astype(jnp.result_type(a.dtype, jnp.complex64))),
    gradient=_root_gradient,
    cost=of_matrices(lambda m, n, k: (SCHUR_FORM + 10 / 3) * n**3),  # Higham 1987
    doc="The principal square roots of matrices [..., n, n]: complex, because whether a root is "
    f"real depends on the values. On CPU. {DTYPES} Source: Bjorck & Hammarling, A Schur method "
    "for the square root of a matrix, Linear Algebra Appl. 52/53, 1983.",
)


# -- polar factors ----------------------------------------------------------------------------


def _adjoint(a: Any) -> Any:
    return jnp.conj(jnp.swapaxes(a, -1, -2))


@jax.custom_jvp
def _nearest_unitary(a: Any) -> Any:
    """The polar factor u, with orthonormal columns, or rows if these are fewer."""
    w, _, vh = jnp.linalg.svd(a, full_matrices=False)
    return w @ vh


@_nearest_unitary.defjvp
def _nearest_unitary_slope(operands: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    """Uses singular values. Only sums of them are divisors, so equal singular values do no harm.

    Source: Higham, Functions of Matrices, SIAM 2008, chapter 8.
    """
    (a,), (da,) = operands, tangents
    wide = a.shape[-2] < a.shape[-1]
    if wide:
        a, da = _adjoint(a), _adjoint(da)
    w, s, vh = jnp.linalg.svd(a, full_matrices=False)
    turned = _adjoint(w) @ da @ _adjoint(vh)
    skew = (turned - _adjoint(turned)) / (s[..., :, None] + s[..., None, :])
    du = w @ skew
    if a.shape[-2] > a.shape[-1]:  # the part outside the column space
        du = du + (da @ _adjoint(vh) - w @ turned) / s[..., None, :]
    du = du @ vh
    u = w @ vh
    return (_adjoint(u), _adjoint(du)) if wide else (u, du)


def _infer_polar(ctx: InferContext, a: TensorType, *, side: str) -> tuple[TensorType, TensorType]:
    check_matrices(ctx, a)
    *stack, m, n = a.shape
    k = n if side == "right" else m
    return a, TensorType(a.dtype, (*stack, k, k))


def _lower_polar(ctx: LowerContext, a: Any, *, side: str) -> tuple[Any, Any]:
    u = _nearest_unitary(a)
    p = _adjoint(u) @ a if side == "right" else a @ _adjoint(u)
    return u, 0.5 * (p + _adjoint(p))


def _polar_count(m: int, n: int, k: int) -> float:
    """Singular vectors and two products."""
    return singular_vectors(m, n, k) + 4 * m * n * k


POLAR = matrix_operator(
    "Polar(a) -> u, p",
    attrs={
        "side": Attr(
            "str",
            default="right",
            check=lambda side: side in ("left", "right"),
            must="be left or right",
            doc="of u at which p is",
        )
    },
    infer=_infer_polar,
    lower=_lower_polar,
    cost=of_matrices(_polar_count),
    doc="u with orthonormal columns (rows, if these are fewer) and Hermitian p without negative "
    "eigenvalues such that a = u p, or a = p u for the left side, of matrices [..., m, n]. u is "
    f"the nearest such matrix. {DTYPES} Source: Higham, SIAM J. Sci. Stat. Comput. 7, 1986.",
)


# -- functions --------------------------------------------------------------------------------


def solve_sylvester(
    a: TensorLike, b: TensorLike, c: TensorLike, *, name: str | None = None
) -> Tensor:
    """The solution x of a x + x b = c.

    Args:
        a: [..., m, m].
        b: [..., n, n].
        c: [..., m, n]; the axes before the matrices are the same for all three.
        name: of the node.

    Returns:
        [..., m, n]; NaN if the sum of an eigenvalue of `a` and one of `b` is 0, because the
        solution is not unique then.

    Raises:
        ShapeError: not square, or sizes that do not fit.
        DTypeError: floats narrower than float32.

    Source: scipy.linalg.solve_sylvester.

    Examples:
        >>> run(gc.linalg.solve_sylvester([[1.0]], [[2.0]], [[6.0]]))
        Array([[2.]], dtype=float32)
    """
    return emit_one(SYLVESTER, promote_inexact(a, b, c), name)


def sqrtm(a: TensorLike, *, name: str | None = None) -> Tensor:
    """The principal square roots y of matrices: y y = a; on CPU.

    Args:
        a: [..., n, n], without eigenvalue 0.
        name: of the node.

    Returns:
        [..., n, n], complex; use `gc.real` if all eigenvalues of `a` are known to be positive.
        There are no gradients if an eigenvalue of y is the negative of another one.

    Raises:
        ShapeError: not square.
        DTypeError: floats narrower than float32.

    Source: scipy.linalg.sqrtm.

    Examples:
        >>> run(gc.real(gc.linalg.sqrtm([[4.0, 0.0], [0.0, 9.0]])))
        Array([[2., 0.],
               [0., 3.]], dtype=float32)
    """
    return emit_one(MATRIX_SQUARE_ROOT, promote_inexact(a), name)


def polar(a: TensorLike, side: str = "right", *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The factors of a = u p ("right") or a = p u ("left").

    Args:
        a: [..., m, n], of full rank if gradients are requested.
        side: the side of u at which p is multiplied.
        name: of the node.

    Returns:
        u [..., m, n], with orthonormal columns, or rows if these are fewer; and p, Hermitian
        without negative eigenvalues, [..., n, n] on the right and [..., m, m] on the left.

    Raises:
        ShapeError: not a matrix.
        DTypeError: floats narrower than float32.
        AttributeValueError: another side.

    Source: scipy.linalg.polar.

    Examples:
        >>> u, p = gc.linalg.polar([[0.0, 2.0], [1.0, 0.0]])
        >>> run(gc.round(p, 3))
        Array([[1., 0.],
               [0., 2.]], dtype=float32)
    """
    u, p = emit(POLAR, promote_inexact(a), name=name, side=side)
    return u, p


OPS: tuple[OpDef, ...] = (SYLVESTER, MATRIX_SQUARE_ROOT, POLAR)
