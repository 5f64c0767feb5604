"""Random numbers as pure functions of a key (see `graphc.ops.draws.random_keys`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dims import Shape
from graphc.ir.dtypes import BOOL, FLOAT32, DType, is_floating, is_integer
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.scopes import AMBIENT
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ops.core.checks import as_dims, broadcasts_to, refuse
from graphc.ops.core.cost_rules import times_result
from graphc.ops.core.emit import convert, emit_node, graph_of, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.core.sizes import SHAPE
from graphc.ops.core.weak_numbers import is_weak
from graphc.ops.draws.random_keys import (
    HASH,
    KEY,
    as_jax_key,
    check_key,
    random_key,
    random_operator,
)
from graphc.typing import Seed, ShapeLike, TensorLike

__all__ = ["bernoulli"]

_SHAPE = replace(SHAPE, doc="of the result")
_FLOATING = Attr("dtype", default=FLOAT32, check=is_floating, must="be floating")


# -- generators -----------------------------------------------------------------------------


def _infer_generator(
    ctx: InferContext, key: TensorType, *, shape: Any, dtype: DType, **attrs: Any
) -> TensorType:
    check_key(ctx, key)
    return TensorType(dtype, shape)


def _infer_uniform(
    ctx: InferContext, key: TensorType, *, minval: float, maxval: float, shape: Any, dtype: DType
) -> TensorType:
    check_key(ctx, key)
    if not minval < maxval:
        ctx.fail(
            f"minval {minval} must be less than maxval {maxval}",
            error=AttributeValueError,
            hint="minval is the least value; maxval is above all values",
        )
    if is_integer(dtype):
        bounds = np.iinfo(dtype)
        whole = type(minval) is int and type(maxval) is int
        if not (whole and bounds.min <= minval and maxval - 1 <= bounds.max):
            ctx.fail(
                f"minval {minval} and maxval {maxval} must be ints that fit {dtype.name}",
                error=AttributeValueError,
                hint=f"{dtype.name} has values from {bounds.min} to {bounds.max}",
            )
    return TensorType(dtype, shape)


def _lower_uniform(
    ctx: LowerContext, key: Any, *, minval: float, maxval: float, shape: Any, dtype: DType
) -> Any:
    sizes = ctx.shape(shape)
    if is_integer(dtype):
        return jax.random.randint(as_jax_key(key), sizes, minval, maxval, dtype)
    return jax.random.uniform(as_jax_key(key), sizes, dtype, minval, maxval)


def _infer_bernoulli(
    ctx: InferContext, key: TensorType, p: TensorType, *, shape: Any
) -> TensorType:
    check_key(ctx, key)
    ctx.require(is_floating(p.dtype), f"p must be floating, got {p.dtype.name}", dtype=True)
    ctx.require(
        ctx.broadcast(p.shape, shape) == shape,
        f"p {p} does not broadcast to the shape ({', '.join(map(str, shape))})",
    )
    return TensorType(BOOL, shape)


def _lower_bernoulli(ctx: LowerContext, key: Any, p: Any, *, shape: Any) -> Any:
    # A comparison with numbers of a narrow dtype would round the probability.
    return jax.random.bernoulli(as_jax_key(key), p.astype(wide(p.dtype)), ctx.shape(shape))


RANDOM_NORMAL = random_operator(
    "RandomNormal(key) -> x",
    attrs={"shape": _SHAPE, "dtype": _FLOATING},
    infer=_infer_generator,
    lower=lambda ctx, key, *, shape, dtype: jax.random.normal(
        as_jax_key(key), ctx.shape(shape), dtype
    ),
    cost=times_result(HASH + 5),
    doc="Normal numbers with mean 0 and standard deviation 1.",
)

TRUNCATED_NORMAL = random_operator(
    "TruncatedNormal(key) -> x",
    attrs={
        "lower": Attr("float", default=-2.0),
        "upper": Attr("float", default=2.0),
        "shape": _SHAPE,
        "dtype": _FLOATING,
    },
    infer=_infer_generator,
    lower=lambda ctx, key, *, lower, upper, shape, dtype: jax.random.truncated_normal(
        as_jax_key(key), lower, upper, ctx.shape(shape), dtype
    ),
    cost=times_result(HASH + 8),
    doc="Normal numbers with mean 0 and standard deviation 1, truncated to the interval from "
    "`lower` to `upper`.",
)

RANDOM_UNIFORM = random_operator(
    "RandomUniform(key) -> x",
    attrs={
        "minval": Attr("float", default=0.0),
        "maxval": Attr("float", default=1.0),
        "shape": _SHAPE,
        "dtype": Attr(
            "dtype",
            default=FLOAT32,
            check=lambda d: is_floating(d) or is_integer(d),
            must="be floating or integer",
        ),
    },
    infer=_infer_uniform,
    lower=_lower_uniform,
    cost=times_result(HASH + 5),
    doc="Uniformly distributed numbers in [minval, maxval). Floating and integer dtypes.",
)

RANDOM_BERNOULLI = random_operator(
    "RandomBernoulli(key, p) -> x",
    attrs={"shape": _SHAPE},
    infer=_infer_bernoulli,
    lower=_lower_bernoulli,
    cost=times_result(HASH + 6),
    doc="True with probability p (floating, broadcasting to `shape`), independently for each "
    "element.",
)


# -- functions ------------------------------------------------------------------------------


def bernoulli(
    p: TensorLike = 0.5,
    shape: ShapeLike | None = None,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """True with probability `p`, independently for each element, drawn anew in every run.

    Args:
        p: a number or a floating tensor that broadcasts to `shape`.
        shape: ints and named sizes; by default the shape of `p`.
        seed: see `random_key`.

    Returns:
        bool.

    Raises:
        AttributeValueError: `p` is a size or a shape.

    Examples:
        >>> run(gc.random.bernoulli(0.5, (5,), seed=1))
        Array([ True,  True,  True, False,  True], dtype=bool)
        >>> run(gc.random.bernoulli([0.0, 1.0]))
        Array([False,  True], dtype=bool)
    """
    if _is_shape(p):
        refuse(
            f"bernoulli: p must be a probability, got {p!r}",
            error=AttributeValueError,
            hint=f"the shape is the second argument: bernoulli(0.5, {p!r})",
        )
    probability = to_dtype(p, FLOAT32) if is_weak(p) else convert(p)
    sizes = probability.shape if shape is None else as_dims("RandomBernoulli", shape)
    return draw(RANDOM_BERNOULLI, (), (probability,), seed, name, shape=sizes)[0]


def _is_shape(p: Any) -> bool:
    """Whether `p` is a size or a shape instead of a probability."""
    sizes = p if isinstance(p, (tuple, list)) else (p,)
    return len(sizes) > 0 and all(type(each) is int for each in sizes) and max(sizes) > 1


def shape_of(parameter: Any) -> Shape:
    """The shape of a tensor, an array or a number."""
    return tuple(parameter.shape) if hasattr(parameter, "shape") else np.shape(parameter)


def placed(x: Tensor, location: Any, scale: Any) -> Tensor:
    """`x * scale + location`, without operations that change nothing.

    Raises:
        ShapeError: a parameter is larger than `x`, so that one draw would occur in several
            positions.
    """
    for label, parameter in (("location", location), ("scale", scale)):
        shape = shape_of(parameter)
        if not broadcasts_to(shape, x.shape, x):
            refuse(
                f"the {label} of a draw does not broadcast to its shape: {shape} is not within "
                f"{x.shape}",
                hint="pass the shape of all the numbers to draw",
            )
    if not (is_weak(scale) and scale == 1):
        x = x * scale
    if not (is_weak(location) and location == 0):
        x = x + location
    return x


def draw(
    op: OpDef,
    before: tuple[Tensor, ...],
    after: tuple[Tensor, ...],
    seed: Any,
    name: str | None,
    **attrs: Any,
) -> tuple[Tensor, ...]:
    """The results of `op` for the operands `before`, a new key, and `after`.

    Errors are found before any node is added, by inferring types with a placeholder for the key.
    """
    graph, source = graph_of((*before, *after)), AMBIENT.source or current_source()
    operands = (*before, Tensor(KEY, "key"), *after)
    op.infer_types(operands, op.complete(attrs, source), graph.constraints, source)
    return emit_node(op, (*before, random_key(seed), *after), name=name, **attrs).outputs


OPS: tuple[OpDef, ...] = (RANDOM_NORMAL, TRUNCATED_NORMAL, RANDOM_UNIFORM, RANDOM_BERNOULLI)
