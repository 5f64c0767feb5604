"""Special functions of SciPy that are short expressions of other operators, elementwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graphc.ir.node import Tensor
from graphc.ops.core.emit import promote_inexact
from graphc.ops.core.precision import highest
from graphc.ops.elementwise.arithmetic import absolute, maximum, multiply, remainder, subtract
from graphc.ops.elementwise.comparison import (
    equal,
    isnan,
    less,
    logical_and,
    logical_xor,
    not_equal,
    where,
)
from graphc.ops.elementwise.rounding import floor
from graphc.ops.elementwise.transcendental import erfc, exp, expm1, log, log1p
from graphc.ops.scipy_api.special import gammaln, i0e, i1e, xlogy
from graphc.typing import TensorLike

__all__ = [
    "betaln",
    "boxcox",
    "comb",
    "entr",
    "factorial",
    "gamma",
    "i0",
    "i1",
    "kl_div",
    "logit",
    "ndtr",
    "poch",
    "rel_entr",
]


def logit(x: TensorLike, *, name: str | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of `sigmoid`, elementwise. Source: scipy.special.logit.

    Examples:
        >>> run(gc.logit([0.5, 0.75]))
        Array([0.    , 1.0986], dtype=float32)
    """
    (x,) = promote_inexact(x)
    return subtract(log(x), log1p(-x), name=name)


def ndtr(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The normal distribution's probability below x, elementwise. Source: scipy.special.ndtr.

    Examples:
        >>> run(gc.ndtr([0.0, 1.96]))
        Array([0.5  , 0.975], dtype=float32)
    """
    (x,) = promote_inexact(x)
    return multiply(erfc(x * -math.sqrt(0.5)), 0.5, name=name)


def entr(x: TensorLike, *, name: str | None = None) -> Tensor:
    """-x log(x), elementwise; 0 at 0 and -inf below. Source: scipy.special.entr.

    Examples:
        >>> run(gc.entr([0.5]))
        Array([0.3466], dtype=float32)
    """
    (x,) = promote_inexact(x)
    return where(x < 0, -math.inf, -xlogy(x, x), name=name)


def rel_entr(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Tensor:
    """x log(x / y), with broadcasting; 0 where x is 0, infinite where x or y is negative. Source:
    scipy.special.rel_entr.

    Examples:
        >>> run(gc.rel_entr([1.0, 2.0], [1.0, 1.0]))
        Array([0.    , 1.3863], dtype=float32)
    """
    x, y = promote_inexact(x, y)
    return _where_positive(lambda x, y: x * (log(x) - log(y)), x, y, 0, name)


def kl_div(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Tensor:
    """x log(x / y) - x + y, with broadcasting; infinite where x or y is negative. Source:
    scipy.special.kl_div.

    Examples:
        >>> run(gc.kl_div([1.0], [1.0]))
        Array([0.], dtype=float32)
    """
    x, y = promote_inexact(x, y)
    return _where_positive(lambda x, y: x * (log(x) - log(y)) - x + y, x, y, y, name)


def _where_positive(
    function: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    at_zero: TensorLike,
    name: str | None,
) -> Tensor:
    """`function(x, y)` where both are positive, `at_zero` where x is 0 and y is not negative, NaN
    where one of them is NaN, and infinity elsewhere."""
    positive = (x > 0) & (y > 0)
    # Operands outside the domain would make the gradients NaN.
    inside = function(where(positive, x, 1), where(positive, y, 1))
    zero = equal(x, 0) & (y >= 0)
    elsewhere = where(isnan(x) | isnan(y), math.nan, highest(x.dtype))
    return where(positive, inside, where(zero, at_zero, elsewhere), name=name)


def betaln(a: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """The logarithm of |beta(a, b)|, with broadcasting. Source: scipy.special.betaln.

    Examples:
        >>> run(gc.betaln(1.0, [1.0, 2.0]))
        Array([ 0.    , -0.6931], dtype=float32)
    """
    a, b = promote_inexact(a, b)
    return subtract(gammaln(a) + gammaln(b), gammaln(a + b), name=name)


def gamma(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The gamma function, elementwise; integers give float32. Source: scipy.special.gamma.

    Examples:
        >>> run(gc.gamma([1.0, 4.0]))
        Array([1., 6.], dtype=float32)
    """
    (x,) = promote_inexact(x)
    size = exp(gammaln(x))
    return where(_gamma_is_negative(x), -size, size, name=name)


def factorial(n: TensorLike, *, name: str | None = None) -> Tensor:
    """n!, elementwise, as a float; 0 below 0. Source: scipy.special.factorial.

    Examples:
        >>> run(gc.factorial([0.0, 3.0]))
        Array([1., 6.], dtype=float32)
    """
    (n,) = promote_inexact(n)
    return where(n < 0, 0, gamma(maximum(n, 0) + 1), name=name)


def comb(n: TensorLike, k: TensorLike, *, name: str | None = None) -> Tensor:
    """The number of ways to choose `k` of `n`, as a float, with broadcasting; 0 if there are none.

    It is computed with logarithms, so large results are rounded. Source: scipy.special.comb.

    Examples:
        >>> run(gc.comb([4.0, 5.0], 2.0))
        Array([ 6., 10.], dtype=float32)
    """
    n, k = promote_inexact(n, k)
    some = logical_and(logical_and(k >= 0, n >= 0), k <= n)
    n, k = where(some, n, 1), where(some, k, 0)
    return where(some, exp(-log1p(n) - betaln(n - k + 1, k + 1)), 0, name=name)


def poch(z: TensorLike, m: TensorLike, *, name: str | None = None) -> Tensor:
    """gamma(z + m) / gamma(z), for whole m the product z (z + 1) ... (z + m - 1).

    Source: scipy.special.poch.

    Examples:
        >>> run(gc.poch([2.0], 3.0))
        Array([24.], dtype=float32)
    """
    z, m = promote_inexact(z, m)
    # If both are poles, use the reflected product: the same factors in the opposite order.
    turned = logical_and(_is_pole(z), _is_pole(z + m))
    odd = logical_and(turned, equal(remainder(m, 2), 1))
    z = where(turned, 1 - z - m, z)
    size = exp(gammaln(z + m) - gammaln(z))
    minus = not_equal(logical_xor(_gamma_is_negative(z + m), _gamma_is_negative(z)), odd)
    return where(minus, -size, size, name=name)


def _is_pole(x: Tensor) -> Tensor:
    return logical_and(x <= 0, equal(x, floor(x)))


def _gamma_is_negative(x: Tensor) -> Tensor:
    return logical_and(less(x, 0), equal(remainder(floor(x), 2), 1))


def boxcox(x: TensorLike, lmbda: TensorLike, *, name: str | None = None) -> Tensor:
    """(x^lmbda - 1) / lmbda, and log(x) where lmbda is 0, with broadcasting.

    Source: scipy.special.boxcox; Box & Cox, Journal of the Royal Statistical Society B 26, 1964.

    Examples:
        >>> run(gc.boxcox([1.0, 2.0], 2.0))
        Array([0. , 1.5], dtype=float32)
    """
    x, lmbda = promote_inexact(x, lmbda)
    zero, exponent = equal(lmbda, 0), xlogy(lmbda, x)
    at_zero = log(x) * (exponent * 0.5 + 1)  # the series, for the derivatives
    return where(zero, at_zero, expm1(exponent) / where(zero, 1, lmbda), name=name)


def i0(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The modified Bessel function of order 0, elementwise. Source: numpy.i0.

    Examples:
        >>> run(gc.i0([0.0, 1.0]))
        Array([1.    , 1.2661], dtype=float32)
    """
    return _unscaled(i0e, x, name)


def i1(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The modified Bessel function of order 1, elementwise. Source: scipy.special.i1.

    Examples:
        >>> run(gc.i1([0.0, 1.0]))
        Array([0.    , 0.5652], dtype=float32)
    """
    return _unscaled(i1e, x, name)


def _unscaled(scaled: Callable[..., Tensor], x: Any, name: str | None) -> Tensor:
    """The Bessel function that `scaled` gives divided by exp(|x|)."""
    (x,) = promote_inexact(x)
    return multiply(exp(absolute(x)), scaled(x), name=name)
