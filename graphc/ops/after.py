"""After: a value that is there only once others are."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan
from graphc.ir.node import Node
from graphc.ir.opdef import LowerContext, OpDef


def _lower_after(ctx: LowerContext, x: Any, *others: Any) -> Any:
    waiting = [_never(other) for other in others if other.size]
    if not waiting:
        return x
    flag = waiting[0]
    for other in waiting[1:]:
        flag = flag | other
    return lax.select(lax.broadcast(flag, x.shape), lax.full_like(x, 0), x)


def _never(x: jax.Array) -> jax.Array:
    """False, which XLA cannot know without the first element of x.

    A barrier would not do: XLA drops barriers before it looks at the order.
    """
    first = lax.reshape(lax.slice(x, (0,) * x.ndim, (1,) * x.ndim), ())
    if first.dtype == jnp.bool_ or jnp.issubdtype(first.dtype, jnp.integer):
        number = first.astype(jnp.int32)
        return (number * number) & 3 == 2  # squares leave 0 or 1
    number = jnp.real(first).astype(jnp.float32)
    return jnp.isnan(number) & jnp.isinf(number)


def _layout_after(ctx: LayoutContext, node: Node, x: Layout, *others: Layout) -> LayoutPlan:
    return LayoutPlan([x, *others], [x], fill={})


AFTER = OpDef(
    name="After",
    signature="x, *others -> y",
    precision="follow",
    infer=lambda ctx, x, *others: x,
    lower=_lower_after,
    gradient=lambda ctx, node, dy: [dy, *[None] * (len(node.inputs) - 1)],
    layout=_layout_after,
    fold=lambda x, *others: x,
    doc="The operand x, computed after `others`: XLA may then write it over what they are computed "
    "from. One element of each of these is looked at. All dtypes and shapes.",
)

OPS: tuple[OpDef, ...] = (AFTER,)
