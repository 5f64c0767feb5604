"""Fence: a value that XLA must not take for the one it is made from."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from graphc.ir.opdef import Attr, LowerContext, OpDef
from graphc.ops.layout_rules import moves


def _lower_fence(ctx: LowerContext, x: Any, *, number: int) -> Any:
    value, _ = lax.optimization_barrier((x, np.int32(number)))
    return value


FENCE = OpDef(
    name="Fence",
    signature="x -> y",
    precision="follow",
    attrs={"number": Attr("int", doc="fences of one value with different numbers stay apart")},
    infer=lambda ctx, x, *, number: x,
    lower=_lower_fence,
    gradient=lambda ctx, node, dy: [dy],
    layout=moves(lambda ctx, node, axis: (axis, None)),
    doc="The operand, which XLA may not merge with x or look through: what is computed from it is "
    "computed a second time, rather than kept for two uses. All dtypes. Source: "
    "`jax.lax.optimization_barrier`.",
)

OPS: tuple[OpDef, ...] = (FENCE,)
