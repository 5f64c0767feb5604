"""Distributions with a location and a scale, drawn anew in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import numpy as jnp

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import as_dtype, is_floating
from graphc.ir.node import Tensor
from graphc.ops.core.checks import refuse
from graphc.ops.draws.random_draws import normal, placed, uniform
from graphc.ops.elementwise.arithmetic import absolute, negative, sign
from graphc.ops.elementwise.transcendental import exp, log, log1p, tan
from graphc.typing import DTypeLike, Seed, ShapeLike, TensorLike

__all__ = ["cauchy", "exponential", "gumbel", "laplace", "logistic", "lognormal"]


def above_zero(shape: Any, dtype: Any, seed: Any, name: str | None) -> Tensor:
    """Numbers spread evenly over (0, 1)."""
    return uniform(shape, float(limits(dtype).tiny), 1.0, dtype, seed=seed, name=name)


def limits(dtype: Any) -> Any:
    """The least and greatest numbers of a floating dtype, and its precision."""
    wanted = as_dtype(dtype)
    if not is_floating(wanted):
        refuse(f"dtype must be floating, got {wanted.name}", error=AttributeValueError)
    return jnp.finfo(wanted)  # type: ignore[no-untyped-call]


def exponential(
    shape: ShapeLike,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of the exponential distribution with mean `scale`.

    Args:
        shape: ints and named sizes.
        scale: a number or a tensor that broadcasts to `shape`.
        dtype: floating.
        seed: see `random_key`.
        name: of the node that draws.

    Source: numpy.random.Generator.exponential.

    Examples:
        >>> run(gc.reduce_all(gc.random.exponential((100,)) >= 0))
        Array(True, dtype=bool)
    """
    return placed(negative(log1p(-uniform(shape, dtype=dtype, seed=seed, name=name))), 0, scale)


def gumbel(
    shape: ShapeLike,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of the Gumbel distribution with mode `loc`; arguments as in `normal`.

    Source: numpy.random.Generator.gumbel.

    Examples:
        >>> gc.random.gumbel((5,)).shape
        (5,)
    """
    return placed(-log(-log(above_zero(shape, dtype, seed, name))), loc, scale)


def logistic(
    shape: ShapeLike,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of the logistic distribution with mean `loc`; arguments as in `normal`.

    Source: numpy.random.Generator.logistic.

    Examples:
        >>> gc.random.logistic((5,)).shape
        (5,)
    """
    even = above_zero(shape, dtype, seed, name)
    return placed(log(even) - log1p(-even), loc, scale)


def laplace(
    shape: ShapeLike,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of the Laplace distribution with mean `loc`; arguments as in `normal`.

    Source: numpy.random.Generator.laplace.

    Examples:
        >>> gc.random.laplace((5,)).shape
        (5,)
    """
    above = float(limits(dtype).eps) - 1  # at -1 itself it would be infinite
    even = uniform(shape, above, 1.0, dtype, seed=seed, name=name)
    return placed(-sign(even) * log1p(-absolute(even)), loc, scale)


def cauchy(
    shape: ShapeLike,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of the Cauchy distribution with mode `loc`; arguments as in `normal`.

    Source: jax.random.cauchy.

    Examples:
        >>> gc.random.cauchy((5,)).shape
        (5,)
    """
    even = above_zero(shape, dtype, seed, name)
    return placed(tan(np.pi * (even - 0.5)), loc, scale)


def lognormal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    sigma: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers whose logarithms are those of `normal(shape, mean, sigma)`.

    Source: numpy.random.Generator.lognormal.

    Examples:
        >>> run(gc.reduce_all(gc.random.lognormal((100,)) > 0))
        Array(True, dtype=bool)
    """
    return exp(normal(shape, mean, sigma, dtype, seed=seed, name=name))
