"""Indices of the diagonal and of the triangles of matrices, known while the graph is built."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.dtypes import INT32
from graphc.ir.node import Tensor
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import constant, convert
from graphc.typing import TensorLike

__all__ = ["diag_indices", "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from"]

Pair = tuple[Tensor, Tensor]


def tril_indices(rows: int, k: int = 0, columns: int | None = None) -> Pair:
    """The rows and the columns (int32) of the elements of a matrix that `gc.tril` keeps.

    Args:
        rows, columns: ints; `columns` is equal to `rows` by default.
        k: the last kept diagonal: 0 is the main one, 1 the one above it.

    Source: numpy.tril_indices.

    Examples:
        >>> run(gc.tril_indices(2))
        (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return _pair(np.tril_indices(rows, k, columns))


def triu_indices(rows: int, k: int = 0, columns: int | None = None) -> Pair:
    """The rows and the columns (int32) of the elements of a matrix that `gc.triu` keeps: see
    `tril_indices`.

    Source: numpy.triu_indices.

    Examples:
        >>> run(gc.triu_indices(2))
        (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return _pair(np.triu_indices(rows, k, columns))


def tril_indices_from(x: TensorLike, k: int = 0) -> Pair:
    """`tril_indices` of a matrix of known sizes.

    Raises:
        ShapeError: not a matrix, or its sizes are named.

    Source: numpy.tril_indices_from.

    Examples:
        >>> run(gc.tril_indices_from([[1, 2], [3, 4]]))
        (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return tril_indices(*_sizes("tril_indices_from", x, k))


def triu_indices_from(x: TensorLike, k: int = 0) -> Pair:
    """`triu_indices` of a matrix of known sizes; errors as for `tril_indices_from`.

    Source: numpy.triu_indices_from.

    Examples:
        >>> run(gc.triu_indices_from([[1, 2], [3, 4]]))
        (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return triu_indices(*_sizes("triu_indices_from", x, k))


def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """The indices (int32) of the main diagonal of a tensor of `ndim` axes of size `n`.

    Source: numpy.diag_indices.

    Examples:
        >>> run(gc.diag_indices(2))
        (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    return (constant(np.arange(n, dtype=INT32)),) * ndim


def _pair(found: tuple[np.ndarray[Any, Any], ...]) -> Pair:
    rows, columns = (constant(places.astype(INT32)) for places in found)
    return rows, columns


def _sizes(name: str, x: Any, k: int) -> tuple[int, int, int]:
    tensor = convert(x)
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    if len(sizes) != 2 or tensor.ndim != 2:
        refuse(f"{name}: takes a matrix of known sizes", error=ShapeError, x=tensor)
    return sizes[0], k, sizes[1]
