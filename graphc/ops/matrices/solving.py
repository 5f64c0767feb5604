"""Linear equations, and inverses of matrices."""

from __future__ import annotations

import math
from typing import Any

from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import CostContext, dims_of, size_of
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import expand_dims, squeeze
from graphc.ops.core.broadcasting import Adjoints, require_one_dtype
from graphc.ops.core.declaring import Given, Operands, declared
from graphc.ops.core.defining import define
from graphc.ops.core.emit import emit_one, promote_inexact
from graphc.ops.matrices.matrix_checks import (
    DTYPES,
    adjoint,
    check_matrices,
    check_square,
    infer_square,
    matrix_function,
    solve_layout,
)
from graphc.ops.matrices.matrix_costs import elimination, of_matrices, singular_vectors
from graphc.typing import TensorLike

__all__ = ["cholesky_solve", "inv", "pinv", "solve", "triangular_solve"]


def _infer_solve(ctx: InferContext, a: TensorType, b: TensorType, **attrs: bool) -> TensorType:
    require_one_dtype(ctx, a, b)
    check_matrices(ctx, a, b)
    n = check_square(ctx, a)
    ctx.unify(n, b.shape[-2], "the rows of a and b")
    return TensorType(b.dtype, (*ctx.broadcast(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]))


def _stacked_alike(a: Any, b: Any) -> tuple[Any, Any]:
    """JAX values with broadcast batch axes."""
    stack = lax.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    full_a, full_b = (*stack, *a.shape[-2:]), (*stack, *b.shape[-2:])
    return jnp.broadcast_to(a, full_a), jnp.broadcast_to(b, full_b)


def _lower_triangular_solve(
    ctx: LowerContext, a: Any, b: Any, *, lower: bool, transpose: bool, unit_diagonal: bool
) -> Any:
    a, b = _stacked_alike(a, b)
    return lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=transpose, unit_diagonal=unit_diagonal
    )


def _solve_cost(ctx: CostContext, node: Node) -> int:
    """Elimination and two substitutions for each matrix. Source: Golub & Van Loan 3.2."""
    *stack, n, columns = dims_of(node.outputs[0])
    return round(math.prod(stack) * (elimination(n, n, n) + 2 * n**2 * columns))


SOLVE = define(
    "Solve(a, b) -> x",
    precision="wide",
    infer=_infer_solve,
    lower=lambda ctx, a, b: jnp.linalg.solve(*_stacked_alike(a, b)),
    layout=solve_layout,
    cost=_solve_cost,
    doc="x with a x = b, of matrices [..., n, n] and [..., n, k]; the axes before them broadcast. "
    + DTYPES,
)


TRIANGULAR_SOLVE = define(
    "TriangularSolve(a, b) -> x",
    precision="wide",
    attrs={
        "lower": Attr("bool", default=True, doc="which triangle of a counts"),
        "transpose": Attr("bool", default=False, doc="a is transposed first"),
        "unit_diagonal": Attr("bool", default=False, doc="the diagonal of a counts as ones"),
    },
    infer=_infer_solve,
    lower=_lower_triangular_solve,
    layout=solve_layout,
    # n^2 for each column. Source: Golub & Van Loan 3.1.
    cost=lambda ctx, node: dims_of(node.outputs[0])[-2] * size_of(node.outputs[0]),
    doc="x with a x = b for triangular a, of matrices [..., n, n] and [..., n, k]; the axes before "
    f"them broadcast. {DTYPES}",
)


def _inverse_gradient(ctx: GradientContext, node: Node, dx: Tensor) -> Adjoints:
    x = node.outputs[0]
    product = ctx.ops.matmul(x, dx, transpose_a=True)
    return [-ctx.ops.matmul(product, x, transpose_b=True)]


def _infer_pseudo_inverse(ctx: InferContext, a: TensorType, *, rtol: float | None) -> TensorType:
    check_matrices(ctx, a)
    *stack, m, n = a.shape
    return TensorType(a.dtype, (*stack, n, m))


@matrix_function(
    "Inverse",
    "a -> x",
    infer=infer_square,
    lower=lambda ctx, a: jnp.linalg.inv(a),
    gradient=_inverse_gradient,
    cost=of_matrices(lambda m, n, k: 2 * n**3),
)
def inv(a: TensorLike, *, name: str | None = None) -> Given:
    """The inverses of matrices [..., n, n]; infinite or NaN if a matrix is singular.

    `solve(a, b)` is faster and more exact than `inv(a) @ b`.

    Raises:
        ShapeError, DTypeError: as `det`.

    Source: numpy.linalg.inv.

    Examples:
        >>> run(gc.linalg.inv([[2.0, 0.0], [0.0, 4.0]]))
        Array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float32)
    """
    return promote_inexact(a)


@matrix_function(
    "PseudoInverse",
    "a -> x",
    infer=_infer_pseudo_inverse,
    lower=lambda ctx, a, *, rtol: jnp.linalg.pinv(a, rtol=rtol),
    attrs={
        "rtol": Attr(
            "float",
            default=None,
            doc="singular values below rtol times the greatest count as 0; None: 10 times the "
            "greater side times the dtype's epsilon",
        )
    },
    cost=of_matrices(lambda m, n, k: singular_vectors(m, n, k) + 2 * m * n * k),
)
def pinv(a: TensorLike, rtol: float | None = None, *, name: str | None = None) -> Given:
    """The Moore-Penrose inverses [..., n, m] of matrices [..., m, n].

    Args:
        a: [..., m, n].
        rtol: singular values below `rtol` times the greatest count as 0; by default 10 times
            the greater side times the dtype's epsilon.
        name: of the node.

    Returns:
        [..., n, m].

    Raises:
        ShapeError: not a matrix.
        DTypeError: floats narrower than float32.

    Source: numpy.linalg.pinv; the default of rtol is jax.numpy.linalg.pinv's. The gradient: Golub &
    Pereyra, SIAM J. Numer. Anal. 10, 1973.

    Examples:
        >>> run(gc.linalg.pinv([[2.0], [0.0]]))
        Array([[0.5, 0. ]], dtype=float32)
    """
    return Operands(*promote_inexact(a), rtol=rtol)


def solve(a: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """The solution x of a x = b.

    Args:
        a: [..., n, n].
        b: [n], one vector for all matrices; or [..., n, k] with broadcasting batch axes.
        name: of the node.

    Returns:
        [..., n] for a vector, else [..., n, k]. Infinite or NaN if `a` is singular.

    Raises:
        ShapeError: `a` is not square, or `a` and `b` differ in their numbers of rows.
        DTypeError: floats narrower than float32.

    Source: numpy.linalg.solve.

    Examples:
        >>> run(gc.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 8.0]))
        Array([1., 2.], dtype=float32)
    """
    return _solution(SOLVE, a, b, name)


def _solution(op: OpDef, a: Any, b: Any, name: str | None, **attrs: Any) -> Tensor:
    """`op` applied to `a` and `b`, which is a vector or a matrix of columns."""
    a, b = promote_inexact(a, b)
    if b.ndim != 1:
        return emit_one(op, (a, b), name, **attrs)
    return squeeze(emit_one(op, (a, expand_dims(b, -1)), name, **attrs), -1)


def triangular_solve(
    a: TensorLike,
    b: TensorLike,
    *,
    lower: bool = True,
    transpose: bool = False,
    unit_diagonal: bool = False,
    name: str | None = None,
) -> Tensor:
    """The solution x of a x = b for triangular `a`. The other triangle is not read.

    Args:
        a: [..., n, n].
        b: [n], one vector for all matrices; or [..., n, k] with broadcasting batch axes.
        lower: whether `a` is lower or upper triangular.
        transpose: solve a^T x = b instead.
        unit_diagonal: treat the diagonal of `a` as ones.
        name: of the node.

    Returns:
        [..., n] for a vector, else [..., n, k].

    Raises:
        ShapeError, DTypeError: as `solve`.

    Source: scipy.linalg.solve_triangular.

    Examples:
        >>> run(gc.linalg.triangular_solve([[2.0, 0.0], [1.0, 1.0]], [2.0, 3.0]))
        Array([1., 2.], dtype=float32)
    """
    attrs = {"lower": lower, "transpose": transpose, "unit_diagonal": unit_diagonal}
    return _solution(TRIANGULAR_SOLVE, a, b, name, **attrs)


def cholesky_solve(factor: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """The solution x of l l^H x = b, where the lower triangular l is `cholesky(a)`.

    Shapes and errors as in `triangular_solve`. Source: scipy.linalg.cho_solve.

    Examples:
        >>> factor = gc.linalg.cholesky([[4.0, 0.0], [0.0, 1.0]])
        >>> run(gc.linalg.cholesky_solve(factor, [8.0, 3.0]))
        Array([2., 3.], dtype=float32)
    """
    factor, b = promote_inexact(factor, b)
    half = triangular_solve(factor, b)
    return triangular_solve(adjoint(factor), half, lower=False, name=name)


OPS: tuple[OpDef, ...] = (*declared(__name__), SOLVE, TRIANGULAR_SOLVE)
