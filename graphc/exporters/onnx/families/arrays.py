"""Shapes: moving, joining, cutting and filling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from graphc.exporters.onnx.call import Call, Rule
from graphc.exporters.onnx.refused import Refused
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import BOOL, INT64
from graphc.ir.dims import Dim


def first(c: Call) -> Value:
    """The operand itself: ordering, sharding and gradients mean nothing in a file."""
    return c.xs[0]


def _reshape(c: Call) -> Value:
    shape, before = c.attrs["shape"], c.shape()
    if tuple(shape) == tuple(before):
        return c.xs[0]
    return c.reshape(c.xs[0], shape)


def _iota(c: Call) -> Value:
    shape, axis, dtype = c.attrs["shape"], c.attrs["axis"], c.attrs["dtype"]
    w = c.w
    if all(isinstance(dim, int) for dim in shape):
        column = np.arange(shape[axis]).reshape([-1] + [1] * (len(shape) - axis - 1))
        row = w.constant(column.astype(dtype))
    else:
        row = w.cast(c.count(shape[axis]), dtype)
        row = w.unsqueeze(row, range(1, len(shape) - axis))
    return row if len(shape) == 1 else c.expand(row, shape)


def _split(c: Call) -> list[Value]:
    x, sizes = c.xs[0], c.attrs["sizes"]
    if len(sizes) == 1:
        return [x]
    results = [(x.dtype, x.rank)] * len(sizes)
    return c.w.ops("Split", x, c.sizes.vector(sizes), results=results, axis=c.attrs["axis"])


def _stack(c: Call) -> Value:
    axis = c.attrs["axis"]
    return c.w.concat([c.w.unsqueeze(x, [axis]) for x in c.xs], axis)


def _unstack(c: Call) -> list[Value]:
    x, axis = c.xs[0], c.attrs["axis"]
    return [c.w.gather(x, c.w.constant(i, INT64), axis) for i in range(len(c.node.outputs))]


def _slice(c: Call) -> Value:
    starts, limits, strides = (c.attrs[k] for k in ("starts", "limits", "strides"))
    shape = c.shape()
    axes = [
        axis
        for axis, row in enumerate(zip(starts, limits, strides, shape, strict=True))
        if row != (0, row[3], 1, row[3])
    ]
    if not axes:
        return c.xs[0]
    low, high = (c.sizes.vector([row[axis] for axis in axes]) for row in (starts, limits))
    return c.w.slice(c.xs[0], low, high, axes, [strides[axis] for axis in axes])


def _pad(c: Call) -> Value:
    x, value = c.xs
    pads = c.attrs["pads"]
    shape = list(c.shape())
    for axis, (_, _, *between) in enumerate(pads):
        if any(between):
            x, shape[axis] = _spread(c, x, shape, axis, between[0], value)
    return pad(c, x, [p[0] for p in pads], [p[1] for p in pads], value)


def _spread(
    c: Call, x: Value, shape: Sequence[Dim], axis: int, gap: int, value: Value
) -> tuple[Value, Dim]:
    """`x` with elements between its own along an axis, and the new size."""
    wide = c.w.unsqueeze(x, [axis + 1])
    high = [0] * wide.rank
    high[axis + 1] = gap
    wide = pad(c, wide, [0] * wide.rank, high, value)
    size = shape[axis] * (gap + 1)
    joined = c.reshape(wide, [*shape[:axis], size, *shape[axis + 1 :]])
    end = c.sizes.vector([size - gap])
    return c.w.slice(joined, c.w.ints([0]), end, [axis]), size - gap


_END: Final = 2**62  # beyond the end of any axis


def _is_cut(padding: Dim) -> bool:
    return isinstance(padding, int) and padding < 0


def pad(c: Call, x: Value, low: Sequence[Dim], high: Sequence[Dim], value: Value) -> Value:
    """`x` with elements before and after each axis; negative numbers cut off."""
    more = [[0 if _is_cut(n) else n for n in row] for row in (low, high)]
    if any((*more[0], *more[1])):
        sizes = c.sizes.vector([*more[0], *more[1]])
        kind: Any = "int32" if x.dtype == BOOL else x.dtype  # runtimes do not pad bools
        dtype, x, value = x.dtype, c.w.cast(x, kind), c.w.cast(value, kind)
        x = c.w.cast(c.w.op("Pad", x, sizes, value, rank=x.rank), dtype)
    # Runtimes do not all take negative padding.
    axes = [i for i, pair in enumerate(zip(low, high, strict=True)) if any(map(_is_cut, pair))]
    if not axes:
        return x
    starts = [-n if _is_cut(n := low[i]) else 0 for i in axes]
    ends = [n if _is_cut(n := high[i]) else _END for i in axes]
    return c.w.slice(x, c.sizes.vector(starts), c.sizes.vector(ends), axes)


def _reverse(c: Call) -> Value:
    axes = c.attrs["axes"]
    if not axes:
        return c.xs[0]
    last, before = c.w.ints([-1] * len(axes)), c.w.ints([-_END] * len(axes))
    return c.w.slice(c.xs[0], last, before, axes, [-1] * len(axes))


# -- windows at computed places --------------------------------------------------------------------


def starts_of(c: Call, starts: Sequence[Value], sizes: Sequence[Dim]) -> Value:
    """The starts of a window as a vector, moved so that the window is inside."""
    w, shape = c.w, c.shape()
    places = w.concat([w.unsqueeze(w.cast(s, INT64), [0]) for s in starts], 0)
    ends = c.sizes.vector(shape)
    zero = w.constant(0, INT64)
    counted = w.where(w.compare("Less", places, zero), w.elementwise("Add", places, ends), places)
    last = w.elementwise("Sub", ends, c.sizes.vector(sizes))
    return w.elementwise("Max", w.elementwise("Min", counted, last), zero)


def _dynamic_slice(c: Call) -> Value:
    x, *starts = c.xs
    sizes = c.attrs["sizes"]
    if not sizes:
        return x
    low = starts_of(c, starts, sizes)
    high = c.w.elementwise("Add", low, c.sizes.vector(sizes))
    return c.w.slice(x, low, high, range(x.rank))


def _dynamic_update(c: Call) -> Value:
    """The update, padded to the size of x, where a padded mask says so."""
    x, update, *starts = c.xs
    w, sizes = c.w, c.shape(1)
    if not sizes:
        return update
    low = starts_of(c, starts, sizes)
    ends = w.elementwise("Sub", c.sizes.vector(c.shape()), c.sizes.vector(sizes))
    pads = w.concat([low, w.elementwise("Sub", ends, low)], 0)
    kind: Any = "int32" if x.dtype == BOOL else x.dtype
    moved = w.op("Pad", w.cast(update, kind), pads, w.constant(0, kind), rank=x.rank)
    ones = c.expand(w.constant(1, "int32"), sizes)
    inside = w.op("Pad", ones, pads, w.constant(0, "int32"), rank=x.rank)
    return w.where(w.cast(inside, BOOL), w.cast(moved, x.dtype), x)


def _refused_constant(c: Call) -> Value:
    value = c.attrs["value"]
    if value.dtype.kind in "OSU":
        raise Refused("holds strings, which only the host has")
    return c.w.constant(value)


RULES: Final[dict[str, Rule]] = {
    "After": first,
    "BroadcastTo": lambda c: c.expand(c.xs[0], c.attrs["shape"]),
    "Concatenate": lambda c: c.w.concat(c.xs, c.attrs["axis"]),
    "Constant": _refused_constant,
    "DimValue": lambda c: c.w.cast(c.sizes.scalar(c.attrs["dim"]), c.attrs["dtype"]),
    "DynamicSlice": _dynamic_slice,
    "DynamicUpdateSlice": _dynamic_update,
    "Fence": first,
    "Identity": first,
    "InRange": first,
    "Iota": _iota,
    "Pad": _pad,
    "Reshape": _reshape,
    "Reverse": _reverse,
    "Shard": first,
    "Slice": _slice,
    "Split": _split,
    "Stack": _stack,
    "StopGradient": first,
    "Transpose": lambda c: c.w.transpose(c.xs[0], c.attrs["perm"]),
    "Undifferentiable": first,
    "Unstack": _unstack,
}
