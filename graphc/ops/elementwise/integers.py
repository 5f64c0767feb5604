"""Functions of integers alone: divisors, and numbers of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import DType, is_integer
from graphc.ir.node import Tensor
from graphc.ir.opdef import OpDef
from graphc.ops.core.broadcasting import infer_of, unary
from graphc.ops.core.emit import convert, emit_one, promote_operands
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.precision import in_wider

__all__ = ["gcd", "lcm", "leading_zeros", "population_count"]


def _common(name: str, function: Callable[[Any, Any], Any], fold: np.ufunc, doc: str) -> OpDef:
    return OpDef(
        name=name,
        signature="x, y -> z",
        precision="wide",
        infer=infer_of(is_integer, "integers"),
        lower=in_wider(lambda ctx, x, y: function(x, y)),
        differentiable=False,
        layout=elementwise,
        fold=fold,
        commutative=True,
        doc=f"{doc} Integer dtypes.",
    )


def _fills_bytes(dtype: DType) -> bool:
    return is_integer(dtype) and dtype.name not in ("int4", "uint4")


def _bits(name: str, function: Callable[[Any], Any], doc: str) -> OpDef:
    return OpDef(
        name=name,
        signature="x -> y",
        precision="wide",
        infer=infer_of(_fills_bytes, "integers of 8 bits or more"),
        lower=unary(function),
        differentiable=False,
        layout=elementwise,
        doc=f"{doc} Integer dtypes of 8 bits or more.",
    )


GCD = _common("Gcd", jnp.gcd, np.gcd, "The greatest common divisor.")
LCM = _common("Lcm", jnp.lcm, np.lcm, "The least common multiple.")
POPULATION_COUNT = _bits(
    "PopulationCount", lax.population_count, "The number of bits of x that are 1."
)
LEADING_ZEROS = _bits(
    "LeadingZeros", lax.clz, "The number of bits of x that are 0 before the first 1."
)


def gcd(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """The greatest common divisor of integers, with broadcasting. Source: numpy.gcd."""
    return emit_one(GCD, promote_operands(x, y), name)


def lcm(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """The least common multiple of integers, with broadcasting. Source: numpy.lcm."""
    return emit_one(LCM, promote_operands(x, y), name)


def population_count(x: Any, *, name: str | None = None) -> Tensor:
    """The number of bits of integers that are 1, in their dtype. Source: jax.lax."""
    return emit_one(POPULATION_COUNT, (convert(x),), name)


def leading_zeros(x: Any, *, name: str | None = None) -> Tensor:
    """The number of bits of integers before the first 1, in their dtype. Source: jax.lax.clz."""
    return emit_one(LEADING_ZEROS, (convert(x),), name)


OPS: tuple[OpDef, ...] = (GCD, LCM, POPULATION_COUNT, LEADING_ZEROS)
