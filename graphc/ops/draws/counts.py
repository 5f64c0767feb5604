"""Random counts: of successes, of classes, of trials, of events; drawn anew in every run.

See `random_key` for seeds.
"""

from __future__ import annotations

from typing import Any

from graphc.errors import DTypeError
from graphc.ir.dtypes import as_dtype, is_complex
from graphc.ir.node import Tensor
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, promote_inexact, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.core.shape_argument import shape_first
from graphc.ops.draws.distributions import fitting, shape_for
from graphc.ops.draws.location_scale import above_zero
from graphc.ops.draws.random_draws import bernoulli, draw
from graphc.ops.draws.random_parametric import RANDOM_BINOMIAL, RANDOM_MULTINOMIAL, RANDOM_POISSON
from graphc.ops.elementwise.arithmetic import divide, maximum
from graphc.ops.elementwise.rounding import ceil
from graphc.ops.elementwise.transcendental import log, log1p
from graphc.typing import DTypeLike, Seed, ShapeLike, TensorLike

__all__ = ["binomial", "geometric", "multinomial", "poisson", "rademacher"]


def _trials(op: str, n: Any, p: Any) -> tuple[Tensor, Tensor]:
    """Both in the dtype of p, but at least float32, which n needs."""
    (share,) = promote_inexact(p)
    share = to_dtype(share, wide(share.dtype))
    count = convert(n)
    if is_complex(count.dtype):
        refuse(f"{op}: n must be a number of trials, got {count.type}", error=DTypeError, n=count)
    return to_dtype(n if count.ndim == 0 else count, share.dtype), share


def binomial(
    n: TensorLike,
    p: TensorLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = "int32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """The number of successes in `n` trials with probability `p`.

    Args:
        n: not negative; exact up to 2^24, or 2^53 if `p` is float64.
        p: from 0 to 1; `n` and `p` broadcast to `shape`.
        shape: ints and named sizes; by default the common shape of `n` and `p`.
        dtype: int32 or int64.
        seed: see `random_key`.
        name: of the node.

    Raises:
        ShapeError: `n` or `p` does not broadcast to `shape`.
        DTypeError: complex numbers.

    Source: numpy.random.Generator.binomial.

    Examples:
        >>> run(gc.random.binomial(10, [0.2, 0.8], seed=1))
        Array([0, 5], dtype=int32)
        >>> run(gc.random.binomial(10, [0.0, 1.0]))
        Array([ 0, 10], dtype=int32)
    """
    count, share = _trials("binomial", n, p)
    sizes = shape_for("RandomBinomial", shape, count.shape, share.shape)
    attrs = {"shape": sizes, "dtype": as_dtype(dtype)}
    return draw(RANDOM_BINOMIAL, (), (count, share), seed, name, **attrs)[0]


def multinomial(
    n: TensorLike,
    p: TensorLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = "int32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """The number of the `n` trials that give each class.

    Args:
        n: not negative, as in `binomial`.
        p: [..., k]: the probability of each class. Only their ratios matter.
        shape: of the stack of vectors, to which `n` and the axes of `p` before the last
            broadcast; by default their common shape.
        dtype: int32 or int64.
        seed: see `random_key`.
        name: of the node.

    Returns:
        [*shape, k]; the numbers along the last axis add up to `n`.

    Raises:
        ShapeError: `p` is a scalar, or `n` or `p` does not broadcast to `shape`.
        DTypeError: complex numbers.

    Source: numpy.random.Generator.multinomial.

    Examples:
        >>> run(gc.random.multinomial(10, [0.2, 0.8], seed=1))
        Array([3, 7], dtype=int32)
        >>> run(gc.sum(gc.random.multinomial(10, [0.2, 0.8])))
        Array(10, dtype=int32)
    """
    count, share = _trials("multinomial", n, p)
    sizes = shape_for("RandomMultinomial", shape, count.shape, share.shape[:-1])
    attrs = {"shape": sizes, "dtype": as_dtype(dtype)}
    return draw(RANDOM_MULTINOMIAL, (), (count, share), seed, name, **attrs)[0]


def geometric(
    p: TensorLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = "int32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """The number of the first successful trial, counted from 1, with success probability `p`.

    Args:
        p: more than 0, at most 1; it broadcasts to `shape`.
        shape: ints and named sizes; by default the shape of `p`.
        dtype: an integer.
        seed: see `random_key`.
        name: of the node that draws.

    Raises:
        ShapeError: `p` does not broadcast to `shape`.

    Source: numpy.random.Generator.geometric.

    Examples:
        >>> run(gc.random.geometric(0.5, (5,), seed=1))
        Array([4, 2, 3, 1, 3], dtype=int32)
        >>> run(gc.random.geometric([1.0]))
        Array([1], dtype=int32)
    """
    (share,) = promote_inexact(p)
    share = to_dtype(share, wide(share.dtype))
    sizes = fitting("geometric", shape, share)
    even = above_zero(sizes, share.dtype, seed, name)
    return to_dtype(maximum(ceil(divide(log(even), log1p(-share))), 1), as_dtype(dtype))


def poisson(
    rate: TensorLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = "int32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Integers from the Poisson distribution with mean `rate`, which is not negative.

    Args:
        rate: it broadcasts to `shape`.
        shape: ints and named sizes; by default the shape of `rate`.
        dtype: int32 or int64.
        seed: see `random_key`.
        name: of the node.

    Raises:
        ShapeError: `rate` does not broadcast to `shape`.

    Source: numpy.random.Generator.poisson.

    Examples:
        >>> run(gc.random.poisson([1.0, 10.0], seed=1))
        Array([ 2, 10], dtype=int32)
        >>> run(gc.random.poisson([0.0]))
        Array([0], dtype=int32)
    """
    (mean,) = promote_inexact(rate)
    sizes = shape_for("RandomPoisson", shape, mean.shape)
    return draw(RANDOM_POISSON, (), (mean,), seed, name, shape=sizes, dtype=as_dtype(dtype))[0]


@shape_first
def rademacher(
    shape: ShapeLike, dtype: DTypeLike = "int32", *, seed: Seed = None, name: str | None = None
) -> Tensor:
    """1 or -1 with equal probability. Source: jax.random.rademacher.

    Examples:
        >>> run(gc.random.rademacher((5,), seed=1))
        Array([ 1,  1,  1, -1,  1], dtype=int32)
        >>> run(gc.reduce_all(abs(gc.random.rademacher((100,))) == 1))
        Array(True, dtype=bool)
    """
    heads = bernoulli(0.5, shape, seed=seed, name=name)
    return 2 * to_dtype(heads, as_dtype(dtype)) - 1
