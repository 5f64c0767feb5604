"""`x[...]`: NumPy's basic indexing, and one integer tensor, written with slice, flip and take."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from graphc.errors import DTypeError
from graphc.ir.dims import Dim, DimExpr
from graphc.ir.dtypes import BOOL
from graphc.ir.node import Operand, Tensor
from graphc.ops.checks import refuse
from graphc.ops.emit import as_array, convert
from graphc.ops.indexing import take
from graphc.ops.shape import reshape
from graphc.ops.slicing import flip, slice_


class _Window(NamedTuple):
    """What is kept of one axis: `start:limit:stride`, then backwards if `reverse`."""

    start: Dim
    limit: Dim
    stride: int = 1
    reverse: bool = False


def getitem(x: Any, index: Any) -> Tensor:
    """`x[index]` with NumPy's meaning.

    Args:
        x: any tensor.
        index: a tuple of ints, slices (any step), `...`, `None` (a new axis) and at most one
            tensor or array of integers; or one of these. Bounds may be named sizes (`x.shape[0]`).
            A slice of an axis of known size is clipped as in NumPy; of a named size it must lie
            inside once the size is bound. Elements of an integer tensor that are out of range
            count as the nearest in range.

    Raises:
        ShapeError: an int out of range, more indices than axes, or a form not taken.
        DTypeError: a mask, or an index that is not an integer.
    """
    x = convert(x)
    items = _expand(x, index if isinstance(index, tuple) else (index,))
    windows: list[_Window] = []
    shape: list[Dim] = []
    chosen: Any = None
    chosen_axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        axis = len(windows)
        dim = x.type.shape[axis]
        if isinstance(item, slice):
            windows.append(_window(x, axis, item))
            shape.append(_size(windows[-1]))
        elif isinstance(item, (int, DimExpr)):
            place = _place(x, axis, item)
            windows.append(_Window(place, place + 1))
        else:
            chosen, chosen_axis = item, len(shape)
            windows.append(_Window(0, dim))
            shape.append(dim)
    y = _cut(x, windows)
    if y.type.shape != tuple(shape):
        y = reshape(y, shape)
    return y if chosen is None else take(y, chosen, chosen_axis)


def _expand(x: Tensor, items: tuple[Any, ...]) -> list[Any]:
    """The index with one item for each axis of `x`, besides Nones; arrays checked."""
    items = tuple(_item(x, item) for item in items)
    arrays = [i for i, item in enumerate(items) if isinstance(item, (Operand, np.ndarray))]
    if len(arrays) > 1:
        _refuse(
            x,
            "more than one index is a tensor",
            "for an element of each row, as x[arange(n), i], use gc.take_along_axis; for an outer "
            "choice gc.take, one after the other",
        )
    advanced = [
        i for i, item in enumerate(items) if i in arrays or isinstance(item, (int, DimExpr))
    ]
    if arrays and advanced[-1] - advanced[0] >= len(advanced):
        _refuse(
            x,
            "an int and a tensor index with something between them",
            "index in two steps, x[0][:, i]; NumPy would move the axis to the front",
        )
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > x.ndim:
        _refuse(x, f"{used} indices for {x.ndim} axes")
    dots = [i for i, item in enumerate(items) if item is Ellipsis]  # an array has no plain ==
    if len(dots) > 1:
        _refuse(x, "more than one '...'")
    at = dots[0] if dots else len(items)
    rest = [slice(None)] * (x.ndim - used)
    return [*items[:at], *rest, *items[at + 1 :]]


def _item(x: Tensor, item: Any) -> Any:
    """One index: None, Ellipsis, a slice, an int, a dim, or a tensor or array of integers."""
    if item is None or item is Ellipsis or isinstance(item, (slice, DimExpr)):
        return item
    if isinstance(item, Operand):
        item = convert(item)
        dtype = item.type.dtype
    elif isinstance(item, (bool, np.bool_)):
        dtype = BOOL
    else:
        try:
            return operator.index(item)
        except TypeError:
            item = as_array(item)
            dtype = item.dtype
    if dtype.kind not in "iu":
        refuse(
            f"getitem: an index must be an integer, a slice, ... or None, got {dtype.name}",
            error=DTypeError,
            x=x,
            mend="a mask has no static number of elements: use gc.where(mask, x, other)"
            if dtype == BOOL
            else "gc.cast the index to int32",
        )
    return item


def _refuse(x: Tensor, what: str, mend: str | None = None) -> NoReturn:
    refuse(f"getitem: {what}", x=x, mend=mend)


def _place(x: Tensor, axis: int, index: Dim) -> Dim:
    """A single index counted from the front."""
    dim = x.type.shape[axis]
    if isinstance(index, int) and isinstance(dim, int) and not -dim <= index < dim:
        _refuse(x, f"index {index} is out of range for axis {axis} of size {dim}")
    return _from_front(index, dim)


def _from_front(bound: Dim, dim: Dim) -> Dim:
    return dim + bound if isinstance(bound, int) and bound < 0 else bound


def _window(x: Tensor, axis: int, item: slice) -> _Window:
    dim = x.type.shape[axis]
    step = 1 if item.step is None else _bound(x, item.step)
    if not isinstance(step, int) or step == 0:
        _refuse(x, f"the step of a slice must be an int, not 0, got {item.step!r}")
    start = None if item.start is None else _bound(x, item.start)
    stop = None if item.stop is None else _bound(x, item.stop)
    if not any(isinstance(value, DimExpr) for value in (dim, start, stop)):
        return _known_window(slice(start, stop, step), dim)
    if step > 0:
        first = 0 if start is None else _from_front(start, dim)
        return _Window(first, dim if stop is None else _from_front(stop, dim), step)
    first = dim - 1 if start is None else _from_front(start, dim)
    before: Dim = -1 if stop is None else _from_front(stop, dim)
    count = (first - before - (step + 1)) // -step
    return _Window(first + (count - 1) * step, first + 1, -step, True)


def _known_window(item: slice, dim: Any) -> _Window:
    places = range(*item.indices(dim))
    if not places:
        return _Window(0, 0)
    low, high = sorted((places[0], places[-1]))
    limit = places.stop if places.step == 1 else high + 1
    return _Window(low, limit, abs(places.step), places.step < 0)


def _bound(x: Tensor, value: Any) -> Dim:
    if isinstance(value, DimExpr):
        return value
    try:
        return operator.index(value)
    except TypeError:
        _refuse(
            x,
            f"a bound of a slice must be an int or a named size, got {value!r}",
            "sizes are static: for places known at run time only use gc.take",
        )


def _size(window: _Window) -> Dim:
    span = window.limit - window.start
    return (span + (window.stride - 1)) // window.stride


def _cut(x: Tensor, windows: list[_Window]) -> Tensor:
    """The windows of `x`: no node where they are the whole of it."""
    whole = all(
        window[:3] == (0, dim, 1) for window, dim in zip(windows, x.type.shape, strict=True)
    )
    y = x
    if not whole:
        starts, limits, strides, _ = zip(*windows, strict=True)
        y = slice_(x, starts, limits, strides)
    axes = [axis for axis, window in enumerate(windows) if window.reverse]
    return flip(y, axes) if axes else y
