"""Matrices defined by fewer numbers than elements. No operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import as_dtype, is_complex
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.joining import concatenate, several
from graphc.ops.arrays.padding import pad
from graphc.ops.arrays.shape import expand_dims, reshape
from graphc.ops.arrays.slicing import flip
from graphc.ops.core.checks import positive_int, refuse, same_shape
from graphc.ops.core.emit import constant, convert, dim_value, promote_operands
from graphc.ops.elementwise.arithmetic import multiply
from graphc.ops.elementwise.complex_parts import conj
from graphc.typing import DTypeLike, TensorLike

__all__ = ["block_diag", "circulant", "hadamard", "hankel", "hilbert", "khatri_rao", "toeplitz"]


def _vector(op: str, label: str, x: Any) -> Tensor:
    tensor = convert(x)
    if not tensor.ndim:
        refuse(f"{op}: {label} must be a vector [..., n], got a scalar", x=tensor)
    return tensor


def toeplitz(c: TensorLike, r: TensorLike | None = None, *, name: str | None = None) -> Tensor:
    """Toeplitz matrices: each diagonal holds one number.

    Args:
        c: [..., m]: the first column.
        r: [..., n]: the first row, whose first number is ignored; by default c, conjugated.
        name: of the node.

    Returns:
        [..., m, n].

    Raises:
        ShapeError: a scalar, or axes before the last that differ.

    Source: jax.scipy.linalg.toeplitz.

    Examples:
        >>> run(gc.linalg.toeplitz([1, 2, 3]))
        Array([[1, 2, 3],
               [2, 1, 2],
               [3, 2, 1]], dtype=int32)
    """
    column = _vector("toeplitz", "c", c)
    mirrored = conj(column) if is_complex(column.dtype) else column
    row = mirrored if r is None else _vector("toeplitz", "r", r)
    column, row = promote_operands(column, row)
    m, n = column.shape[-1], row.shape[-1]
    numbers = concatenate([flip(column, -1), row[..., 1:]], -1)
    places = iota((m, n), 1) - iota((m, n), 0) + dim_value(m - 1)
    return take(numbers, places, -1, name=name)


def circulant(c: TensorLike, *, name: str | None = None) -> Tensor:
    """The matrices [..., n, n] with the first column `c` [..., n], rotated down by one in each
    further column. Source: scipy.linalg.circulant.

    Examples:
        >>> run(gc.linalg.circulant([1, 2, 3]))
        Array([[1, 3, 2],
               [2, 1, 3],
               [3, 2, 1]], dtype=int32)
    """
    column = _vector("circulant", "c", c)
    turned = concatenate([column[..., :1], flip(column[..., 1:], -1)], -1)
    return toeplitz(column, turned, name=name)


def hankel(c: TensorLike, r: TensorLike | None = None, *, name: str | None = None) -> Tensor:
    """Hankel matrices: each anti-diagonal holds one number.

    Args:
        c: [..., m]: the first column.
        r: [..., n]: the last row, whose first number is ignored; by default zeros.
        name: of the node.

    Returns:
        [..., m, n].

    Raises:
        ShapeError: a scalar, or axes before the last that differ.

    Source: scipy.linalg.hankel.

    Examples:
        >>> run(gc.linalg.hankel([1, 2, 3]))
        Array([[1, 2, 3],
               [2, 3, 0],
               [3, 0, 0]], dtype=int32)
    """
    column = _vector("hankel", "c", c)
    row = multiply(column, 0) if r is None else _vector("hankel", "r", r)
    column, row = promote_operands(column, row)
    sides = (column.shape[-1], row.shape[-1])
    numbers = concatenate([column, row[..., 1:]], -1)
    return take(numbers, iota(sides, 0) + iota(sides, 1), -1, name=name)


def hilbert(n: int, dtype: DTypeLike = "float32", *, name: str | None = None) -> Tensor:
    """The matrix [n, n] of the numbers 1 / (i + j + 1). Source: scipy.linalg.hilbert.

    Examples:
        >>> run(gc.linalg.hilbert(2))
        Array([[1.    , 0.5   ],
               [0.5   , 0.3333]], dtype=float32)
    """
    places = np.arange(positive_int("hilbert", "n", n))
    return constant(1 / (places[:, None] + places + 1), as_dtype(dtype), name=name)


def hadamard(n: int, dtype: DTypeLike = "int32", *, name: str | None = None) -> Tensor:
    """Sylvester's matrix [n, n] of ones and minus ones with orthogonal rows; n a power of 2.

    Raises:
        AttributeValueError: another n.

    Source: scipy.linalg.hadamard.

    Examples:
        >>> run(gc.linalg.hadamard(2))
        Array([[ 1,  1],
               [ 1, -1]], dtype=int32)
    """
    if positive_int("hadamard", "n", n) & (n - 1):
        refuse(f"hadamard: n must be a power of 2, got {n}", error=AttributeValueError)
    matrix = np.ones((1, 1), np.int32)
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return constant(matrix, as_dtype(dtype), name=name)


def block_diag(*blocks: TensorLike, name: str | None = None) -> Tensor:
    """A matrix with the blocks along its diagonal, and zeros elsewhere.

    Args:
        blocks: matrices, or vectors for single rows, or numbers; dtypes promote.
        name: of the node.

    Raises:
        AttributeValueError: there are no blocks.
        ShapeError: more than two axes.

    Source: scipy.linalg.block_diag.

    Examples:
        >>> run(gc.linalg.block_diag([[1, 2]], [[3]]))
        Array([[1, 2, 0],
               [0, 0, 3]], dtype=int32)
    """
    tensors = several("block_diag", blocks)
    for i, x in enumerate(tensors):
        if x.ndim > 2:
            refuse(f"block_diag: block {i} must be a matrix, a vector or a number", x=x)
    matrices = [x if x.ndim == 2 else expand_dims(x, tuple(range(2 - x.ndim))) for x in tensors]
    rows = []
    for i, x in enumerate(matrices):
        before = [m.shape[1] for m in matrices[:i]]
        behind = [m.shape[1] for m in matrices[i + 1 :]]
        rows.append(pad(x, ((0, 0), (sum(before), sum(behind)))))
    return concatenate(rows, 0, name=name)


def khatri_rao(a: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """The Kronecker product of each column of `a` [m, k] and that of `b` [n, k]: [m * n, k].

    Raises:
        ShapeError: not matrices with equal numbers of columns.

    Source: scipy.linalg.khatri_rao.

    Examples:
        >>> run(gc.linalg.khatri_rao([[1, 2]], [[3, 4], [5, 6]]))
        Array([[ 3,  8],
               [ 5, 12]], dtype=int32)
    """
    a, b = promote_operands(a, b)
    if a.ndim != 2 or b.ndim != 2:
        refuse("khatri_rao: a and b must be matrices", a=a, b=b)
    if not same_shape(a.shape[1:], b.shape[1:], a):
        refuse("khatri_rao: a and b must have the same number of columns", a=a, b=b)
    product = multiply(expand_dims(a, 1), expand_dims(b, 0))
    return reshape(product, (a.shape[0] * b.shape[0], a.shape[1]), name=name)
