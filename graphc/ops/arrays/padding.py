"""`pad`: values, or elements of the tensor itself, before and after each axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim, Shape
from graphc.ir.dtypes import INT32
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.slicing import pad_with
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.emit import convert, dim_value
from graphc.ops.elementwise.arithmetic import maximum, minimum
from graphc.typing import TensorLike

__all__ = ["pad"]


def pad(
    x: TensorLike,
    pad_width: Dim | Sequence[Dim] | Sequence[Sequence[Dim]],
    mode: str = "constant",
    constant_values: TensorLike = 0,
    *,
    name: str | None = None,
) -> Tensor:
    """`x` padded with `constant_values` or with its own elements.

    Args:
        x: any tensor.
        pad_width: the sizes before and after: one number, one pair for all axes, or a pair for
            each.
        mode: "constant", "edge", "reflect", "symmetric" or "wrap".
        constant_values: one number or scalar tensor.

    Raises:
        AttributeValueError: another mode, widths that do not fit, or an axis without elements to
            repeat.

    Source: numpy.pad.

    Examples:
        >>> run(gc.pad([1, 2], 1))
        Array([0, 1, 2, 0], dtype=int32)
    """
    x = convert(x)
    if mode not in ("constant", *_OWN_MODES):
        modes = ", ".join(f'"{known}"' for known in _OWN_MODES)
        refuse(
            f'Pad: mode must be "constant", {modes}, got {mode!r}',
            error=AttributeValueError,
            hint="constant_values= is the number that fills",
        )
    widths = _pad_widths(x, pad_width)
    if any(isinstance(width, int) and width < 0 for pair in widths for width in pair):
        refuse(
            f"Pad: negative width in {pad_width!r}",
            error=AttributeValueError,
            x=x,
            hint="cut with x[1:-1]",
        )
    if mode in _OWN_MODES:
        return _pad_with_own(x, widths, mode)
    return pad_with(x, constant_values, [(*pair, 0) for pair in widths], name=name)


_OWN_MODES = ("edge", "reflect", "symmetric", "wrap")


def _pad_with_own(x: Tensor, widths: list[Shape], mode: Any) -> Tensor:
    """`x` padded with its own elements, axis by axis."""
    for axis, ((low, high), size) in enumerate(zip(widths, x.shape, strict=True)):
        if (low, high) == (0, 0):
            continue
        if size == 0:
            refuse(
                f'Pad: mode "{mode}" repeats elements, but axis {axis} has none',
                error=AttributeValueError,
                x=x,
            )
        x = take(x, _own_places(low, high, size, mode), axis)
    return x


def _own_places(low: Dim, high: Dim, size: Dim, mode: str) -> Any:
    """The old index of each new element. NumPy finds it by padding the indices; for named sizes
    the same indices are computed: each mode repeats a period of elements, or one that is
    mirrored."""
    if isinstance(size, int) and isinstance(low, int) and isinstance(high, int):
        return np.pad(np.arange(size, dtype=np.int32), (low, high), mode)  # type: ignore[call-overload]
    at = iota((low + size + high,)) - dim_value(low, INT32)
    count = dim_value(size, INT32)
    if mode == "edge":
        return minimum(maximum(at, 0), count - 1)
    if mode == "wrap":
        return at % count
    if mode == "symmetric":
        turned = at % (2 * count)
        return minimum(turned, 2 * count - 1 - turned)
    period = maximum(2 * count - 2, 1)  # one element is repeated
    turned = at % period
    return minimum(turned, 2 * count - 2 - turned)


def _pad_widths(x: Tensor, pad_width: Any) -> list[Shape]:
    """A pair for each axis, from the forms that numpy.pad accepts."""
    items = list(pad_width) if isinstance(pad_width, Iterable) else [pad_width]
    pairs = (
        [as_dims("Pad", item) for item in items]
        if items and isinstance(items[0], Iterable)
        else [as_dims("Pad", items)]
    )
    pairs = [pair * 2 if len(pair) == 1 else pair for pair in pairs]
    if len(pairs) == 1:
        pairs = pairs * x.ndim
    if len(pairs) != x.ndim or any(len(pair) != 2 for pair in pairs):
        refuse(
            f"Pad: {pad_width!r} does not give (before, after) for {x.ndim} axes",
            error=AttributeValueError,
            hint=f"gc.pad(x, ({', '.join(['(1, 1)'] * x.ndim)})), or one pair for all axes",
            x=x,
        )
    return pairs
