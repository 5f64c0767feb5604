"""More distributions, as formulas of uniform, normal and gamma numbers, drawn anew in every run.

See `random_key` for seeds. Integer parameters are converted to float32.
"""

from __future__ import annotations

from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.dims import Shape
from graphc.ir.dtypes import as_dtype
from graphc.ir.node import Tensor
from graphc.ops.arrays.diagonals import diagonal
from graphc.ops.arrays.shape import broadcast_to, expand_dims
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.checks import as_dims, positive_int, refuse
from graphc.ops.core.emit import constant, emit_one, promote_inexact
from graphc.ops.draws.distributions import fitting
from graphc.ops.draws.location_scale import above_zero, exponential, limits, normal, uniform
from graphc.ops.draws.random_draws import (
    RANDOM_BERNOULLI,
    RANDOM_NORMAL,
    RANDOM_UNIFORM,
    draw,
    placed,
)
from graphc.ops.draws.random_keys import fold_in, random_key
from graphc.ops.draws.random_parametric import RANDOM_GAMMA
from graphc.ops.elementwise.arithmetic import absolute, divide, multiply, negative, sign
from graphc.ops.elementwise.comparison import less, where
from graphc.ops.elementwise.powers import power, sqrt, square
from graphc.ops.elementwise.transcendental import exp, log
from graphc.ops.matrices.factorization import qr
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import DTypeLike, Seed, ShapeLike, TensorLike

__all__ = [
    "ball",
    "f",
    "generalized_normal",
    "orthogonal",
    "pareto",
    "triangular",
    "wald",
    "weibull",
]

# -- of parameters ----------------------------------------------------------------------------


def weibull(
    a: TensorLike,
    scale: TensorLike = 1.0,
    shape: ShapeLike | None = None,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the Weibull distribution: exponentially distributed numbers to the power 1 / a.

    Args:
        a: positive; it broadcasts to `shape`.
        scale: a factor: a number or a tensor that broadcasts to `shape`.
        shape: ints and named sizes; by default the common shape of `a` and `scale`.
        seed: see `random_key`.
        name: of the node that draws.

    Raises:
        ShapeError: `a` or `scale` do not broadcast to `shape`.

    Source: numpy.random.Generator.weibull.

    Examples:
        >>> run(gc.random.weibull(2.0, shape=(3,), seed=1))
        Array([1.5035, 1.033 , 1.4255], dtype=float32)
    """
    (a,) = promote_inexact(a)
    sizes = fitting("weibull", shape, a, scale)
    even = -log(above_zero(sizes, a.dtype, seed, name))
    return placed(power(even, divide(1.0, a)), 0, scale)


def pareto(
    b: TensorLike, shape: ShapeLike | None = None, *, seed: Seed = None, name: str | None = None
) -> Tensor:
    """Numbers from the Pareto distribution: at least 1, and above x with probability x^-b. `b` and
    `shape` are like `a` and `shape` in `weibull`.

    Source: jax.random.pareto; numpy.random.Generator.pareto subtracts 1.

    Examples:
        >>> run(gc.random.pareto(3.0, shape=(3,), seed=1))
        Array([1.0374, 1.1509, 1.0479], dtype=float32)
    """
    (b,) = promote_inexact(b)
    sizes = fitting("pareto", shape, b)
    return exp(divide(exponential(sizes, dtype=b.dtype, seed=seed, name=name), b))


def triangular(
    left: TensorLike,
    mode: TensorLike,
    right: TensorLike,
    shape: ShapeLike | None = None,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the triangular distribution from `left` to `right` with the given `mode`.

    Args:
        left, mode, right: in this order; they broadcast together and to `shape`.
        shape: ints and named sizes; by default their common shape.
        seed: see `random_key`.
        name: of the node that draws.

    Raises:
        ShapeError: they do not broadcast to `shape`.

    Source: numpy.random.Generator.triangular.

    Examples:
        >>> run(gc.random.triangular(0.0, 1.0, 3.0, shape=(3,), seed=1))
        Array([0.5593, 1.016 , 0.6271], dtype=float32)
    """
    left, mode, right = promote_inexact(left, mode, right)
    sizes = fitting("triangular", shape, left, mode, right)
    even = uniform(sizes, dtype=left.dtype, seed=seed, name=name)
    width, rise, fall = right - left, mode - left, right - mode
    below = less(even * width, rise)
    # The unused root gets 1, so that its gradient is finite.
    low = sqrt(where(below, even * width * rise, 1))
    high = sqrt(where(below, 1, (1 - even) * width * fall))
    return where(below, left + low, right - high)


def wald(
    mean: TensorLike,
    scale: TensorLike = 1.0,
    shape: ShapeLike | None = None,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the Wald (inverse Gaussian) distribution.

    Args:
        mean, scale: positive; they broadcast together and to `shape`.
        shape: ints and named sizes; by default their common shape.
        seed: see `random_key`.
        name: of the node that draws the normal numbers.

    Raises:
        ShapeError: they do not broadcast to `shape`.

    Source: numpy.random.Generator.wald; Michael, Schucany & Haas, American Statistician 30, 1976.

    Examples:
        >>> run(gc.random.wald(1.0, shape=(3,), seed=1))
        Array([0.1561, 0.387 , 1.4272], dtype=float32)
    """
    mean, scale = promote_inexact(mean, scale)
    sizes = fitting("wald", shape, mean, scale)
    key = random_key(seed)
    attrs: dict[str, Any] = {"shape": sizes, "dtype": mean.dtype}
    normals = emit_one(RANDOM_NORMAL, (fold_in(key, 0),), name, **attrs)
    even = emit_one(RANDOM_UNIFORM, (fold_in(key, 1),), **attrs)
    y = 0.5 * mean * square(normals) / scale
    # The lesser root of the quadratic, in a form without cancellation.
    x = divide(mean, 1 + y + sqrt(y * (2 + y)))
    return where(less(even * (mean + x), mean), x, divide(square(mean), x))


def f(
    dfnum: TensorLike,
    dfden: TensorLike,
    shape: ShapeLike | None = None,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the F distribution: the ratio of two scaled chi-square numbers.

    Args:
        dfnum, dfden: positive; they broadcast together and to `shape`. Gradients flow to them.
        shape: ints and named sizes; by default their common shape.
        seed: see `random_key`.
        name: of the node that draws.

    Raises:
        ShapeError: they do not broadcast to `shape`.

    Source: numpy.random.Generator.f.

    Examples:
        >>> run(gc.random.f(3.0, 4.0, shape=(3,), seed=1))
        Array([0.3773, 0.3726, 0.6646], dtype=float32)
    """
    dfnum, dfden = promote_inexact(dfnum, dfden)
    sizes = fitting("f", shape, dfnum, dfden)
    both = 0.5 * stack([broadcast_to(dfnum, sizes), broadcast_to(dfden, sizes)])
    logs = draw(RANDOM_GAMMA, (), (both,), seed, name, shape=both.shape, log=True)[0]
    return multiply(exp(logs[0] - logs[1]), divide(dfden, dfnum))


def generalized_normal(
    p: TensorLike, shape: ShapeLike | None = None, *, seed: Seed = None, name: str | None = None
) -> Tensor:
    """Numbers x with a density proportional to exp(-|x|^p); `p`, `shape` as `a` in `weibull`.

    Source: jax.random.generalized_normal; Nadarajah, Journal of Applied Statistics 32, 2005.

    Examples:
        >>> run(gc.random.generalized_normal(2.0, shape=(3,), seed=1))
        Array([-0.5847,  0.475 , -0.2009], dtype=float32)
    """
    (p,) = promote_inexact(p)
    sizes = fitting("generalized_normal", shape, p)
    return _generalized_normal(p, sizes, random_key(seed), name)


def _generalized_normal(p: Tensor, sizes: Shape, key: Tensor, name: str | None) -> Tensor:
    inverse = divide(1.0, p)
    spread = emit_one(RANDOM_GAMMA, (fold_in(key, 0), inverse), name, shape=sizes)
    heads = emit_one(RANDOM_BERNOULLI, (fold_in(key, 1), constant(0.5)), shape=sizes)
    size = power(spread, inverse)
    return where(heads, size, negative(size))


# -- of vectors and matrices ------------------------------------------------------------------


def ball(
    d: int,
    p: float = 2.0,
    shape: ShapeLike = (),
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Uniformly distributed points in the unit ball of the p-norm in `d` dimensions.

    Args:
        d: an int, positive.
        p: a number, positive.
        shape: the batch shape.
        dtype: floating.
        seed: see `random_key`.
        name: of the node that draws.

    Returns:
        [*shape, d].

    Raises:
        AttributeValueError: d is not a positive int, or p not a positive number.

    Source: jax.random.ball; Barthe, Guedon, Mendelson & Naor, Annals of Probability 33, 2005.

    Examples:
        >>> run(gc.random.ball(3, shape=(2,), seed=1))
        Array([[ 0.0089, -0.8172, -0.1908],
               [ 0.3647,  0.681 , -0.4136]], dtype=float32)
    """
    number: Any = p
    if type(number) not in (int, float) or not p > 0:
        refuse(f"ball: p must be a positive number, got {p!r}", error=AttributeValueError)
    sizes = (*as_dims("ball", shape), positive_int("ball", "d", d))
    key, order = random_key(seed), constant(float(p), as_dtype(dtype))
    points = _generalized_normal(order, sizes, fold_in(key, 0), name)
    attrs: dict[str, Any] = {"shape": sizes[:-1], "dtype": order.dtype}
    least = float(limits(dtype).tiny)
    outside = emit_one(RANDOM_UNIFORM, (fold_in(key, 1),), minval=least, **attrs)
    total = reduce_sum(power(absolute(points), order), -1) - log(outside)
    return points / expand_dims(power(total, divide(1.0, order)), -1)


def orthogonal(
    n: int,
    shape: ShapeLike = (),
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Uniformly (Haar) distributed orthogonal matrices.

    Args:
        n: the side, an int.
        shape: the batch shape.
        dtype: float32 or float64.
        seed: see `random_key`.
        name: of the node that draws.

    Returns:
        [*shape, n, n].

    Raises:
        AttributeValueError: n is not a positive int.
        DTypeError: narrower floats.

    Source: jax.random.orthogonal; Mezzadri, Notices of the AMS 54, 2007.

    Examples:
        >>> q = gc.random.orthogonal(3)
        >>> run(gc.allclose(q @ q.T, gc.eye(3), atol=1e-5))
        Array(True, dtype=bool)
    """
    side = positive_int("orthogonal", "n", n)
    sizes = (*as_dims("orthogonal", shape), side, side)
    q, r = qr(normal(sizes, dtype=dtype, seed=seed, name=name))
    return multiply(q, expand_dims(sign(diagonal(r, 0, -2, -1)), -2))
