"""Functions that join and split tensors as NumPy does."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.ops.arrays.joining import concatenate, several, split
from graphc.ops.arrays.shape import expand_dims, ravel, reshape
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, promote_operands
from graphc.ops.numpy_api.rearranging import atleast_1d, atleast_2d, atleast_3d
from graphc.typing import TensorLike

__all__ = [
    "append",
    "array_split",
    "block",
    "column_stack",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "vsplit",
    "vstack",
]


def hstack(tensors: Sequence[TensorLike], *, name: str | None = None) -> Tensor:
    """The tensors joined along axis 1, vectors along axis 0. Source: numpy.hstack.

    Examples:
        >>> run(gc.hstack([[1, 2], [3]]))
        Array([1, 2, 3], dtype=int32)
    """
    xs = [atleast_1d(x) for x in several("hstack", tensors)]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, name=name)


def vstack(tensors: Sequence[TensorLike], *, name: str | None = None) -> Tensor:
    """The tensors joined along axis 0, vectors as rows. Source: numpy.vstack.

    Examples:
        >>> run(gc.vstack([[1, 2], [3, 4]]))
        Array([[1, 2],
               [3, 4]], dtype=int32)
    """
    return concatenate([atleast_2d(x) for x in several("vstack", tensors)], 0, name=name)


def dstack(tensors: Sequence[TensorLike], *, name: str | None = None) -> Tensor:
    """The tensors joined along axis 2. Source: numpy.dstack.

    Examples:
        >>> run(gc.dstack([[1, 2], [3, 4]]))
        Array([[[1, 3],
                [2, 4]]], dtype=int32)
    """
    return concatenate([atleast_3d(x) for x in several("dstack", tensors)], 2, name=name)


def column_stack(tensors: Sequence[TensorLike], *, name: str | None = None) -> Tensor:
    """Vectors and matrices joined as columns. Source: numpy.column_stack.

    Examples:
        >>> run(gc.column_stack([[1, 2], [3, 4]]))
        Array([[1, 3],
               [2, 4]], dtype=int32)
    """
    xs = [
        expand_dims(atleast_1d(x), 1) if x.ndim < 2 else x for x in several("column_stack", tensors)
    ]
    return concatenate(xs, 1, name=name)


def block(blocks: TensorLike) -> Tensor:
    """Nested lists of tensors joined into one tensor: the innermost lists along the last axis, and
    so on.

    Raises:
        ShapeError: the blocks do not fit together, or are at different depths.

    Source: numpy.block.

    Examples:
        >>> run(gc.block([[gc.eye(2), gc.zeros((2, 1))]]))
        Array([[1., 0., 0.],
               [0., 1., 0.]], dtype=float32)
    """
    depths = set(_depths(blocks))
    if len(depths) != 1:
        refuse("block: the tensors must have equal depths in the lists")
    (depth,) = depths
    leaves = promote_operands(*_leaves(blocks))
    rank = max(depth, *(leaf.ndim for leaf in leaves))
    return _block(blocks, iter(leaves), rank, rank - depth)


def _depths(blocks: Any, depth: int = 0) -> list[int]:
    if isinstance(blocks, list):
        return [d for part in blocks for d in _depths(part, depth + 1)]
    return [depth]


def _leaves(blocks: Any) -> list[Any]:
    if isinstance(blocks, list):
        return [leaf for part in blocks for leaf in _leaves(part)]
    return [blocks]


def _block(blocks: Any, leaves: Any, rank: int, axis: int) -> Tensor:
    if not isinstance(blocks, list):
        leaf: Tensor = next(leaves)
        return reshape(leaf, (*(1,) * (rank - leaf.ndim), *leaf.shape))
    return concatenate([_block(part, leaves, rank, axis + 1) for part in blocks], axis)


def append(
    x: TensorLike, values: TensorLike, axis: int | None = None, *, name: str | None = None
) -> Tensor:
    """`values` joined to `x` along `axis`; both raveled by default. Source: numpy.append.

    Examples:
        >>> run(gc.append([1, 2], [3]))
        Array([1, 2, 3], dtype=int32)
    """
    pair = [ravel(x), ravel(values)] if axis is None else [x, values]
    return concatenate(pair, axis or 0, name=name)


def array_split(x: TensorLike, sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """`x` split into pieces: before given indices, or into nearly equal sizes, larger pieces first.

    Args:
        x: any tensor.
        sections: the number of pieces; or the indices to split before, as bounds of slices.
        axis: the axis to split along.

    Raises:
        AttributeValueError: fewer than one piece, or an unknown size.

    Source: numpy.array_split.

    Examples:
        >>> run(gc.array_split([1, 2, 3, 4, 5], 2))
        (Array([1, 2, 3], dtype=int32), Array([4, 5], dtype=int32))
    """
    x = convert(x)
    place = normalize_axis("array_split", x, axis)
    if not isinstance(sections, (int, np.integer)):
        ends = [None, *(operator.index(end) for end in sections), None]
        return tuple(
            x[(*(slice(None),) * place, slice(start, end))] for start, end in pairwise(ends)
        )
    size = x.shape[place]
    if not isinstance(size, int) or sections < 1:
        refuse(
            f"array_split: cannot cut size {size} into {sections} pieces",
            error=AttributeValueError,
            x=x,
        )
    each, more = divmod(size, sections)
    return split(x, [each + (i < more) for i in range(sections)], place)


def hsplit(x: TensorLike, sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`array_split` into equal pieces along axis 1, or along the only axis. Source: numpy.hsplit.

    Examples:
        >>> run(gc.hsplit([1, 2, 3, 4], 2))
        (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    tensor = convert(x)
    return _equal_pieces("hsplit", tensor, sections, min(1, tensor.ndim - 1))


def vsplit(x: TensorLike, sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`array_split` into equal pieces along axis 0. Source: numpy.vsplit.

    Examples:
        >>> run(gc.vsplit([[1, 2], [3, 4]], 2))
        (Array([[1, 2]], dtype=int32), Array([[3, 4]], dtype=int32))
    """
    return _equal_pieces("vsplit", convert(x), sections, 0)


def dsplit(x: TensorLike, sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`array_split` into equal pieces along axis 2. Source: numpy.dsplit.

    Examples:
        >>> gc.dsplit(gc.zeros((2, 2, 4)), 2)[0].shape
        (2, 2, 2)
    """
    return _equal_pieces("dsplit", convert(x), sections, 2)


def _equal_pieces(
    op: str, x: Tensor, sections: int | Sequence[int], axis: int
) -> tuple[Tensor, ...]:
    place = normalize_axis(op, x, axis)
    size = x.shape[place]
    if isinstance(sections, int) and isinstance(size, int) and size % sections:
        refuse(f"{op}: {size} elements are not {sections} equal pieces", x=x)
    return array_split(x, sections, place)
