"""Functions that rotate, shift, repeat and edit tensors as NumPy does."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim, DimExpr, Shape
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.joining import concatenate, split
from graphc.ops.arrays.repeating import repeat as _repeat_all
from graphc.ops.arrays.shape import (
    broadcast_to,
    expand_dims,
    moveaxis,
    one_axis,
    ravel,
    reshape,
    swapaxes,
)
from graphc.ops.arrays.slicing import flip
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import joint_shape
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import as_array, convert, dim_value, to_dtype
from graphc.ops.elementwise.arithmetic import remainder
from graphc.typing import TensorLike

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "broadcast_shapes",
    "delete",
    "fliplr",
    "flipud",
    "insert",
    "repeat",
    "roll",
    "rot90",
]

# -- turned and shifted ----------------------------------------------------------------------


def roll(x: TensorLike, shift: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """`x` shifted by `shift` positions. Elements that leave at the end enter at the front.

    Args:
        x: any tensor.
        shift: an int, or a scalar tensor of integers; or one for each axis.
        axis: one axis, along which several shifts add up, or several axes; None rolls the raveled
            `x`.

    Raises:
        AttributeValueError: the number of shifts is neither 1 nor the number of axes.

    Source: numpy.roll.

    Examples:
        >>> run(gc.roll([1, 2, 3], 1))
        Array([3, 1, 2], dtype=int32)
    """
    tensor = convert(x)
    if axis is None:
        return reshape(roll(ravel(tensor), shift, 0), tensor.shape)
    axes = list(axis) if isinstance(axis, Sequence) else [axis]
    shift = shift.tolist() if isinstance(shift, np.ndarray) else shift
    shifts = list(shift) if isinstance(shift, Sequence) else [shift]
    if len(shifts) == 1:
        shifts *= len(axes)
    elif len(axes) == 1:
        axes *= len(shifts)
    if len(shifts) != len(axes):
        refuse(
            f"roll: {len(shifts)} shifts for {len(axes)} axes", error=AttributeValueError, x=tensor
        )
    for each, places in zip(axes, shifts, strict=True):
        tensor = _rolled(tensor, places, normalize_axis("roll", tensor, each))
    return tensor


def _rolled(x: Tensor, shift: Any, axis: int) -> Tensor:
    size = x.shape[axis]
    if isinstance(shift, Operand) or not isinstance(size, int):
        length = dim_value(size)
        return take(x, remainder(iota((size,)) - shift, length), axis)
    places = operator.index(shift) % size if size else 0
    if places == 0:
        return x
    head, tail = split(x, [size - places, places], axis)
    return concatenate([tail, head], axis)


def fliplr(x: TensorLike, *, name: str | None = None) -> Tensor:
    """`x` reversed along axis 1. Source: numpy.fliplr.

    Examples:
        >>> run(gc.fliplr([[1, 2], [3, 4]]))
        Array([[2, 1],
               [4, 3]], dtype=int32)
    """
    return flip(x, 1, name=name)


def flipud(x: TensorLike, *, name: str | None = None) -> Tensor:
    """`x` reversed along axis 0. Source: numpy.flipud.

    Examples:
        >>> run(gc.flipud([[1, 2], [3, 4]]))
        Array([[3, 4],
               [1, 2]], dtype=int32)
    """
    return flip(x, 0, name=name)


def rot90(x: TensorLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """`x` rotated by `k` right angles, from the first of the `axes` towards the second.

    Source: numpy.rot90.

    Examples:
        >>> run(gc.rot90([[1, 2], [3, 4]]))
        Array([[2, 4],
               [1, 3]], dtype=int32)
    """
    tensor = convert(x)
    first, second = (normalize_axis("rot90", tensor, axis) for axis in axes)
    if first == second:
        refuse(f"rot90: needs two different axes, got {axes}", error=AttributeValueError, x=tensor)
    turns = k % 4
    if turns == 0:
        return tensor
    if turns == 2:
        return flip(tensor, (first, second))
    if turns == 1:
        return swapaxes(flip(tensor, second), first, second)
    return flip(swapaxes(tensor, first, second), second)


# -- more axes -------------------------------------------------------------------------------


def atleast_1d(x: TensorLike) -> Tensor:
    """`x` with at least one axis. Source: numpy.atleast_1d.

    Examples:
        >>> gc.atleast_1d(3.0).shape
        (1,)
    """
    tensor = convert(x)
    return tensor if tensor.ndim else reshape(tensor, (1,))


def atleast_2d(x: TensorLike) -> Tensor:
    """`x` with at least two axes, new ones in front. Source: numpy.atleast_2d.

    Examples:
        >>> gc.atleast_2d([1, 2]).shape
        (1, 2)
    """
    x = atleast_1d(x)
    return x if x.ndim > 1 else expand_dims(x, 0)


def atleast_3d(x: TensorLike) -> Tensor:
    """`x` with at least three axes: a vector becomes [1, n, 1], a matrix [m, n, 1].

    Source: numpy.atleast_3d.

    Examples:
        >>> gc.atleast_3d([1, 2]).shape
        (1, 2, 1)
    """
    x = atleast_2d(x)
    return x if x.ndim > 2 else expand_dims(x, 2)


def broadcast_arrays(*xs: TensorLike) -> list[Tensor]:
    """The tensors broadcast to their common shape. Source: numpy.broadcast_arrays.

    Examples:
        >>> run(gc.broadcast_arrays([1, 2], [[3], [4]]))
        [Array([[1, 2],
               [1, 2]], dtype=int32), Array([[3, 3],
               [4, 4]], dtype=int32)]
    """
    tensors = [convert(x) for x in xs]
    shape = broadcast_shapes(*[t.shape for t in tensors])
    return [t if t.shape == shape else broadcast_to(t, shape) for t in tensors]


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that the shapes broadcast to. A named size never counts as 1.

    Raises:
        ShapeError: they do not fit together.

    Source: numpy.broadcast_shapes.

    Examples:
        >>> gc.broadcast_shapes((2, 1), (3,))
        (2, 3)
    """
    shape = joint_shape(shapes)
    if shape is None:
        refuse(f"shapes {' and '.join(map(str, shapes))} do not broadcast together")
    return shape


def repeat(
    x: TensorLike,
    repeats: Dim | Sequence[int] | np.ndarray[Any, Any],
    axis: int | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`x` with each element along `axis` repeated `repeats` times; raveled first by default.

    Args:
        x: any tensor.
        repeats: one size for all, or known ints, one for each element.
        axis: the axis of the elements.
        name: of the node.

    Raises:
        AttributeValueError: `repeats` is a tensor: the result would have no known size.
        ShapeError: the numbers of repeats and elements differ.

    Source: numpy.repeat.

    Examples:
        >>> run(gc.repeat([1, 2], 2))
        Array([1, 1, 2, 2], dtype=int32)
    """
    if isinstance(repeats, (int, DimExpr, Operand)) or not np.shape(repeats):
        return _repeat_all(x, cast(Dim, repeats), axis, name=name)
    tensor, place = one_axis("repeat", x, axis)
    places = _all_places("repeat", tensor, place)
    counts = np.asarray(repeats, np.int64 if np.size(repeats) == 0 else None)
    if counts.dtype.kind not in "iub" or (counts < 0).any():
        refuse(f"repeat: takes ints of 0 or more, got {repeats!r}", error=AttributeValueError)
    if counts.shape not in (places.shape, (1,)):
        refuse(f"repeat: {counts.size} numbers for {places.size} elements", x=tensor)
    return take(tensor, np.repeat(places, counts), place, name=name)


def delete(
    x: TensorLike,
    places: int | slice | Sequence[int] | np.ndarray[Any, Any],
    axis: int | None = None,
) -> Tensor:
    """`x` without the slices at the indices `places` along `axis`; raveled by default.

    Args:
        x: any tensor, of a known size along `axis`.
        places: ints, a slice or an array of ints; known while the graph is built.
        axis: the axis of the slices.

    Raises:
        ShapeError: a place out of range.
        AttributeValueError: a size that is not known.

    Source: numpy.delete.

    Examples:
        >>> run(gc.delete([1, 2, 3], 1))
        Array([1, 3], dtype=int32)
    """
    x, place = one_axis("delete", x, axis)
    every = _all_places("delete", x, place)
    return take(x, np.delete(every, _named("delete", x, places, len(every), len(every) - 1)), place)


def insert(
    x: TensorLike,
    places: int | slice | Sequence[int] | np.ndarray[Any, Any],
    values: TensorLike,
    axis: int | None = None,
) -> Tensor:
    """`x` with `values` before the slices at the indices `places` along `axis`; raveled by default.

    Args:
        x: any tensor, of a known size along `axis`.
        places: an int, a slice or a vector of ints or bools; known while the graph is built.
        values: one slice, one for each place, or several slices for a single place. They are
            converted to the dtype of `x`.
        axis: the axis of the slices.

    Raises:
        ShapeError: values that do not fit, or a place out of range.
        AttributeValueError: a size that is not known.

    Source: numpy.insert.

    Examples:
        >>> run(gc.insert([1, 3], 1, 2))
        Array([1, 2, 3], dtype=int32)
    """
    x, place = one_axis("insert", x, axis)
    added = to_dtype(values, x.dtype)
    size = len(_all_places("insert", x, place))
    known = _named("insert", x, places, size, size)
    if known.size == 1:  # insert all values; for an int, along their first axis
        added = reshape(added, (*(1,) * (x.ndim - added.ndim), *added.shape))
        added = added if known.ndim else moveaxis(added, 0, place)
        known = np.repeat(known, len(_all_places("insert", added, place)))
    slices = (*x.shape[:place], len(known), *x.shape[place + 1 :])
    both = concatenate([x, broadcast_to(added, slices)], place)
    # NumPy computes the order of the slices from their indices.
    order = np.insert(np.arange(size), known, size + np.arange(len(known)))
    return take(both, order.astype(np.int32), place)


def _named(op: str, x: Tensor, places: Any, size: int, last: int) -> np.ndarray[Any, Any]:
    """The indices from 0 to `last` that an int, a slice, ints or bools select among `size`
    slices."""
    if isinstance(places, slice):
        return np.arange(size)[places]
    given = as_array(places)
    if given.size == 0:
        return np.arange(0)
    if given.dtype.kind == "b" and given.shape == (size,):
        return np.flatnonzero(given)
    if given.dtype.kind not in "iu" or given.ndim > 1:
        refuse(f"{op}: no valid places: {places!r}", error=AttributeValueError, x=x)
    if not ((given >= -size) & (given <= last)).all():
        refuse(f"{op}: a place out of range: {places!r}", x=x)
    return np.where(given < 0, given.astype(np.int64) + size, given)


def _all_places(op: str, x: Tensor, axis: int) -> np.ndarray[Any, Any]:
    size = x.shape[axis]
    if not isinstance(size, int):
        refuse(f"{op}: axis {axis} has no known size", error=AttributeValueError, x=x)
    return np.arange(size, dtype=np.int32)
