"""`x[...]`: NumPy's indexing, written with slice, flip, take and gather.

`parse` analyses an index, for reading (`getitem`) and for updating (`updating`).
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from graphc.errors import DTypeError
from graphc.ir.dims import Dim, DimExpr, Shape
from graphc.ir.dtypes import BOOL
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ops.arrays.gathering import index_tensor
from graphc.ops.arrays.gathering_nd import gather_at
from graphc.ops.arrays.index_frames import index_vectors
from graphc.ops.arrays.indexing import take_for
from graphc.ops.arrays.shape import reshaped, squeeze
from graphc.ops.arrays.slicing import flip, slice_
from graphc.ops.core.broadcasting import joint_shape
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import as_array, convert, dim_value
from graphc.ops.core.ranges import in_range

_READ = "x[...]"  # what the user wrote, for errors


class Window(NamedTuple):
    """The selected part of one axis: `start:limit:stride`, then reversed if `reverse`."""

    start: Dim
    limit: Dim
    stride: int = 1
    reverse: bool = False

    def size(self) -> Dim:
        """The number of elements of the window."""
        return (self.limit - self.start + (self.stride - 1)) // self.stride


class _OfMask(NamedTuple):
    """The indices of the true elements of a known mask, along one of its axes."""

    places: np.ndarray[Any, Any]
    size: int


class _Parting:
    """Stands for a `...` of no axes between index arrays, which parts them, as in NumPy: a new axis
    that the result does not have."""


class Subscript(NamedTuple):
    """A parsed index.

    Attributes:
        windows: the window of each axis of x.
        shape: the shape of the windows, without the axes of single indices, and with the new axes.
        chosen: integer tensors, by the axis of `shape` that they index.
        after_parting: how many axes of the result follow the axis of a `_Parting`, which the
            result does not have; None without one. For x[:, i, ..., j], `windows` has the shape
            [n, i, 1, j], and reading gives [*index axes, n, 1]: 0 follow it.
    """

    windows: list[Window]
    shape: Shape
    chosen: dict[int, Tensor]
    after_parting: int | None


def getitem(x: Any, index: Any) -> Tensor:
    """`x[index]` with NumPy's meaning.

    Args:
        x: any tensor.
        index: a tuple of ints, slices (any step), `...`, `None` (a new axis), tensors or arrays
            of integers, which broadcast together, and arrays of bools; or one of these. Bounds
            may be named sizes (`x.shape[0]`). A slice of an axis of known size is clipped as in
            NumPy; for a named size it must be inside once the size is bound. Elements of an integer
            tensor that are out of range are clamped, and raise an error in runs with
            `CompileOptions(check_numerics=True)`.

    Raises:
        ShapeError: an int out of range, more indices than axes, or arrays that do not
            broadcast.
        DTypeError: a mask that is a tensor, or an index that is not an integer.

    Source: numpy's basic and advanced indexing.
    """
    x = convert(x)
    subscript = parse(x, index)
    y, after = _selected(x, subscript), subscript.after_parting
    return y if after is None else squeeze(y, y.ndim - 1 - after)


def _selected(x: Tensor, subscript: Subscript) -> Tensor:
    y = windowed(x, subscript)
    chosen = subscript.chosen
    if not chosen:
        return y
    if len(chosen) == 1:
        ((axis, places),) = chosen.items()
        return take_for(_READ, y, places, axis)
    sizes = y.type.shape
    checked = {
        i: in_range(places, -sizes[i], sizes[i], "indices", of=_READ)
        for i, places in chosen.items()
    }
    return gather_at(y, vectors(x, subscript._replace(chosen=checked)), tuple(chosen))


def windowed(x: Tensor, subscript: Subscript) -> Tensor:
    """`x` at the ints and slices of an index. Adds no node if the index selects all of `x`."""
    windows = subscript.windows
    y = x
    if not is_whole(x, windows):
        starts, limits, strides, _ = zip(*windows, strict=True)
        y = slice_(x, starts, limits, strides)
    if axes := reversed_axes(windows):
        y = flip(y, axes)
    return reshaped(y, subscript.shape)


def vectors(x: Tensor, subscript: Subscript) -> Tensor:
    """The integer tensors of an index of `x`, which broadcast together, as index vectors."""
    places = list(subscript.chosen.values())
    shapes = [p.type.shape for p in places]
    shape = joint_shape(shapes)
    if shape is None:
        listed = " and ".join(f"({', '.join(map(str, shape))})" for shape in shapes)
        _refuse(x, f"index arrays of shapes {listed} do not broadcast together")
    return index_vectors(places, shape)


def is_whole(x: Tensor, windows: list[Window]) -> bool:
    """Whether the windows contain all elements of `x`."""
    return all(w[:3] == (0, dim, 1) for w, dim in zip(windows, x.type.shape, strict=True))


def reversed_axes(windows: list[Window]) -> list[int]:
    """The axes whose windows are reversed."""
    return [axis for axis, window in enumerate(windows) if window.reverse]


# -- reading an index ------------------------------------------------------------------------


def parse(x: Tensor, index: Any) -> Subscript:
    """`index`, parsed for `x`. Raises the errors of `getitem`."""
    windows: list[Window] = []
    shape: list[Dim] = []
    chosen: dict[int, Tensor] = {}
    parting: int | None = None
    for item in _expand(x, index if isinstance(index, tuple) else (index,)):
        if item is None or isinstance(item, _Parting):
            parting = parting if item is None else len(shape)
            shape.append(1)
            continue
        axis = len(windows)
        dim = x.type.shape[axis]
        if isinstance(item, slice):
            windows.append(_window(x, axis, item))
            shape.append(windows[-1].size())
        elif isinstance(item, (int, DimExpr)):
            place = _place(x, axis, item)
            windows.append(Window(place, place + 1))
        else:
            if isinstance(item, _OfMask):
                if item.size != dim:
                    _refuse(x, f"a mask of size {item.size} along axis {axis}, of size {dim}")
                item = item.places
            chosen[len(shape)] = index_tensor("getitem", item, dim, None)
            windows.append(Window(0, dim))
            shape.append(dim)
    after = None
    if parting is not None:
        after = sum(axis not in chosen for axis in range(parting + 1, len(shape)))
    return Subscript(windows, tuple(shape), chosen, after)


def _expand(x: Tensor, items: tuple[Any, ...]) -> list[Any]:
    """The index with one item for each axis of `x`, in addition to Nones. Checks arrays."""
    read = [part for item in items for part in _items(x, item)]
    used = sum(item is not None and item is not Ellipsis for item in read)
    if used > x.ndim:
        _refuse(
            x,
            f"{used} indices for {x.ndim} axes",
            "None adds an axis: x[:, None]; x.ndim is the number of axes",
        )
    dots = [i for i, item in enumerate(read) if item is Ellipsis]  # an array has no plain ==
    if len(dots) > 1:
        _refuse(x, "more than one '...'", "write `:` for each whole axis")
    at = dots[0] if dots else len(read)
    rest: list[Any] = [slice(None)] * (x.ndim - used)
    if dots and not rest and _parts_arrays(read, at):
        rest = [_Parting()]
    full = [*read[:at], *rest, *read[at + 1 :]]
    return _with_ints_as_arrays(x, full)


def _with_ints_as_arrays(x: Tensor, items: list[Any]) -> list[Any]:
    """The items. Ints become arrays if NumPy's rule for separated index arrays moves them to the
    front."""
    places = _places(items)
    if not places or places[-1] - places[0] < len(places):
        return items
    axes = np.cumsum([not (item is None or isinstance(item, _Parting)) for item in items]) - 1
    return [
        dim_value(_place(x, int(axis), item)) if isinstance(item, (int, DimExpr)) else item
        for item, axis in zip(items, axes, strict=True)
    ]


def _parts_arrays(items: list[Any], at: int) -> bool:
    """Whether a `...` of no axes, item `at`, moves the axes of the index arrays to the front: it
    is the only item between them, and an axis precedes them."""
    places = _places(items)
    return bool(places) and 0 < places[0] < at < places[-1] == places[0] + len(places)


def _places(items: list[Any]) -> list[int]:
    """The positions of the index arrays, and of the ints if there is an array: NumPy counts them
    as arrays then."""
    arrays = Operand, np.ndarray, _OfMask
    if not any(isinstance(item, arrays) for item in items):
        return []
    return [i for i, item in enumerate(items) if isinstance(item, (*arrays, int, DimExpr))]


def _items(x: Tensor, item: Any) -> list[Any]:
    """One item as None, Ellipsis, slices, ints, dims, tensors or arrays of integers."""
    if item is None or item is Ellipsis or isinstance(item, (slice, DimExpr)):
        return [item]
    if isinstance(item, Operand):
        item = convert(item)
        dtype = item.type.dtype
    elif isinstance(item, (bool, np.bool_)):
        dtype = BOOL
    else:
        try:
            return [operator.index(item)]
        except TypeError:
            known = as_array(item)
            if known.size == 0 and isinstance(item, (list, tuple)):
                known = known.astype(np.int32)  # as in NumPy
            item, dtype = known, known.dtype
            if dtype == BOOL and known.ndim:  # the indices of the true elements are known
                return [
                    _OfMask(places.astype(np.int32), size)
                    for places, size in zip(np.nonzero(item), item.shape, strict=True)
                ]
    if dtype.kind not in "iu":
        refuse(
            f"getitem: an index must be an integer, a slice, ... or None, got {dtype.name}",
            error=DTypeError,
            x=x,
            hint="a mask has no static number of elements: use gc.where(mask, x, other), or "
            "gc.extract(mask, x, size=n)"
            if dtype == BOOL
            else "gc.cast the index to int32",
        )
    return [item]


def _refuse(x: Tensor, what: str, hint: str | None = None) -> NoReturn:
    refuse(f"getitem: {what}", x=x, hint=hint)


def _place(x: Tensor, axis: int, index: Dim) -> Dim:
    """A single index counted from the front."""
    dim = x.type.shape[axis]
    if isinstance(index, int) and isinstance(dim, int) and not -dim <= index < dim:
        _refuse(
            x,
            f"index {index} is out of range for axis {axis} of size {dim}",
            f"indices run from {-dim} to {dim - 1}" if dim else "the axis has no elements",
        )
    return _from_front(index, dim)


def _from_front(bound: Dim, dim: Dim) -> Dim:
    return dim + bound if isinstance(bound, int) and bound < 0 else bound


def _window(x: Tensor, axis: int, item: slice) -> Window:
    dim = x.type.shape[axis]
    step = 1 if item.step is None else _bound(x, item.step)
    if not isinstance(step, int) or step == 0:
        _refuse(
            x,
            f"the step of a slice must be an int, not 0, got {item.step!r}",
            hint="x[::2] takes every other element, x[::-1] turns the axis around",
        )
    start = None if item.start is None else _bound(x, item.start)
    stop = None if item.stop is None else _bound(x, item.stop)
    if not any(isinstance(value, DimExpr) for value in (dim, start, stop)):
        return _known_window(slice(start, stop, step), dim)
    if step > 0:
        first = 0 if start is None else _from_front(start, dim)
        return Window(first, dim if stop is None else _from_front(stop, dim), step)
    first = dim - 1 if start is None else _from_front(start, dim)
    before: Dim = -1 if stop is None else _from_front(stop, dim)
    count = (first - before - (step + 1)) // -step
    return Window(first + (count - 1) * step, first + 1, -step, True)


def _known_window(item: slice, dim: Any) -> Window:
    places = range(*item.indices(dim))
    if not places:
        return Window(0, 0)
    low, high = sorted((places[0], places[-1]))
    limit = places.stop if places.step == 1 else high + 1
    return Window(low, limit, abs(places.step), places.step < 0)


def _bound(x: Tensor, value: Any) -> Dim:
    if isinstance(value, DimExpr):
        return value
    try:
        return operator.index(value)
    except TypeError:
        _refuse(
            x,
            f"a bound of a slice must be an int or a named size, got {value!r}",
            "sizes are static: for indices that are known only at run time, use gc.take",
        )
