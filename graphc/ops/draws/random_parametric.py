"""Draws by rejection or sorting: gamma, counts, permutations. No formula of uniform numbers gives
them.

The functions that draw them are in `graphc.ops.draws.distributions`, `counts` and `choices`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from graphc.ir.costs import CostContext, size_of
from graphc.ir.dims import Dim, Shape
from graphc.ir.dtypes import INT32, DType, is_floating
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints, unbroadcast
from graphc.ops.core.cost_rules import comparisons, times_result
from graphc.ops.core.defining import define
from graphc.ops.core.layout_rules import replicated
from graphc.ops.core.precision import wide
from graphc.ops.core.sizes import SHAPE, SIZE
from graphc.ops.draws.random_keys import HASH, as_jax_key, check_key, random_operator

_SHAPE = replace(SHAPE, doc="of the result")


def _check_parameter(
    ctx: InferContext, key: TensorType, label: str, parameter: TensorType, shape: Shape
) -> None:
    check_key(ctx, key)
    wide = is_floating(parameter.dtype) and parameter.dtype.itemsize >= 2
    ctx.require(
        wide, f"{label} must be a float of 16 bits or more, got {parameter.dtype.name}", dtype=True
    )
    ctx.require(
        ctx.constraints.unify_broadcast(parameter.shape, shape),
        f"{label} {parameter} does not broadcast to the shape ({', '.join(map(str, shape))})",
    )


def _infer_gamma(
    ctx: InferContext, key: TensorType, alpha: TensorType, *, shape: Shape, log: bool
) -> TensorType:
    _check_parameter(ctx, key, "alpha", alpha, shape)
    return TensorType(alpha.dtype, shape)


def _lower_gamma(ctx: LowerContext, key: Any, alpha: Any, *, shape: Shape, log: bool) -> Any:
    sample = jax.random.loggamma if log else jax.random.gamma
    return sample(as_jax_key(key), alpha, ctx.shape(shape), alpha.dtype)


def _gamma_gradient(ctx: GradientContext, node: Node, dx: Tensor) -> Adjoints:
    """Computed from the draw itself, because `jax.vjp` would draw again."""
    alpha, x = node.inputs[1], node.outputs[0]
    slope = ctx.ops.random_gamma_grad(alpha, x, log=node.attrs["log"])
    return [None, unbroadcast(ctx, dx * slope, alpha)]


def _infer_poisson(
    ctx: InferContext, key: TensorType, rate: TensorType, *, shape: Shape, dtype: DType
) -> TensorType:
    _check_parameter(ctx, key, "rate", rate, shape)
    return TensorType(dtype, shape)


def _infer_counts(
    ctx: InferContext, key: TensorType, n: TensorType, p: TensorType, shape: Shape
) -> None:
    _check_parameter(ctx, key, "n", n, shape)
    ctx.require(n.dtype == p.dtype, f"dtypes differ: {n} and {p}", dtype=True)


def _infer_binomial(
    ctx: InferContext, key: TensorType, n: TensorType, p: TensorType, *, shape: Shape, dtype: DType
) -> TensorType:
    _infer_counts(ctx, key, n, p, shape)
    _check_parameter(ctx, key, "p", p, shape)
    return TensorType(dtype, shape)


def _lower_binomial(
    ctx: LowerContext, key: Any, n: Any, p: Any, *, shape: Shape, dtype: DType
) -> Any:
    n, p = n.astype(wide(n.dtype)), p.astype(wide(p.dtype))
    return jax.random.binomial(as_jax_key(key), n, p, ctx.shape(shape), p.dtype).astype(dtype)


def _infer_multinomial(
    ctx: InferContext, key: TensorType, n: TensorType, p: TensorType, *, shape: Shape, dtype: DType
) -> TensorType:
    ctx.require(p.rank > 0, "p must have an axis of classes, got a scalar")
    _infer_counts(ctx, key, n, p, shape)
    _check_parameter(ctx, key, "p", p, (*shape, p.shape[-1]))
    return TensorType(dtype, (*shape, p.shape[-1]))


def _lower_multinomial(
    ctx: LowerContext, key: Any, n: Any, p: Any, *, shape: Shape, dtype: DType
) -> Any:
    n, p = n.astype(wide(n.dtype)), p.astype(wide(p.dtype))
    sizes = ctx.shape(shape)  # JAX versions differ in the shape argument
    n = jax.numpy.broadcast_to(n, sizes)
    p = jax.numpy.broadcast_to(p, (*sizes, p.shape[-1]))
    return jax.random.multinomial(as_jax_key(key), n, p, dtype=p.dtype).astype(dtype)


def _infer_permutation(ctx: InferContext, key: TensorType, *, size: Dim) -> TensorType:
    check_key(ctx, key)
    return TensorType(INT32, (size,))


def _permutation_cost(ctx: CostContext, node: Node) -> int:
    """A random word for each element, and a sort by these words."""
    (x,) = node.outputs
    return HASH * size_of(x) + comparisons(size_of(x), size_of(x))


# The cost of a key, a normal and a uniform number for each of two trials. Source: Marsaglia &
# Tsang, ACM Trans. Math. Softw. 26, 2000; Hörmann, Insurance: Mathematics and Economics 12, 1993.
_by_rejection = times_result(2 * (4 * HASH + 20))

RANDOM_GAMMA = define(
    "RandomGamma(key, alpha) -> x",
    precision="wide",
    attrs={"shape": _SHAPE, "log": Attr("bool", default=False, doc="draw the logarithm")},
    infer=_infer_gamma,
    lower=_lower_gamma,
    gradient=_gamma_gradient,
    layout=replicated,
    cost=_by_rejection,
    doc="Numbers from the gamma distribution with shape alpha and scale 1; alpha broadcasts to "
    "`shape`. The gradient is that of the draw as a function of alpha. Floats of 16 bits or more. "
    "Source: Marsaglia & Tsang, ACM TOMS 26, 2000; Figurnov et al., NeurIPS 2018.",
)

_COUNTS = Attr(
    "dtype",
    default=INT32,
    check=lambda d: d.name in ("int32", "int64"),
    must="be int32 or int64",
)


def _counting(schema: str, shape: Attr = _SHAPE, **fields: Any) -> OpDef:
    """An operator that draws integers."""
    return random_operator(
        schema, attrs={"shape": shape, "dtype": _COUNTS}, cost=_by_rejection, **fields
    )


RANDOM_POISSON = _counting(
    "RandomPoisson(key, rate) -> x",
    infer=_infer_poisson,
    lower=lambda ctx, key, rate, *, shape, dtype: jax.random.poisson(
        as_jax_key(key), rate, ctx.shape(shape), dtype
    ),
    doc="Integers from the Poisson distribution with mean `rate` (a float of 16 bits or more), "
    "which broadcasts to `shape`. Source: Hormann, Insurance: Mathematics and Economics 12, 1993.",
)

RANDOM_BINOMIAL = _counting(
    "RandomBinomial(key, n, p) -> x",
    infer=_infer_binomial,
    lower=_lower_binomial,
    doc="The number of successes in n trials with probability p; n and p, of one dtype (a float "
    "of 16 bits or more), broadcast to `shape`. Exact for n up to 2^24 in float32. Source: "
    "Hormann, J. Statistical Computation and Simulation 46, 1993.",
)

RANDOM_MULTINOMIAL = _counting(
    "RandomMultinomial(key, n, p) -> x",
    replace(SHAPE, doc="the batch shape of the vectors"),
    infer=_infer_multinomial,
    lower=_lower_multinomial,
    doc="The number of the n trials that give each of k classes, with probabilities proportional "
    "to p [..., k]; n and the axes of p before the last, of one dtype (a float of 16 bits or "
    "more), broadcast to `shape`. Results [*shape, k]. Source: jax.random.multinomial; Davis, "
    "Computational Statistics & Data Analysis 16, 1993.",
)

RANDOM_PERMUTATION = random_operator(
    "RandomPermutation(key) -> x",
    attrs={"size": SIZE},
    infer=_infer_permutation,
    lower=lambda ctx, key, *, size: jax.random.permutation(
        as_jax_key(key), jax.numpy.arange(ctx.dim(size), dtype=INT32)
    ),
    cost=_permutation_cost,
    doc="The numbers 0 to size - 1 (int32) in random order; all orders are equally likely.",
)

OPS: tuple[OpDef, ...] = (
    RANDOM_GAMMA,
    RANDOM_POISSON,
    RANDOM_BINOMIAL,
    RANDOM_MULTINOMIAL,
    RANDOM_PERMUTATION,
)
