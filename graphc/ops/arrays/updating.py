"""`x.at[index].set(values)` and similar updates: a copy of x with changed elements."""

from __future__ import annotations

from typing import Any

from graphc.ir.dtypes import BOOL
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ops.arrays.creation import full
from graphc.ops.arrays.dynamic_slicing import dynamic_update_slice
from graphc.ops.arrays.scattering import scatter
from graphc.ops.arrays.scattering_nd import scatter_at, updates_for
from graphc.ops.arrays.shape import broadcast_to, expand_dims, reshape
from graphc.ops.arrays.slicing import flip, pad_with
from graphc.ops.arrays.subscript import (
    Subscript,
    Window,
    is_whole,
    parse,
    reversed_axes,
    vectors,
    windowed,
)
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, dim_value, graph_of
from graphc.ops.elementwise.arithmetic import add, maximum, minimum, multiply
from graphc.ops.elementwise.comparison import where

_MEETINGS = {"add": add, "mul": multiply, "min": minimum, "max": maximum}


def update(x: Any, index: Any, values: Any, op: str) -> Tensor:
    """`x.at[index].<op>(values)`: `x` with changes to the elements that `x[index]` reads.

    Args:
        x: any tensor.
        index: as in `x[index]`; or one mask with the sizes of the leading axes of `x`, whose true
            elements are changed. An index out of range changes nothing.
        values: of the shape of `x[index]`, or broadcast to it; for a mask that is a tensor, to
            the shape of `x`.
        op: "set", "add", "mul", "min" or "max". Duplicate indices are added (and so on) several
            times; for "set", one of them wins.

    Raises:
        ShapeError: an index out of range, a mask of other sizes, or values that do not broadcast.
        DTypeError: values wider than `x`.

    Source: jax.numpy.ndarray.at.
    """
    x = convert(x)
    changes = updates_for("at", x, values)
    if isinstance(index, Operand) and index.dtype == BOOL:
        return _masked(x, convert(index), changes, op)
    subscript = parse(x, index)
    after = subscript.after_parting
    if after is not None and changes.ndim > after:
        changes = expand_dims(changes, changes.ndim - after)
    y = _updated(x, windowed(x, subscript), subscript, changes, op)
    return _put_back(x, y, subscript.windows)


def _meet(x: Tensor, changes: Tensor, op: str) -> Tensor:
    return changes if op == "set" else _MEETINGS[op](x, changes)


def _masked(x: Tensor, mask: Tensor, changes: Tensor, op: str) -> Tensor:
    if mask.ndim > x.ndim:
        refuse("at: the mask has more axes than x", x=x, mask=mask)
    known = graph_of([x, mask]).constraints
    for axis, (size, wanted) in enumerate(zip(mask.shape, x.shape, strict=False)):
        pair = known.find(size), known.find(wanted)
        if (1 in pair and pair != (1, 1)) or not known.unify(*pair):  # size 1 would broadcast
            refuse(
                f"at: a mask of size {size} along axis {axis}, of size {wanted}",
                x=x,
                mask=mask,
                hint="a mask has the sizes of x's leading axes: gc.broadcast_to it",
            )
    mask = reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
    return where(mask, _meet(x, broadcast_to(changes, x.shape), op), x)


def _updated(x: Tensor, y: Tensor, subscript: Subscript, changes: Tensor, op: str) -> Tensor:
    """The windows `y` of `x`, with changes to the elements that the index tensors select."""
    chosen = subscript.chosen
    if not chosen:
        return _meet(y, broadcast_to(changes, y.shape), op)
    if len(chosen) == 1:
        ((axis, places),) = chosen.items()
        return scatter(y, places, changes, axis, op)
    return scatter_at(y, vectors(x, subscript), changes, op, tuple(chosen))


def _put_back(x: Tensor, y: Tensor, windows: list[Window]) -> Tensor:
    """`x` with its windows replaced by `y`, which is reshaped to fit."""
    sizes = tuple(window.size() for window in windows)
    if y.shape != sizes:
        y = reshape(y, sizes)
    if axes := reversed_axes(windows):
        y = flip(y, axes)
    if is_whole(x, windows):
        return y
    if all(window.stride == 1 for window in windows):
        return dynamic_update_slice(x, y, [dim_value(window.start) for window in windows])
    pads = []
    for dim, window, size in zip(x.shape, windows, sizes, strict=True):
        covered = 0 if size == 0 else (size - 1) * window.stride + 1
        pads.append((window.start, dim - window.start - covered, window.stride - 1))
    inside = pad_with(full(sizes, True), False, pads)
    return where(inside, pad_with(y, 0, pads), x)
