"""Norms of vectors and matrices, and functions of singular values. No operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import INT32, is_complex, real_of
from graphc.ir.node import Tensor
from graphc.ops.arrays.shape import expand_dims, moveaxis, squeeze
from graphc.ops.core.axes import normalize_axes, normalize_axis
from graphc.ops.core.checks import is_static, refuse
from graphc.ops.core.emit import cast, promote_inexact, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import absolute, multiply
from graphc.ops.elementwise.comparison import greater, not_equal
from graphc.ops.elementwise.complex_parts import conj, real
from graphc.ops.elementwise.powers import power, sqrt, square
from graphc.ops.elementwise.roots import flat_at_zero
from graphc.ops.matrices.factorization import svdvals
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.matrices.solving import inv, pinv
from graphc.ops.reductions.reduction import reduce_max, reduce_min, reduce_sum
from graphc.ops.structure.state import identity
from graphc.typing import TensorLike

__all__ = ["cond", "lstsq", "matrix_norm", "matrix_rank", "norm", "vector_norm"]

Axes = int | Sequence[int] | None


def _squared(x: Tensor) -> Tensor:
    """The squares of the absolute values."""
    return real(x * conj(x)) if is_complex(x.type.dtype) else square(x)


def vector_norm(
    x: TensorLike,
    ord: float = 2,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """The norms of vectors: sum(abs(x) ** ord) ** (1 / ord), and its limits.

    Args:
        x: any numbers; integers are converted to float32.
        ord: a number; `inf` gives the greatest absolute value, `-inf` the least, and 0 the number
            of elements that are not 0.
        axis: the axis or axes of `x` that form a vector; None for all.
        keepdims: keep those axes with size 1.
        name: of the node.

    Returns:
        Real numbers. The gradient at a vector of zeros is 0.

    Raises:
        AttributeValueError: an axis out of range, or `ord` not a number.

    Source: numpy.linalg.vector_norm.

    Examples:
        >>> run(gc.linalg.vector_norm([[3.0, 4.0], [6.0, 8.0]], axis=1))
        Array([ 5., 10.], dtype=float32)
    """
    (tensor,) = promote_inexact(x)
    axes = normalize_axes("vector_norm", tensor, axis)
    ord = ord.item() if isinstance(ord, np.generic) else ord
    if isinstance(ord, bool) or not isinstance(ord, (int, float)):
        _refuse_ord("vector_norm", ord, tensor)
    rows = to_dtype(tensor, wide(tensor.dtype))
    return to_dtype(_vector_norm(rows, ord, axes, keepdims, name), real_of(tensor.dtype))


def _vector_norm(
    x: Tensor, ord: float, axes: tuple[int, ...], keepdims: bool, name: str | None
) -> Tensor:
    """`vector_norm`, in the dtype of the computation."""
    if ord == 2:
        return flat_at_zero(sqrt, reduce_sum(_squared(x), axes, keepdims), name)
    sizes = absolute(x)
    if ord == np.inf:
        return reduce_max(sizes, axes, keepdims, name=name)
    if ord == -np.inf:
        return reduce_min(sizes, axes, keepdims, name=name)
    if ord == 0:
        return reduce_sum(cast(not_equal(sizes, 0), sizes.dtype), axes, keepdims, name=name)
    if ord == 1:
        return reduce_sum(sizes, axes, keepdims, name=name)
    total = reduce_sum(power(sizes, ord), axes, keepdims)
    if ord < 0:  # infinite where an element is 0
        return power(total, 1 / ord, name=name)
    return flat_at_zero(lambda x: power(x, 1 / ord), total, name)


def matrix_norm(
    x: TensorLike, ord: str | float = "fro", keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The norms of matrices.

    Args:
        x: [..., m, n].
        ord: "fro", the root of the sum of squares; "nuc", the sum of the singular values; 2 and
            -2, the greatest and least of them; 1 and -1, the greatest and least sum of absolute
            values in a column; `inf` and `-inf`, likewise in a row.
        keepdims: keep the two axes with size 1.
        name: of the node.

    Returns:
        Real numbers [...].

    Raises:
        AttributeValueError: another `ord`.
        ShapeError: not a matrix.

    Source: numpy.linalg.matrix_norm.

    Examples:
        >>> run(gc.linalg.matrix_norm([[3.0, 0.0], [0.0, 4.0]]))
        Array(5., dtype=float32)
    """
    (tensor,) = promote_inexact(x)
    if tensor.ndim < 2:
        refuse("matrix_norm: x must be a matrix [..., m, n]", x=tensor)
    if ord == "fro":
        return vector_norm(tensor, 2, (-2, -1), keepdims, name=name)
    if ord in ("nuc", 2, -2):
        reduce = {"nuc": reduce_sum, 2: reduce_max, -2: reduce_min}[ord]
        result = reduce(svdvals(tensor), -1, name=name)
    elif ord in (1, -1, np.inf, -np.inf):
        sums = reduce_sum(absolute(tensor), -2 if abs(ord) == 1 else -1)
        result = (reduce_max if ord > 0 else reduce_min)(sums, -1, name=name)
    else:
        _refuse_ord("matrix_norm", ord, tensor)
    return expand_dims(result, (-2, -1)) if keepdims else result


def norm(
    x: TensorLike,
    ord: str | float | None = None,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """A norm of vectors or matrices.

    Args:
        x: any numbers.
        ord: as in `vector_norm` or `matrix_norm`; None: the root of the sum of squares.
        axis: one int for vectors, two for matrices; None: all of `x`, which must be a vector or a
            matrix if `ord` is given.
        keepdims: keep those axes with size 1.
        name: of the node.

    Raises:
        AttributeValueError: an `ord` or axis that does not fit.
        ShapeError: an `ord` for all of a tensor of more than two axes.

    Source: numpy.linalg.norm.

    Examples:
        >>> run(gc.linalg.norm([3.0, 4.0]))
        Array(5., dtype=float32)
    """
    (tensor,) = promote_inexact(x)
    if ord is None:
        return vector_norm(tensor, 2, axis, keepdims, name=name)
    if axis is None:
        if tensor.ndim not in (1, 2):
            refuse(
                "norm: x must be a vector or a matrix if ord is given",
                x=tensor,
                hint="give axis",
            )
        axis = tuple(range(tensor.ndim))
    places = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    if len(places) == 1:
        order: Any = ord  # it rejects a named size
        return vector_norm(tensor, order, places[0], keepdims, name=name)
    if len(places) != 2:
        refuse(f"norm: axis must name one axis or two, got {axis}", error=AttributeValueError)
    places = tuple(normalize_axis("norm", tensor, place) for place in places)
    result = matrix_norm(moveaxis(tensor, places, (-2, -1)), ord, name=name)
    return expand_dims(result, places) if keepdims else result


def _refuse_ord(function: str, ord: Any, x: Tensor) -> NoReturn:
    refuse(
        f"{function}: there is no norm of order {ord!r}",
        error=AttributeValueError,
        hint="vectors have numbers, matrices have 'fro', 'nuc', 1, -1, 2, -2, inf and -inf",
        x=x,
    )


def cond(x: TensorLike, p: str | float | None = None, *, name: str | None = None) -> Tensor:
    """The condition numbers [...] of matrices [..., n, n]: norm(x) * norm(inv(x)).

    Args:
        x: matrices; [..., m, n] for None, 2 and -2.
        p: the norm, as in `matrix_norm`; None is 2.
        name: of the node.

    Raises:
        AttributeValueError: another `p`.
        ShapeError: not square, or not a matrix.

    Source: numpy.linalg.cond.

    Examples:
        >>> run(gc.linalg.cond([[1.0, 0.0], [0.0, 4.0]]))
        Array(4., dtype=float32)
    """
    (tensor,) = promote_inexact(x)
    if p in (None, 2, -2):
        s = svdvals(tensor)
        greatest, least = reduce_max(s, -1), reduce_min(s, -1)
        return least / greatest if p == -2 else greatest / least
    return multiply(matrix_norm(tensor, p), matrix_norm(inv(tensor), p), name=name)


def _default_rtol(a: Tensor) -> float:
    """The ratio to the greatest singular value below which there are only rounding errors."""
    sides: Any = a.type.shape[-2:]
    if not is_static(*sides):
        refuse("rtol must be given if a side of the matrix is a named size", a=a)
    return float(np.finfo(a.dtype).eps * max(sides))


def matrix_rank(a: TensorLike, rtol: float | None = None, *, name: str | None = None) -> Tensor:
    """The ranks (int32 [...]) of matrices [..., m, n].

    Args:
        a: matrices.
        rtol: singular values up to `rtol` times the greatest count as 0; by default the greater
            side times the dtype's epsilon.
        name: of the node.

    Raises:
        ShapeError: not a matrix; or no rtol, and a named size.

    Source: numpy.linalg.matrix_rank.

    Examples:
        >>> run(gc.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]]))
        Array(1, dtype=int32)
    """
    (tensor,) = promote_inexact(a)
    s = svdvals(tensor)
    share = _default_rtol(tensor) if rtol is None else rtol
    counted = greater(s, share * reduce_max(s, -1, keepdims=True))
    return reduce_sum(cast(counted, INT32), -1, name=name)


def lstsq(
    a: TensorLike, b: TensorLike, rtol: float | None = None, *, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The x that minimizes |a x - b|; of several such x, the shortest.

    Args:
        a: [..., m, n].
        b: [m] or [..., m, k].
        rtol: as in `matrix_rank`.
        name: of the node that computes x.

    Returns:
        x, [n] or [..., n, k]; the sums of squares of a x - b for each column [..., k], with one
        column for a vector; the rank of `a`, int32 [...]; and its singular values.

    Raises:
        ShapeError: sizes do not fit; or no rtol, and a named size.

    Source: numpy.linalg.lstsq; here the sums of squares are returned for any rank.

    Examples:
        >>> x, residuals, rank, singular = gc.linalg.lstsq([[1.0], [1.0]], [1.0, 3.0])
        >>> run(x)
        Array([2.], dtype=float32)
    """
    a, b = promote_inexact(a, b)
    share = _default_rtol(a) if rtol is None else rtol
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    x = matmul(pinv(a, share), columns)
    left = reduce_sum(_squared(matmul(a, x) - columns), -2)
    solution = squeeze(x, -1, name=name) if b.ndim == 1 else identity(x, name=name)
    return solution, left, matrix_rank(a, share), svdvals(a)
