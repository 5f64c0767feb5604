"""Diagonals and triangles of matrices, and matrices built from them."""

from __future__ import annotations

from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim
from graphc.ir.dtypes import FLOAT32
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import iota, zeros
from graphc.ops.arrays.gathering_nd import gather_at
from graphc.ops.arrays.index_frames import index_vectors
from graphc.ops.arrays.scattering_nd import scatter_at
from graphc.ops.arrays.shape import expand_dims, moveaxis, ravel, reshape
from graphc.ops.arrays.slicing import flip
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.emit import cast, convert, graph_of, promote_operands
from graphc.ops.elementwise.arithmetic import multiply
from graphc.ops.elementwise.comparison import equal, greater_equal, where
from graphc.ops.elementwise.powers import power
from graphc.typing import DTypeLike, TensorLike

__all__ = ["diag", "diagflat", "diagonal", "eye", "kron", "tri", "tril", "triu", "vander"]


def _below(rows: Dim, columns: Dim, k: int) -> Tensor:
    """Whether each element of a matrix is on the diagonal `k` or below it."""
    shape = (rows, columns)
    return greater_equal(iota(shape, 0) + k, iota(shape, 1))


def eye(
    rows: Dim,
    columns: Dim | None = None,
    k: int = 0,
    dtype: DTypeLike = FLOAT32,
    *,
    name: str | None = None,
) -> Tensor:
    """Ones on the diagonal `k` (above the main one if positive), zeros elsewhere.

    Args:
        rows: an int or a named size.
        columns: an int or a named size; by default equal to `rows`.
        k: which diagonal.
        dtype: of the result.
        name: of the node.

    Source: numpy.eye.

    Examples:
        >>> run(gc.eye(2))
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    shape = as_dims("Iota", (rows, rows if columns is None else columns))
    return cast(equal(iota(shape, 0) + k, iota(shape, 1)), dtype, name=name)


def tri(
    rows: Dim,
    columns: Dim | None = None,
    k: int = 0,
    dtype: DTypeLike = FLOAT32,
    *,
    name: str | None = None,
) -> Tensor:
    """Ones on the diagonal `k` and below, zeros above. Source: numpy.tri.

    Examples:
        >>> run(gc.tri(2))
        Array([[1., 0.],
               [1., 1.]], dtype=float32)
    """
    first, second = as_dims("Iota", (rows, rows if columns is None else columns))
    return cast(_below(first, second, k), dtype, name=name)


def tril(x: TensorLike, k: int = 0, *, name: str | None = None) -> Tensor:
    """The matrices [..., m, n] with zeros above the diagonal `k`. Source: numpy.tril.

    Examples:
        >>> run(gc.tril([[1, 2], [3, 4]]))
        Array([[1, 0],
               [3, 4]], dtype=int32)
    """
    matrices = _matrices("tril", x)
    rows, columns = matrices.shape[-2:]
    return where(_below(rows, columns, k), matrices, 0, name=name)


def triu(x: TensorLike, k: int = 0, *, name: str | None = None) -> Tensor:
    """The matrices [..., m, n] with zeros below the diagonal `k`. Source: numpy.triu.

    Examples:
        >>> run(gc.triu([[1, 2], [3, 4]]))
        Array([[1, 2],
               [0, 4]], dtype=int32)
    """
    matrices = _matrices("triu", x)
    rows, columns = matrices.shape[-2:]
    return where(_below(rows, columns, k - 1), 0, matrices, name=name)


def _matrices(op: str, x: Any) -> Tensor:
    tensor = convert(x)
    if tensor.ndim < 2:
        refuse(f"{op}: x must be a matrix [..., m, n]", x=tensor)
    return tensor


def _places(size: Dim, k: int) -> Tensor:
    """Index vectors [size, 2] of the elements of the diagonal `k`."""
    along = iota((size,))
    return index_vectors([along + max(-k, 0), along + max(k, 0)], (size,))


def diagonal(x: TensorLike, k: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements of the diagonal `k` of two axes, along a new last axis.

    Args:
        x: of two axes or more.
        k: which diagonal: above the main one if positive.
        axis1, axis2: the rows and the columns.

    Returns:
        The other axes of `x`, then the diagonal.

    Raises:
        AttributeValueError: there is no such diagonal, or its size cannot be computed from the
            named sizes.
        ShapeError: `x` has fewer than two axes.

    Source: numpy.diagonal.

    Examples:
        >>> run(gc.diagonal([[1, 2], [3, 4]]))
        Array([1, 4], dtype=int32)
    """
    x = _matrices("diagonal", x)
    first, second = (normalize_axis("diagonal", x, axis) for axis in (axis1, axis2))
    if first == second:
        refuse("diagonal: needs two different axes", error=AttributeValueError, x=x)
    matrices = moveaxis(x, (first, second), (-2, -1))
    rows, columns = map(graph_of([x]).constraints.find, matrices.shape[-2:])
    size = _length(rows, columns, k)
    axes = (x.ndim - 2, x.ndim - 1)
    return gather_at(matrices, _places(size, k), axes)


def _length(rows: Dim, columns: Dim, k: int) -> Dim:
    if rows == columns:
        size = rows - abs(k)
    elif isinstance(rows, int) and isinstance(columns, int):
        size = min(rows + min(k, 0), columns - max(k, 0), rows, columns)
    else:
        refuse(
            f"diagonal: named sizes {rows} and {columns} do not determine its length",
            error=AttributeValueError,
        )
    if isinstance(size, int) and size < 0:
        refuse(
            f"diagonal: there is no diagonal {k} of {rows} x {columns}", error=AttributeValueError
        )
    return size


def diagflat(x: TensorLike, k: int = 0) -> Tensor:
    """A matrix with the elements of `x`, raveled, on the diagonal `k`. Source: numpy.diagflat.

    Examples:
        >>> run(gc.diagflat([[1], [2]]))
        Array([[1, 0],
               [0, 2]], dtype=int32)
    """
    values = ravel(x)
    size = values.shape[0]
    matrix = zeros((size + abs(k), size + abs(k)), values.dtype)
    return scatter_at(matrix, _places(size, k), values, "set", (0, 1))


def diag(x: TensorLike, k: int = 0) -> Tensor:
    """The diagonal `k` of a matrix, or the matrix with a vector on it.

    Raises:
        ShapeError: neither a vector nor a matrix.

    Source: numpy.diag.

    Examples:
        >>> run(gc.diag([1, 2]))
        Array([[1, 0],
               [0, 2]], dtype=int32)
    """
    x = convert(x)
    if x.ndim == 1:
        return diagflat(x, k)
    if x.ndim != 2:
        refuse("diag: x must be a vector or a matrix", x=x)
    return diagonal(x, k)


def kron(a: TensorLike, b: TensorLike) -> Tensor:
    """The Kronecker product: each element of `a`, replaced by its product with `b`.

    Source: numpy.kron.

    Examples:
        >>> run(gc.kron([1, 2], [1, 10]))
        Array([ 1, 10,  2, 20], dtype=int32)
    """
    a, b = promote_operands(a, b)
    rank = max(a.ndim, b.ndim)
    shapes = [(*(1,) * (rank - t.ndim), *t.shape) for t in (a, b)]
    left = reshape(a, [d for dim in shapes[0] for d in (dim, 1)])
    right = reshape(b, [d for dim in shapes[1] for d in (1, dim)])
    return reshape(multiply(left, right), [m * n for m, n in zip(*shapes, strict=True)])


def vander(x: TensorLike, columns: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of the elements of a vector, as rows: by default the greatest first.

    Raises:
        ShapeError: not a vector.

    Source: numpy.vander.

    Examples:
        >>> run(gc.vander([2, 3], 3))
        Array([[4, 2, 1],
               [9, 3, 1]], dtype=int32)
    """
    x = convert(x)
    if x.ndim != 1:
        refuse("vander: x must be a vector", x=x)
    count = x.shape[0] if columns is None else columns
    powers = iota((count,))
    if not increasing:
        powers = flip(powers)
    return power(expand_dims(x, 1), cast(powers, x.dtype))
