"""Functions that test elements: infinite, real, equal within a tolerance."""

from __future__ import annotations

from graphc.ir.dtypes import is_complex
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import zeros_like
from graphc.ops.core.checks import is_static
from graphc.ops.core.emit import constant, convert, promote_inexact
from graphc.ops.elementwise.arithmetic import absolute
from graphc.ops.elementwise.comparison import (
    equal,
    isfinite,
    isnan,
    logical_and,
    logical_not,
    where,
)
from graphc.ops.elementwise.complex_parts import imag, real
from graphc.ops.reductions.reduction import reduce_all
from graphc.typing import TensorLike

__all__ = [
    "allclose",
    "array_equal",
    "isclose",
    "iscomplex",
    "isinf",
    "isneginf",
    "isposinf",
    "isreal",
]


def isinf(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Whether x is infinite, elementwise, as bool. Source: numpy.isinf.

    Examples:
        >>> run(gc.isinf([1.0, np.inf]))
        Array([False,  True], dtype=bool)
    """
    x = convert(x)
    if is_complex(x.dtype):
        return isinf(real(x)) | isinf(imag(x))
    return logical_and(~isfinite(x), ~isnan(x), name=name)


def isposinf(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Whether x is plus infinity, elementwise, as bool. Source: numpy.isposinf.

    Examples:
        >>> run(gc.isposinf([-np.inf, np.inf]))
        Array([False,  True], dtype=bool)
    """
    x = convert(x)
    return logical_and(isinf(x), x > 0, name=name)


def isneginf(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Whether x is minus infinity, elementwise, as bool. Source: numpy.isneginf.

    Examples:
        >>> run(gc.isneginf([-np.inf, np.inf]))
        Array([ True, False], dtype=bool)
    """
    x = convert(x)
    return logical_and(isinf(x), x < 0, name=name)


def isreal(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Whether the imaginary part is zero, elementwise, as bool. Source: numpy.isreal.

    Examples:
        >>> run(gc.isreal([1 + 1j, 2 + 0j]))
        Array([False,  True], dtype=bool)
    """
    x = convert(x)
    return equal(imag(x) if is_complex(x.dtype) else zeros_like(x), 0, name=name)


def iscomplex(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Whether the imaginary part is not zero, elementwise, as bool. Source: numpy.iscomplex.

    Examples:
        >>> run(gc.iscomplex([1 + 1j, 2 + 0j]))
        Array([ True, False], dtype=bool)
    """
    return logical_not(isreal(x), name=name)


def isclose(
    x: TensorLike,
    y: TensorLike,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """Whether |x - y| <= atol + rtol |y|, with broadcasting, as bool.

    Infinities are close to themselves. NaN is close to NaN with `equal_nan`. Source: numpy.isclose.

    Examples:
        >>> run(gc.isclose([1.0, 2.0], [1.000001, 2.1]))
        Array([ True, False], dtype=bool)
    """
    x, y = promote_inexact(x, y)
    near = absolute(x - y) <= absolute(y) * rtol + atol
    close = (near & isfinite(y)) | equal(x, y)
    return where(isnan(x) & isnan(y), equal_nan, close, name=name)


def allclose(
    x: TensorLike,
    y: TensorLike,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """Whether `isclose` is true everywhere, as a bool scalar. Source: numpy.allclose.

    Examples:
        >>> run(gc.allclose([1.0, 2.0], [1.0, 2.000001]))
        Array(True, dtype=bool)
    """
    return reduce_all(isclose(x, y, rtol, atol, equal_nan), name=name)


def array_equal(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Tensor:
    """Whether x and y have the same shape and equal elements, as a bool scalar.

    Source: numpy.array_equal.

    Examples:
        >>> run(gc.array_equal([1, 2], [1, 2]))
        Array(True, dtype=bool)
    """
    x, y = convert(x), convert(y)
    if x.ndim != y.ndim or any(
        is_static(a, b) and a != b for a, b in zip(x.shape, y.shape, strict=True)
    ):
        return constant(False)
    return reduce_all(equal(x, y), name=name)
