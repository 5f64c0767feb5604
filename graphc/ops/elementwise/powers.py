"""Powers and roots, elementwise. A constant exponent selects the cheapest operator."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import is_inexact
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, LowerContext, OpDef
from graphc.ir.operand import Operand
from graphc.ops.core.broadcasting import Adjoints, align, infer_inexact, infer_numeric, unbroadcast
from graphc.ops.core.checks import refuse
from graphc.ops.core.declaring import Given, declared, elementwise_operator, record
from graphc.ops.core.defining import define
from graphc.ops.core.emit import (
    convert,
    emit_one,
    promote_inexact,
    promote_operands,
    promote_types,
    to_dtype,
)
from graphc.ops.core.layout_rules import elementwise
from graphc.ops.core.weak_numbers import scalar_kind
from graphc.typing import TensorLike

__all__ = ["pow", "power", "reciprocal", "rsqrt", "sqrt", "square"]

# Greater integral float exponents use `lax.pow`: repeated multiplication rounds each time and would
# be less exact.
_MAX_WHOLE_EXPONENT = 32


def _lower_power(ctx: LowerContext, x: Any, y: Any) -> Any:
    return lax.pow(*align(x, y)) if is_inexact(np.dtype(x.dtype)) else jnp.power(x, y)


def _power_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    x, y = node.inputs
    # At x = 0 with positive y, z is 0: the adjoint of y is then 0, not 0 * log(0).
    log_x = ctx.ops.log(ctx.ops.where(ctx.ops.equal(x, 0), 1, x))
    return [
        unbroadcast(ctx, dz * (y * power(x, y - 1)), x),
        unbroadcast(ctx, dz * (log_x * node.outputs[0]), y),
    ]


def _fold_power(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Any:
    if not is_inexact(x.dtype) and np.any(y < 0):
        return None  # NumPy raises an error
    return np.power(x, y)


@elementwise_operator(
    "Power", infer=infer_numeric, lower=_lower_power, gradient=_power_gradient, fold=_fold_power
)
def power(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Given:
    """x to the power y, with broadcasting and dtype promotion.

    A Python number as exponent selects the cheapest operator: a square, a root, a few products.

    Raises:
        ShapeError: the shapes do not broadcast together.
        AttributeValueError: `x` holds integers and `y` is a negative int.

    Examples:
        >>> run(gc.power([2, 3], 2))
        Array([4, 9], dtype=int32)
    """
    kind = scalar_kind(y)
    if kind in (int, float) and isinstance(x, Operand):
        return _constant_power(x, kind(cast(float, y)), name)
    return promote_operands(x, y)


def _integer_power_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    exponent = node.attrs["exponent"]
    if exponent == 0:
        return [None]
    if exponent == 1:
        return [dy]
    return [dy * (exponent * power(node.inputs[0], exponent - 1))]


INTEGER_POWER = define(
    "IntegerPower(x) -> y",
    precision="wide",
    attrs={"exponent": Attr("int")},
    infer=lambda ctx, x, *, exponent: (infer_inexact if exponent < 0 else infer_numeric)(ctx, x),
    lower=lambda ctx, x, *, exponent: lax.integer_pow(x, exponent),
    gradient=_integer_power_gradient,
    layout=elementwise,
    fold=lambda x, *, exponent: np.power(x, np.asarray(exponent, x.dtype)),
    doc="x to a constant whole power. Numeric dtypes; a negative power needs floating or complex.",
)


@elementwise_operator(
    "Square",
    lax.square,
    infer=infer_numeric,
    derivative=lambda dy, x, y: dy * (2 * x),
    fold=np.square,
)
def square(x: TensorLike, *, name: str | None = None) -> Given:
    """x * x, elementwise; numeric dtypes.

    Examples:
        >>> run(gc.square([2, -3]))
        Array([4, 9], dtype=int32)
    """
    return (convert(x),)


@elementwise_operator("Sqrt", lax.sqrt, derivative=lambda dy, x, y: dy * (0.5 / y), fold=np.sqrt)
def sqrt(x: TensorLike, *, name: str | None = None) -> Given:
    """The square root, elementwise; integers give float32.

    Examples:
        >>> run(gc.sqrt([4.0, 9.0]))
        Array([2., 3.], dtype=float32)
    """
    return promote_inexact(x)


@elementwise_operator(
    "Rsqrt",
    lax.rsqrt,
    derivative=lambda dy, x, y: dy * (-0.5 * (y / x)),
    fold=lambda x: np.reciprocal(np.sqrt(x)),
)
def rsqrt(x: TensorLike, *, name: str | None = None) -> Given:
    """1 / sqrt(x), elementwise; integers give float32.

    Examples:
        >>> run(gc.rsqrt([4.0, 16.0]))
        Array([0.5 , 0.25], dtype=float32)
    """
    return promote_inexact(x)


@elementwise_operator(
    "Reciprocal", lax.reciprocal, derivative=lambda dy, x, y: -(dy * square(y)), fold=np.reciprocal
)
def reciprocal(x: TensorLike, *, name: str | None = None) -> Given:
    """1 / x, elementwise; integers give float32.

    Examples:
        >>> run(gc.reciprocal([2.0, 4.0]))
        Array([0.5 , 0.25], dtype=float32)
    """
    return promote_inexact(x)


def _constant_power(x: Operand, exponent: float, name: str | None) -> Tensor:
    base = to_dtype(x, promote_types(x, exponent))
    inexact = is_inexact(base.type.dtype)
    if not inexact and exponent < 0:
        refuse(
            f"Power: integers cannot be raised to the negative power {exponent}",
            error=AttributeValueError,
            hint="gc.cast the base to float32, or write the exponent as a float",
            x=base,
        )
    special = _SPECIAL.get(exponent)
    if special is not None:
        return emit_one(special, (base,), name)
    whole = type(exponent) is int or (
        exponent.is_integer() and -_MAX_WHOLE_EXPONENT <= exponent <= _MAX_WHOLE_EXPONENT
    )
    if whole:
        return emit_one(INTEGER_POWER, (base,), name, exponent=int(exponent))
    return emit_one(POWER, (base, to_dtype(exponent, base.type.dtype)), name)


pow = power

# Records by name, for passes and for rules of other families.
POWER = record(power)
SQUARE = record(square)
RECIPROCAL = record(reciprocal)

_SPECIAL = {2: SQUARE, 0.5: record(sqrt), -0.5: record(rsqrt), -1: RECIPROCAL}

OPS: tuple[OpDef, ...] = (*declared(__name__), INTEGER_POWER)
