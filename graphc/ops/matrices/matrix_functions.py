"""Functions of square matrices: determinants, powers, the exponential, the trace."""

from __future__ import annotations

import jax
from jax import numpy as jnp

from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.dtypes import real_of
from graphc.ir.node import Tensor
from graphc.ir.opdef import InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import zeros_like
from graphc.ops.arrays.diagonals import diagonal
from graphc.ops.core.checks import refuse, same_shape
from graphc.ops.core.declaring import Given, declared
from graphc.ops.core.emit import convert, emit, promote_inexact
from graphc.ops.elementwise.comparison import where
from graphc.ops.matrices.matrix_checks import (
    DTYPES,
    check_square,
    infer_square,
    matrix_function,
    matrix_operator,
    on_diagonal,
)
from graphc.ops.matrices.matrix_costs import elimination, of_matrices
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.matrices.solving import inv
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import TensorLike

__all__ = ["det", "expm", "matrix_power", "slogdet", "trace"]


def _infer_det(ctx: InferContext, a: TensorType) -> TensorType:
    check_square(ctx, a)
    return TensorType(a.dtype, a.shape[:-2])


def _infer_slogdet(ctx: InferContext, a: TensorType) -> tuple[TensorType, TensorType]:
    sign = _infer_det(ctx, a)
    return sign, TensorType(real_of(a.dtype), sign.shape)


@matrix_function(
    "Determinant",
    "a -> d",
    infer=_infer_det,
    lower=lambda ctx, a: jnp.linalg.det(a),
    cost=of_matrices(elimination),
)
def det(a: TensorLike, *, name: str | None = None) -> Given:
    """The determinants [...] of matrices [..., n, n].

    Raises:
        ShapeError: not square.
        DTypeError: floats narrower than float32.

    Source: numpy.linalg.det.

    Examples:
        >>> run(gc.linalg.det([[2.0, 0.0], [0.0, 3.0]]))
        Array(6., dtype=float32)
    """
    return promote_inexact(a)


LOG_DETERMINANT = matrix_operator(
    "LogDeterminant(a) -> sign, logabs",
    infer=_infer_slogdet,
    lower=lambda ctx, a: tuple(jnp.linalg.slogdet(a)),
    cost=of_matrices(elimination),
    doc="The sign (or phase) and the logarithm of the absolute value of the determinants of "
    f"matrices [..., n, n]. {DTYPES}",
)


def _exponential_count(m: int, n: int, k: int) -> float:
    """Six products and a solution for the Padé approximation of order 13; four squarings.

    Source: Higham, SIAM J. Matrix Anal. Appl. 26, 2005. The number of squarings depends on the norm
    of the matrix: four for a norm of 80.
    """
    return (6 * 2 + 8 / 3 + 4 * 2) * n**3


@matrix_function(
    "MatrixExponential",
    infer=infer_square,
    lower=lambda ctx, a: jax.scipy.linalg.expm(a),
    cost=of_matrices(_exponential_count),
)
def expm(a: TensorLike, *, name: str | None = None) -> Given:
    """The exponentials of matrices [..., n, n].

    Raises:
        ShapeError, DTypeError: as `det`.

    Source: scipy.linalg.expm; Higham, The scaling and squaring method revisited, SIAM J. Matrix
    Anal. 26, 2005.

    Examples:
        >>> run(gc.linalg.expm([[0.0, 1.0], [0.0, 0.0]]))
        Array([[1., 1.],
               [0., 1.]], dtype=float32)
    """
    return promote_inexact(a)


def slogdet(a: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The determinants of matrices [..., n, n] without overflow: sign * exp(logabs).

    Returns:
        The sign [...], 0 if singular and of absolute value 1 for complex numbers, and the logarithm
        of the absolute value [...], real.

    Raises:
        ShapeError, DTypeError: as `det`.

    Source: numpy.linalg.slogdet.

    Examples:
        >>> run(gc.linalg.slogdet([[-1.0, 0.0], [0.0, 1.0]]))
        (Array(-1., dtype=float32), Array(0., dtype=float32))
    """
    sign, logabs = emit(LOG_DETERMINANT, promote_inexact(a), name=name)
    return sign, logabs


def matrix_power(a: TensorLike, n: int, *, name: str | None = None) -> Tensor:
    """The power of matrices with an integer exponent, by repeated squaring.

    Args:
        a: [..., m, m]; integers stay integers if n is not negative.
        n: an int; if it is negative, the inverse is computed first.
        name: of the node.

    Raises:
        ShapeError: not square.
        AttributeValueError: n is not an int.

    Source: numpy.linalg.matrix_power.

    Examples:
        >>> run(gc.linalg.matrix_power([[1, 1], [0, 1]], 3))
        Array([[1, 3],
               [0, 1]], dtype=int32)
    """
    tensor = convert(a)
    if type(n) is not int:
        refuse(f"matrix_power: n must be an int, got {n!r}", error=AttributeValueError, a=tensor)
    if tensor.ndim < 2 or not same_shape(tensor.shape[-1:], tensor.shape[-2:-1], tensor):
        refuse("matrix_power: a must hold square matrices", error=ShapeError, a=tensor)
    if n == 0:
        return where(on_diagonal(tensor), 1, zeros_like(tensor), name=name)
    return _positive_power(inv(tensor) if n < 0 else tensor, abs(n), name)


def _positive_power(a: Tensor, n: int, name: str | None) -> Tensor:
    if n == 1:
        return a
    half = _positive_power(a, n // 2, None)
    return matmul(matmul(half, half), a, name=name) if n % 2 else matmul(half, half, name=name)


def trace(a: TensorLike, offset: int = 0, *, name: str | None = None) -> Tensor:
    """The sums [...] along the diagonals of matrices [..., m, n], `offset` places to the right.

    Dtypes as in `gc.sum`. (`gc.trace` makes a graph of a Python function.)

    Raises:
        ShapeError: not a matrix.

    Source: numpy.linalg.trace.

    Examples:
        >>> run(gc.linalg.trace([[1, 2], [3, 4]]))
        Array(5, dtype=int32)
    """
    tensor = convert(a)
    if tensor.ndim < 2:
        refuse("trace: a must be a matrix [..., m, n]", a=tensor)
    return reduce_sum(diagonal(tensor, offset, -2, -1), axis=-1, name=name)


OPS: tuple[OpDef, ...] = (*declared(__name__), LOG_DETERMINANT)
