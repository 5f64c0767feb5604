"""Floats and powers of two: exponents, mantissas, and rounding to fewer bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import INT32
from graphc.ir.node import Tensor
from graphc.ir.opdef import InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import infer_floating
from graphc.ops.core.declaring import Given, Operands, declared, elementwise_operator, record
from graphc.ops.core.defining import at_least, define
from graphc.ops.core.emit import convert, emit, emit_one, promote_inexact
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.precision import summed
from graphc.ops.elementwise.floats import ldexp
from graphc.typing import TensorLike

__all__ = ["exp2", "frexp", "reduce_precision"]


def _exp2(x: Any) -> Any:
    # Not lax.exp2, which is exp(x log(2)): it rounds log(2) and multiplies the error by x.
    return lax.pow(jnp.full_like(x, 2), x)


@elementwise_operator(
    "Exp2",
    _exp2,
    widen=True,
    derivative=lambda dy, x, y: dy * (y * math.log(2.0)),
    fold=lambda x: np.power(x.dtype.type(2), x),
)
def exp2(x: TensorLike, *, name: str | None = None) -> Given:
    """2 to the power x, elementwise; integers give float32. Source: numpy.exp2.

    Examples:
        >>> run(gc.exp2([0.0, 3.0]))
        Array([1., 8.], dtype=float32)
    """
    return promote_inexact(x)


def _infer_frexp(ctx: InferContext, x: TensorType) -> tuple[TensorType, TensorType]:
    result = infer_floating(ctx, x)
    return result, TensorType(INT32, result.shape)


FREXP = define(
    "Frexp(x) -> mantissa, exponent",
    precision="wide",
    infer=_infer_frexp,
    lower=summed(lambda ctx, x: tuple(jnp.frexp(x))),
    gradient=lambda ctx, node, dm, de: [None if dm is None else ldexp(dm, -node.outputs[1])],
    layout=elementwise,
    doc="x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1 and an int32 exponent; 0, "
    "infinities and NaN are their own mantissa, with exponent 0. Floating dtypes.",
)


@elementwise_operator(
    "ReducePrecision",
    lax.reduce_precision,
    infer=infer_floating,
    widen=True,
    attrs={
        "exponent_bits": at_least(1, "be an int of at least 1"),
        "mantissa_bits": at_least(0, "be an int of at least 0"),
    },
    gradient=lambda ctx, node, dy: [emit_one(REDUCE_PRECISION, (dy,), **node.attrs)],
)
def reduce_precision(
    x: TensorLike, exponent_bits: int, mantissa_bits: int, *, name: str | None = None
) -> Given:
    """`x` rounded to a float with fewer bits, in its dtype: (5, 10) is float16, (8, 7) bfloat16.

    The adjoint is rounded in the same way, as for a cast and its reverse.

    Raises:
        AttributeValueError: `exponent_bits` is less than 1, or `mantissa_bits` is less than 0.
        DTypeError: `x` is not floating.

    Source: jax.lax.reduce_precision.

    Examples:
        >>> run(gc.reduce_precision(1.1, 5, 2))
        Array(1., dtype=float32)
    """
    attrs = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
    return Operands(convert(x), **attrs)


def frexp(x: TensorLike, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The mantissa (0.5 to 1, with the sign of `x`) and the exponent (int32) of `x`, elementwise.

    0, infinities and NaN are their own mantissa. Subnormal numbers give wrong results on devices
    that treat them as 0. Source: numpy.frexp.

    Examples:
        >>> run(gc.frexp([6.0]))
        (Array([0.75], dtype=float32), Array([3], dtype=int32))
    """
    mantissa, exponent = emit(FREXP, promote_inexact(x), name=name)
    return mantissa, exponent


# Records by name, for passes and for rules of other families.
REDUCE_PRECISION: OpDef = record(reduce_precision)

OPS: tuple[OpDef, ...] = (*declared(__name__), FREXP)
