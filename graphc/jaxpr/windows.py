"""Windows at a computed position: dynamic slices and their updates."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.dims import Dim, Shape
from graphc.ir.dtypes import INT32, is_64bit
from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Rule, known_int
from graphc.ops.arrays import dynamic_slicing
from graphc.ops.arrays.slicing import slice_
from graphc.ops.core.emit import dim_value, to_dtype
from graphc.ops.elementwise.arithmetic import maximum
from graphc.ops.elementwise.comparison import greater_equal, less_equal, logical_and


def dynamic_slice(x: Tensor, starts: Sequence[Tensor], sizes: Shape) -> Tensor:
    """The window of `sizes` of `x` from `starts`, which are clamped so that it is inside `x`."""
    lows: list[Dim] = [0] * x.ndim
    limits: list[Dim] = list(x.shape)
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        known = _known_start(start, x.shape[axis] - size)
        if known is not None:
            lows[axis], limits[axis] = known, known + size
    if (tuple(lows), tuple(limits)) != ((0,) * x.ndim, x.shape):
        x = slice_(x, lows, limits)
    return x if x.shape == sizes else dynamic_slicing.dynamic_slice(x, _places(starts), sizes)


def dynamic_update_slice(x: Tensor, update: Tensor, starts: Sequence[Tensor]) -> Tensor:
    """`x` with the window from `starts` replaced by `update`. `starts` is clamped as in
    `dynamic_slice`."""
    if update.shape == x.shape:
        return update
    return dynamic_slicing.dynamic_update_slice(x, update, _places(starts))


def _places(starts: Sequence[Tensor]) -> list[Tensor]:
    """The starts for graphc's operators, in which negative starts count from the end."""
    wide = [_signed(start) for start in starts]
    dtype = next((start.dtype for start in wide if is_64bit(start.dtype)), INT32)
    return [maximum(to_dtype(start, dtype), 0) for start in wide]


def in_range(x: Tensor, starts: Sequence[Tensor], sizes: Shape) -> Tensor | None:
    """Whether the window is inside `x` without clamping; None if this is known to be true."""
    result: Tensor | None = None
    for start, size, full in zip(starts, sizes, x.shape, strict=True):
        room = full - size
        known = known_int(start)
        known_room = room if isinstance(room, int) else 0
        if known is not None and (known == 0 or 0 < known <= known_room):
            continue
        wide = _signed(start)
        fits = logical_and(greater_equal(wide, 0), less_equal(wide, dim_value(room, wide.dtype)))
        result = fits if result is None else logical_and(result, fits)
    return result


def _known_start(start: Tensor, room: Dim) -> int | None:
    """The clamped start, if it is known. `room` is the largest valid start."""
    known = 0 if room == 0 else known_int(start)
    if known is not None and isinstance(room, int):
        return min(max(known, 0), room)
    return 0 if known is not None and known <= 0 else None


def _signed(start: Tensor) -> Tensor:
    if start.dtype.kind == "i" and start.dtype.itemsize >= 4:
        return start
    return to_dtype(start, start.dtype if is_64bit(start.dtype) else INT32)


RULES: dict[str, Rule] = {
    "dynamic_slice": lambda eqn, x, *starts: dynamic_slice(x, starts, eqn.type.shape),
    "dynamic_update_slice": lambda eqn, x, update, *starts: dynamic_update_slice(x, update, starts),
}
