"""Distributions with a location and a scale or with bounds, drawn anew in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import numpy as jnp

from graphc.errors import AttributeValueError
from graphc.ir.dims import DimExpr
from graphc.ir.dtypes import as_dtype, is_floating
from graphc.ir.node import Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.operand import Operand
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.shape_argument import shape_first
from graphc.ops.draws.random_draws import (
    RANDOM_NORMAL,
    RANDOM_UNIFORM,
    TRUNCATED_NORMAL,
    draw,
    placed,
)
from graphc.ops.elementwise.arithmetic import absolute, negative, sign
from graphc.ops.elementwise.powers import sqrt, square
from graphc.ops.elementwise.transcendental import exp, log, log1p, tan
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import DTypeLike, Seed, ShapeLike, TensorLike

__all__ = [
    "cauchy",
    "exponential",
    "gumbel",
    "laplace",
    "logistic",
    "lognormal",
    "maxwell",
    "normal",
    "rayleigh",
    "truncated_normal",
    "uniform",
]


@shape_first
def normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Normally distributed numbers, drawn anew in every run.

    Args:
        shape: ints and named sizes.
        mean, stddev: numbers or tensors that broadcast to `shape`.
        dtype: floating.
        seed: see `random_key`.

    Examples:
        >>> run(gc.random.normal((3,), seed=1))
        Array([-1.2575, -0.4016, -1.1214], dtype=float32)
    """
    return _scaled(RANDOM_NORMAL, shape, mean, stddev, dtype, seed, name)


@shape_first
def truncated_normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Truncated normal numbers, at most 2 `stddev` from `mean`, drawn anew in every run.

    Arguments as in `normal`. `stddev` is that of the normal distribution before truncation. The
    standard deviation of the numbers is 0.88 times that.

    Examples:
        >>> run(gc.random.truncated_normal((3,), seed=1))
        Array([-1.1636, -0.3824, -1.0457], dtype=float32)
        >>> run(gc.reduce_all(abs(gc.random.truncated_normal((100,))) <= 2))
        Array(True, dtype=bool)
    """
    return _scaled(TRUNCATED_NORMAL, shape, mean, stddev, dtype, seed, name)


@shape_first
def uniform(
    shape: ShapeLike,
    minval: float = 0.0,
    maxval: float = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Uniformly distributed numbers in [minval, maxval), drawn anew in every run.

    Args:
        shape: ints and named sizes.
        minval, maxval: numbers; ints for an integer dtype.
        dtype: floating or integer.
        seed: see `random_key`.

    Raises:
        AttributeValueError: minval is not less than maxval, or bounds that do not fit the dtype.

    Examples:
        >>> run(gc.random.uniform((3,), 5.0, 6.0, seed=1))
        Array([5.1043, 5.344 , 5.1311], dtype=float32)
        >>> x = gc.random.uniform((100,), 5.0, 6.0)
        >>> run(gc.reduce_all((x >= 5) & (x < 6)))
        Array(True, dtype=bool)
    """
    sizes = as_dims("RandomUniform", shape)
    wanted = as_dtype(dtype)
    bounds: dict[str, Any] = {"minval": minval, "maxval": maxval}
    for which, bound in bounds.items():
        if isinstance(bound, (Operand, DimExpr)):
            refuse(
                f"RandomUniform: {which} must be a number, got {bound!r}",
                error=AttributeValueError,
                hint="bounds that are tensors or named sizes: scale uniform(shape), and cast it",
            )
        if isinstance(bound, np.generic):
            bounds[which] = bound.item()
    return draw(RANDOM_UNIFORM, (), (), seed, name, **bounds, shape=sizes, dtype=wanted)[0]


def _scaled(
    op: OpDef, shape: Any, mean: Any, stddev: Any, dtype: Any, seed: Any, name: str | None
) -> Tensor:
    sizes = as_dims(op.name, shape)
    result = draw(op, (), (), seed, name, shape=sizes, dtype=as_dtype(dtype))[0]
    return placed(result, mean, stddev)


def above_zero(shape: Any, dtype: Any, seed: Any, name: str | None) -> Tensor:
    """Uniformly distributed numbers in (0, 1)."""
    return uniform(shape, float(limits(dtype).tiny), 1.0, dtype, seed=seed, name=name)


def limits(dtype: Any) -> Any:
    """The limits of a floating dtype, as `jnp.finfo` returns them."""
    wanted = as_dtype(dtype)
    if not is_floating(wanted):
        refuse(f"dtype must be floating, got {wanted.name}", error=AttributeValueError)
    return jnp.finfo(wanted)  # type: ignore[no-untyped-call]


@shape_first
def exponential(
    shape: ShapeLike,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the exponential distribution with mean `scale`.

    Args:
        shape: ints and named sizes.
        scale: a number or a tensor that broadcasts to `shape`.
        dtype: floating.
        seed: see `random_key`.
        name: of the node that draws.

    Source: numpy.random.Generator.exponential.

    Examples:
        >>> run(gc.random.exponential((3,), seed=1))
        Array([0.1101, 0.4216, 0.1405], dtype=float32)
        >>> run(gc.reduce_all(gc.random.exponential((100,)) >= 0))
        Array(True, dtype=bool)
    """
    return placed(negative(log1p(-uniform(shape, dtype=dtype, seed=seed, name=name))), 0, scale)


@shape_first
def rayleigh(
    shape: ShapeLike,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the Rayleigh distribution: norms of two normal numbers with deviation `scale`.

    Arguments as in `exponential`.

    Source: numpy.random.Generator.rayleigh.

    Examples:
        >>> run(gc.random.rayleigh((3,), seed=1))
        Array([2.1263, 1.4609, 2.016 ], dtype=float32)
    """
    return placed(sqrt(-2.0 * log(above_zero(shape, dtype, seed, name))), 0, scale)


@shape_first
def maxwell(
    shape: ShapeLike,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the Maxwell distribution: norms of three normal numbers; see `rayleigh`.

    Source: jax.random.maxwell.

    Examples:
        >>> run(gc.random.maxwell((3,), seed=1))
        Array([1.732 , 1.2784, 1.521 ], dtype=float32)
    """
    sizes = (*as_dims("RandomNormal", shape), 3)
    normals = normal(sizes, dtype=dtype, seed=seed, name=name)
    return placed(sqrt(reduce_sum(square(normals), -1)), 0, scale)


@shape_first
def gumbel(
    shape: ShapeLike,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the Gumbel distribution with mode `loc`; arguments as in `normal`.

    Source: numpy.random.Generator.gumbel.

    Examples:
        >>> run(gc.random.gumbel((3,), seed=1))
        Array([-0.8156, -0.065 , -0.709 ], dtype=float32)
    """
    return placed(-log(-log(above_zero(shape, dtype, seed, name))), loc, scale)


@shape_first
def logistic(
    shape: ShapeLike,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the logistic distribution with mean `loc`; arguments as in `normal`.

    Source: numpy.random.Generator.logistic.

    Examples:
        >>> run(gc.random.logistic((3,), seed=1))
        Array([-2.1504, -0.6456, -1.8916], dtype=float32)
    """
    even = above_zero(shape, dtype, seed, name)
    return placed(log(even) - log1p(-even), loc, scale)


@shape_first
def laplace(
    shape: ShapeLike,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the Laplace distribution with mean `loc`; arguments as in `normal`.

    Source: numpy.random.Generator.laplace.

    Examples:
        >>> run(gc.random.laplace((3,), seed=1))
        Array([-1.5674, -0.374 , -1.3389], dtype=float32)
    """
    above = float(limits(dtype).eps) - 1  # at -1 the result would be infinite
    even = uniform(shape, above, 1.0, dtype, seed=seed, name=name)
    return placed(-sign(even) * log1p(-absolute(even)), loc, scale)


@shape_first
def cauchy(
    shape: ShapeLike,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the Cauchy distribution with mode `loc`; arguments as in `normal`.

    Source: jax.random.cauchy.

    Examples:
        >>> run(gc.random.cauchy((3,), seed=1))
        Array([-2.9421, -0.5336, -2.2898], dtype=float32)
    """
    even = above_zero(shape, dtype, seed, name)
    return placed(tan(np.pi * (even - 0.5)), loc, scale)


@shape_first
def lognormal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    sigma: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers whose logarithms are distributed as `normal(shape, mean, sigma)`.

    Source: numpy.random.Generator.lognormal.

    Examples:
        >>> run(gc.random.lognormal((3,), seed=1))
        Array([0.2844, 0.6692, 0.3258], dtype=float32)
        >>> run(gc.reduce_all(gc.random.lognormal((100,)) > 0))
        Array(True, dtype=bool)
    """
    return exp(normal(shape, mean, sigma, dtype, seed=seed, name=name))
