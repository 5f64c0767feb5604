"""Polynomials as vectors of coefficients, the highest power first."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import is_inexact
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import zeros
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, promote_inexact, promote_operands, to_dtype
from graphc.ops.core.precision import wide_integer
from graphc.ops.elementwise.arithmetic import add, divide, multiply, negative
from graphc.ops.scipy_api.convolving import convolve
from graphc.typing import TensorLike

__all__ = ["polyadd", "polyder", "polyint", "polymul", "polysub"]


def polyadd(a: TensorLike, b: TensorLike) -> Tensor:
    """The sum of two polynomials. Source: numpy.polyadd.

    Examples:
        >>> run(gc.polyadd([1, 2], [3]))
        Array([1, 5], dtype=int32)
    """
    left, right = promote_operands(_vector("polyadd", a), _vector("polyadd", b))
    longer, shorter = (left, right) if _length(left) >= _length(right) else (right, left)
    missing = _length(longer) - _length(shorter)
    return add(longer, concatenate([zeros((missing,), shorter.dtype), shorter]))


def polysub(a: TensorLike, b: TensorLike) -> Tensor:
    """The difference of two polynomials. Source: numpy.polysub.

    Examples:
        >>> run(gc.polysub([1, 2], [3]))
        Array([ 1, -1], dtype=int32)
    """
    left, right = promote_operands(_vector("polysub", a), _vector("polysub", b))
    return polyadd(left, negative(right))


def polymul(a: TensorLike, b: TensorLike) -> Tensor:
    """The product of two polynomials. Source: numpy.polymul.

    Examples:
        >>> run(gc.polymul([1, 1], [1, -1]))
        Array([ 1.,  0., -1.], dtype=float32)
    """
    return convolve(_vector("polymul", a), _vector("polymul", b))


def polyder(a: TensorLike, m: int = 1) -> Tensor:
    """The derivative of order `m` of a polynomial. Source: numpy.polyder.

    Examples:
        >>> run(gc.polyder([1, 2, 3]))
        Array([2, 2], dtype=int32)
    """
    found = _vector("polyder", a)
    _check_order("polyder", m)
    if not is_inexact(found.dtype):  # the powers may not fit narrow integers
        found = to_dtype(found, wide_integer(found.dtype))
    for _ in range(m):
        powers = np.arange(_length(found) - 1, 0, -1)
        found = multiply(found[:-1], to_dtype(powers, found.dtype))
    return found


def polyint(a: TensorLike, m: int = 1, k: TensorLike = 0) -> Tensor:
    """The integral of order `m` of a polynomial; integers give float32.

    Args:
        a: [n].
        m: how often it is integrated.
        k: the constant that each integration adds.

    Source: numpy.polyint.

    Examples:
        >>> run(gc.polyint([2.0, 2.0]))
        Array([1., 2., 0.], dtype=float32)
    """
    found = _vector("polyint", a)
    _check_order("polyint", m)
    if not is_inexact(found.dtype):
        (found,) = promote_inexact(found)
    end = reshape(to_dtype(k, found.dtype), (1,))
    for _ in range(m):
        powers = to_dtype(np.arange(_length(found), 0, -1), found.dtype)
        found = concatenate([divide(found, powers), end])
    return found


def _vector(name: str, x: Any) -> Tensor:
    tensor = convert(x)
    if tensor.ndim != 1 or not isinstance(tensor.shape[0], int):
        refuse(f"{name}: takes vectors of known length", x=tensor)
    return tensor


def _check_order(name: str, m: int) -> None:
    if m < 0:
        refuse(f"{name}: m must not be negative, got {m}", error=AttributeValueError)


def _length(x: Tensor) -> int:
    size = x.shape[0]
    return size if isinstance(size, int) else refuse("polynomials have a known length", x=x)
