"""Functions of integers: divisors, and numbers of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import DType, is_integer, scalar_of
from graphc.ir.opdef import OpDef
from graphc.ops.core.broadcasting import infer_integer, infer_of
from graphc.ops.core.declaring import Declaration, Given, declared, elementwise_operator
from graphc.ops.core.emit import convert, promote_operands
from graphc.typing import TensorLike

__all__ = ["gcd", "lcm", "leading_zeros", "population_count"]


def of_integers(
    name: str,
    function: Callable[[Any, Any], Any],
    fold: np.ufunc,
    *,
    commutative: bool = False,
    remark: str = "",
) -> Declaration:
    """An operator of two integers."""
    return elementwise_operator(
        name,
        function,
        infer=infer_integer,
        widen=True,
        differentiable=False,
        fold=fold,
        commutative=commutative,
        dtypes=f"{remark}Integer dtypes.",
    )


def _of_magnitudes(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`function` of the magnitudes, as unsigned integers; the result wraps around as NumPy's does.

    The least signed integer has no signed magnitude: `jnp.gcd` of two of them never ends.
    """

    def of_signed(x: Any, y: Any) -> Any:
        if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
            return function(x, y)
        unsigned = np.dtype(f"u{x.dtype.name}")

        def magnitude(value: Any) -> Any:
            bits = value.astype(unsigned)
            return jnp.where(value < 0, scalar_of(0, unsigned) - bits, bits)

        return function(magnitude(x), magnitude(y)).astype(x.dtype)

    return of_signed


def _fills_bytes(dtype: DType) -> bool:
    return is_integer(dtype) and dtype.name not in ("int4", "uint4")


def _bits(name: str, function: Callable[[Any], Any]) -> Declaration:
    return elementwise_operator(
        name,
        function,
        infer=infer_of(_fills_bytes, "integers of 8 bits or more"),
        differentiable=False,
        dtypes="Integer dtypes of 8 bits or more.",
    )


@of_integers("Gcd", _of_magnitudes(jnp.gcd), np.gcd, commutative=True)
def gcd(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """The greatest common divisor of integers, with broadcasting. Source: numpy.gcd.

    Examples:
        >>> run(gc.gcd([12, 7], 8))
        Array([4, 1], dtype=int32)
    """
    return promote_operands(x, y)


@of_integers("Lcm", _of_magnitudes(jnp.lcm), np.lcm, commutative=True)
def lcm(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """The least common multiple of integers, with broadcasting. Source: numpy.lcm.

    Examples:
        >>> run(gc.lcm([4, 6], 10))
        Array([20, 30], dtype=int32)
    """
    return promote_operands(x, y)


@_bits("PopulationCount", lax.population_count)
def population_count(x: TensorLike, *, name: str | None = None) -> Given:
    """The number of 1 bits of integers, in their dtype. Source: jax.lax.

    Examples:
        >>> run(gc.population_count([7, 8]))
        Array([3, 1], dtype=int32)
    """
    return (convert(x),)


@_bits("LeadingZeros", lax.clz)
def leading_zeros(x: TensorLike, *, name: str | None = None) -> Given:
    """The number of leading 0 bits of integers, in their dtype. Source: jax.lax.clz.

    Examples:
        >>> run(gc.leading_zeros([1, 256]))
        Array([31, 23], dtype=int32)
    """
    return (convert(x),)


OPS: tuple[OpDef, ...] = declared(__name__)
