"""Exact products and convolutions of 8-bit integers with zero points.

An integer with a zero point stands for the difference of the two. On CPU, XLA computes products of
int8 in 0.5 to 0.8 of the time of products of float32, and those of wider integers and of float64
many times slower. So factors become int8, and what zero points add is computed apart.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.core.channels_first import (
    Ints,
    Pads,
    channels_last,
    channels_second,
    conv,
    one_of_each,
)
from graphc.ir.node import Tensor

_EXACT: Final = 2**24 // 255**2  # the sum of so many products of differences is exact in float32


@dataclass(frozen=True)
class Integers:
    """The differences `values` - `zero`.

    Attributes:
        values: int8.
        zero: an int32 tensor that broadcasts with `values`; None for 0.
    """

    values: Tensor
    zero: Any = None

    @property
    def wide(self) -> Any:
        """`values` as int32."""
        return ops.cast(self.values, "int32")

    @property
    def differences(self) -> Any:
        """What the integers stand for, as int32."""
        return self.wide if self.zero is None else self.wide - self.zero

    def transposed(self) -> Integers:
        """The transposed matrix."""
        has_axes = self.zero is not None and self.zero.ndim > 0
        return Integers(
            ops.transpose(self.values), ops.transpose(self.zero) if has_axes else self.zero
        )


def integers(x: Tensor, zero: Any, known: Any = None, known_zero: Any = None) -> Integers:
    """A tensor with a zero point as `Integers`. If both are known and the differences fit int8,
    the result has no zero point.

    Args:
        x: int8 or uint8.
        zero: of the dtype of x, and broadcasts with it; None for 0.
        known, known_zero: their values, if these are known already.
    """
    if known_zero is not None and not np.any(known_zero):
        zero = None
    if x.dtype == np.int8 and zero is None:
        return Integers(x)
    wide: Any = ops.cast(x, "int32")
    offset: Any = 0 if zero is None else ops.cast(zero, "int32")
    if known is not None and (zero is None or known_zero is not None):
        differences = known.astype(np.int32) - (0 if zero is None else known_zero.astype(np.int32))
        if differences.min(initial=0) >= -128 and differences.max(initial=0) <= 127:
            return Integers(ops.cast(wide - offset, "int8"))
    if x.dtype == np.int8:
        return Integers(x, offset)
    return Integers(ops.cast(wide - 128, "int8"), offset - 128)


def product(a: Integers, b: Integers) -> Any:
    """`ops.matmul` of integers, as int32. A zero point of `a` has one column, and one of `b` one
    row."""
    if min(a.values.ndim, b.values.ndim) == 1:
        return ops.matmul(a.differences, b.differences)
    y: Any = ops.matmul(a.wide, b.wide)
    if a.zero is not None:
        y = y - a.zero * ops.reduce_sum(b.wide, axis=-2, keepdims=True)
    if b.zero is not None:
        y = y - b.zero * ops.reduce_sum(a.differences, axis=-1, keepdims=True)
    return y


def convolution(
    x: Integers, w: Integers, *, strides: Ints, pads: Pads, dilation: Ints, groups: int = 1
) -> Any:
    """`channels_first.conv` of integers, as int32. `x` has one zero point; `w` has one, or one for
    each output.

    Few products, and those of groups, are convolutions of floats. Others are a product of matrices,
    whose rows are the elements of the windows.
    """
    around = 0 if x.zero is None else ops.cast(x.zero, "int8")
    padded = ops.pad(x.values, [(0, 0), (0, 0), *pads], constant_values=around)
    x = Integers(padded, x.zero)
    window: tuple[Any, ...] = w.values.shape[2:]
    taps: Any = math.prod(window)
    terms = taps * w.values.shape[1]
    is_known = isinstance(terms, int)
    is_short = is_known and terms <= _EXACT
    if groups > 1 or not is_known or (taps > 1 and is_short):
        dtype = "float32" if is_short else "float64"
        xs, ws = (ops.cast(each.differences, dtype) for each in (x, w))
        none = [(0, 0)] * len(window)
        y = conv(xs, ws, strides=strides, pads=none, dilation=dilation, groups=groups)
        return ops.cast(ops.rint(y), "int32")
    last = channels_last(x.values)
    pieces = [
        one_of_each(last, tap, window, strides, dilation, first=1)
        for tap in itertools.product(*(range(k) for k in window))
    ]
    rows = ops.concatenate(pieces, -1) if taps > 1 else pieces[0]
    kernel = ops.transpose(w.values, (*range(2, w.values.ndim), 1, 0))
    filters = kernel.shape[-1]
    zero = None if w.zero is None else ops.reshape(w.zero, (-1,))
    y = product(Integers(rows, x.zero), Integers(ops.reshape(kernel, (-1, filters)), zero))
    return channels_second(y)


__all__ = ["Integers", "convolution", "integers", "product"]
