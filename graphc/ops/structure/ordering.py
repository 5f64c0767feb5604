"""After and Fence: operators that constrain when XLA computes a value. They do not change it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.layouts import LayoutPlan, of_elements
from graphc.ir.opdef import Attr, LowerContext, OpDef
from graphc.ops.core.defining import marker
from graphc.ops.core.layout_rules import moves


def _lower_after(ctx: LowerContext, x: Any, *others: Any) -> Any:
    waiting = [_never(other) for other in others if other.size]
    if not waiting:
        return x
    flag = waiting[0]
    for other in waiting[1:]:
        flag = flag | other
    return lax.select(lax.broadcast(flag, x.shape), lax.full_like(x, 0), x)


def _never(x: jax.Array) -> jax.Array:
    """False, but XLA cannot know this without the first element of x.

    A barrier is not enough: XLA drops barriers before it orders the instructions.
    """
    first = lax.reshape(lax.slice(x, (0,) * x.ndim, (1,) * x.ndim), ())
    if first.dtype == jnp.bool_ or jnp.issubdtype(first.dtype, jnp.integer):
        number = first.astype(jnp.int32)
        return (number * number) & 3 == 2  # squares are 0 or 1 modulo 4
    number = jnp.real(first).astype(jnp.float32)
    return jnp.isnan(number) & jnp.isinf(number)


AFTER = marker(
    "After(x, *others) -> y",
    lower=_lower_after,
    gradient=lambda ctx, node, dy: [dy, *[None] * (len(node.inputs) - 1)],
    layout=lambda ctx, node, x, *others: LayoutPlan([x, *others], [x], fill={}),
    fold=lambda x, *others: x,
    doc="The operand x, computed after `others`. XLA may then overwrite the operands of `others`. "
    "One element of each of `others` is read. All dtypes and shapes.",
)


def _lower_fence(ctx: LowerContext, x: Any, *, number: int) -> Any:
    value, _ = lax.optimization_barrier((x, np.int32(number)))
    return value


FENCE = marker(
    "Fence(x) -> y",
    attrs={"number": Attr("int", doc="fences of one value with different numbers are not merged")},
    lower=_lower_fence,
    gradient=lambda ctx, node, dy: [dy],
    layout=of_elements(moves(lambda ctx, node, axis: (axis, None))),
    doc="The operand as a value that XLA does not identify with x. Results computed from it are "
    "computed a second time instead of being kept for two uses. All dtypes. Source: "
    "`jax.lax.optimization_barrier`.",
)

OPS: tuple[OpDef, ...] = (AFTER, FENCE)
