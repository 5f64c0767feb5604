"""NumPy's elementwise functions that are short expressions of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes

from graphc.ir.dtypes import BOOL, is_complex, is_inexact
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import zeros_like
from graphc.ops.core.emit import cast, convert, promote_inexact, promote_operands
from graphc.ops.core.precision import greatest_finite
from graphc.ops.elementwise.arithmetic import (
    absolute,
    divide,
    floor_divide,
    maximum,
    minimum,
    multiply,
    negative,
    remainder,
)
from graphc.ops.elementwise.comparison import equal, isnan, where
from graphc.ops.elementwise.complex_parts import imag, real
from graphc.ops.elementwise.floats import logaddexp, signbit
from graphc.ops.elementwise.integers import population_count
from graphc.ops.elementwise.rounding import ceil, floor, rint
from graphc.ops.elementwise.transcendental import atan2, log
from graphc.ops.numpy_api.predicates import isinf, isneginf, isposinf
from graphc.typing import TensorLike

__all__ = [
    "angle",
    "around",
    "bitwise_count",
    "copysign",
    "deg2rad",
    "degrees",
    "divmod",
    "fabs",
    "fix",
    "fmax",
    "fmin",
    "heaviside",
    "log2",
    "log10",
    "logaddexp2",
    "modf",
    "nan_to_num",
    "positive",
    "rad2deg",
    "radians",
    "round",
    "trunc",
]

# -- powers and logarithms -------------------------------------------------------------------


def log2(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The logarithm to base 2, elementwise; integers give float32. Source: numpy.log2.

    Examples:
        >>> run(gc.log2([1.0, 8.0]))
        Array([0., 3.], dtype=float32)
    """
    return multiply(log(x), 1 / math.log(2), name=name)


def log10(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The logarithm to base 10, elementwise; integers give float32. Source: numpy.log10.

    Examples:
        >>> run(gc.log10([1.0, 1000.0]))
        Array([0., 3.], dtype=float32)
    """
    return multiply(log(x), 1 / math.log(10), name=name)


def logaddexp2(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Tensor:
    """log2(2**x + 2**y), without overflow, with broadcasting. Source: numpy.logaddexp2.

    Examples:
        >>> run(gc.logaddexp2([3.0], [3.0]))
        Array([4.], dtype=float32)
    """
    x, y = promote_inexact(x, y)
    return multiply(logaddexp(x * math.log(2), y * math.log(2)), 1 / math.log(2), name=name)


# -- rounding, signs and special values ------------------------------------------------------


def trunc(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The nearest integer towards zero, elementwise, in x's dtype. Source: numpy.trunc.

    Examples:
        >>> run(gc.trunc([1.7, -1.7]))
        Array([ 1., -1.], dtype=float32)
    """
    x = convert(x)
    return where(x < 0, ceil(x), floor(x), name=name)


def around(x: TensorLike, decimals: int = 0, *, name: str | None = None) -> Tensor:
    """`x` rounded to `decimals` digits, in its dtype; ties round to even.

    Source: numpy.around.

    Examples:
        >>> run(gc.around([1.26, 2.51], 1))
        Array([1.3, 2.5], dtype=float32)
    """
    tensor = convert(x)
    if decimals == 0 or tensor.dtype == BOOL:  # rint rejects bools
        return rint(tensor, name=name)
    if is_inexact(tensor.dtype):
        scale = 10.0**decimals
        return divide(rint(tensor * scale), scale, name=name)
    if decimals > 0:
        return tensor
    return _to_tens(tensor, 10**-decimals, name)


def _to_tens(x: Tensor, unit: int, name: str | None) -> Tensor:
    """Integers rounded to multiples of `unit`, without floats, which cannot hold all 32 bits."""
    if unit > ml_dtypes.iinfo(x.dtype).max:  # type: ignore[no-untyped-call]
        return zeros_like(x)
    below = floor_divide(x, unit)
    rest = x - below * unit
    other = unit - rest
    odd = equal(remainder(below, 2), 1)
    up = (rest > other) | (equal(rest, other) & odd)
    return multiply(below + cast(up, x.dtype), unit, name=name)


def copysign(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Tensor:
    """|x| with the sign of `y`, with broadcasting; integers give float32.

    Source: numpy.copysign.

    Examples:
        >>> run(gc.copysign([1.0, 2.0], [-1.0, 1.0]))
        Array([-1.,  2.], dtype=float32)
    """
    x, y = promote_inexact(x, y)
    length = absolute(x)
    return where(signbit(y), negative(length), length, name=name)


def fabs(x: TensorLike, *, name: str | None = None) -> Tensor:
    """|x|, elementwise, as a float. Source: numpy.fabs.

    Examples:
        >>> run(gc.fabs([-1.5, 2.0]))
        Array([1.5, 2. ], dtype=float32)
    """
    return absolute(*promote_inexact(x), name=name)


def positive(x: TensorLike) -> Tensor:
    """`x` unchanged. Source: numpy.positive.

    Examples:
        >>> run(gc.positive([1, -2]))
        Array([ 1, -2], dtype=int32)
    """
    return convert(x)


def heaviside(x: TensorLike, at_zero: TensorLike, *, name: str | None = None) -> Tensor:
    """0 for negative x, 1 for positive x and `at_zero` at 0, with broadcasting. Source:
    numpy.heaviside.

    Examples:
        >>> run(gc.heaviside([-1.0, 0.0, 2.0], 0.5))
        Array([0. , 0.5, 1. ], dtype=float32)
    """
    x, middle = promote_inexact(x, at_zero)
    beside = where(isnan(x), x, where(x < 0, zeros_like(x), 1))
    return where(equal(x, 0), middle, beside, name=name)


def nan_to_num(
    x: TensorLike,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`x` with numbers in place of NaN and infinities: by default 0 and the ends of the range.

    Source: numpy.nan_to_num, of real dtypes.

    Examples:
        >>> run(gc.nan_to_num([1.0, np.nan]))
        Array([1., 0.], dtype=float32)
    """
    tensor = convert(x)
    if not is_inexact(tensor.dtype):
        return tensor
    end = greatest_finite(tensor.dtype)
    above = end if posinf is None else posinf
    below = -end if neginf is None else neginf
    bounded = where(isposinf(tensor), above, where(isneginf(tensor), below, tensor))
    return where(isnan(tensor), nan, bounded, name=name)


def bitwise_count(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The number of 1 bits of |x|, for integers. Source: numpy.bitwise_count.

    Examples:
        >>> run(gc.bitwise_count([0, 7, 8]))
        Array([0, 3, 1], dtype=int32)
    """
    return population_count(absolute(x), name=name)


# -- pairs -----------------------------------------------------------------------------------


def fmax(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Tensor:
    """The greater of x and y, with broadcasting; if one is NaN, the other.

    Source: numpy.fmax.

    Examples:
        >>> run(gc.fmax([1.0, np.nan], 0.5))
        Array([1. , 0.5], dtype=float32)
    """
    return _unless_nan(maximum, x, y, name)


def fmin(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Tensor:
    """The smaller of x and y, with broadcasting; if one is NaN, the other.

    Source: numpy.fmin.

    Examples:
        >>> run(gc.fmin([1.0, np.nan], 0.5))
        Array([0.5, 0.5], dtype=float32)
    """
    return _unless_nan(minimum, x, y, name)


def _unless_nan(combine: Callable[..., Tensor], x: Any, y: Any, name: str | None) -> Tensor:
    """`combine` of x and y; where one is NaN, the other."""
    x, y = promote_operands(x, y)
    return where(isnan(x), y, where(isnan(y), x, combine(x, y)), name=name)


def divmod(x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    """`floor_divide(x, y)` and `remainder(x, y)`. Source: numpy.divmod.

    Examples:
        >>> run(gc.divmod([7, -7], 3))
        (Array([ 2, -3], dtype=int32), Array([1, 2], dtype=int32))
    """
    return floor_divide(x, y), remainder(x, y)


def modf(x: TensorLike) -> tuple[Tensor, Tensor]:
    """The fractional and the integral part of `x`, both with its sign. Source: numpy.modf.

    Examples:
        >>> run(gc.modf([1.5, -2.25]))
        (Array([ 0.5 , -0.25], dtype=float32), Array([ 1., -2.], dtype=float32))
    """
    (x,) = promote_inexact(x)
    whole = trunc(x)
    return copysign(where(isinf(x), 0, x - whole), x), whole


# -- angles and complex numbers --------------------------------------------------------------


def deg2rad(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Converts degrees to radians, elementwise. Source: numpy.deg2rad.

    Examples:
        >>> run(gc.deg2rad([0.0, 180.0]))
        Array([0.    , 3.1416], dtype=float32)
    """
    (x,) = promote_inexact(x)
    return multiply(x, math.pi / 180, name=name)


def rad2deg(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Converts radians to degrees, elementwise. Source: numpy.rad2deg.

    Examples:
        >>> run(gc.rad2deg([0.0, np.pi]))
        Array([  0., 180.], dtype=float32)
    """
    (x,) = promote_inexact(x)
    return multiply(x, 180 / math.pi, name=name)


def angle(z: TensorLike, deg: bool = False, *, name: str | None = None) -> Tensor:
    """The angle of complex numbers in radians, from -pi to pi; or in degrees.

    Source: numpy.angle.

    Examples:
        >>> run(gc.angle([1.0, 1j]))
        Array([0.    , 1.5708], dtype=float32)
    """
    (z,) = promote_inexact(z)
    if deg:
        return rad2deg(angle(z), name=name)
    if not is_complex(z.dtype):
        return atan2(zeros_like(z), z, name=name)
    return atan2(imag(z), real(z), name=name)


fix = trunc
radians = deg2rad
degrees = rad2deg
round = around
