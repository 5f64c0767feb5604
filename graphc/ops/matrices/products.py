"""What matrix products share: dtypes and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from graphc.ir.dtypes import BOOL, DType, is_floating
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Replicated, Sharded
from graphc.ir.node import Node
from graphc.ir.opdef import LowerContext
from graphc.ops.core.layout_rules import SUM, replicated


def wide_dtype(dtype: DType) -> DType:
    """The dtype for folding. NumPy would accumulate narrow numbers in their own dtype."""
    if dtype.itemsize >= 4 or dtype == BOOL:
        return dtype
    return np.dtype(np.float32 if is_floating(dtype) else np.int32)


def lower_product(ctx: LowerContext, a: Any, b: Any, dims: Any) -> Any:
    """`lax.dot_general` with sums in the dtype of the node's result. The operands may be narrower:
    see `narrow_operands`."""
    total = ctx.node.outputs[0].type.dtype
    return lax.dot_general(a, b, dims, preferred_element_type=None if a.dtype == total else total)


class Role(NamedTuple):
    """The axes of the result and of the other operand that correspond to an operand's axis."""

    result: int | None  # None: contracted
    partner: int | None


def product_layout(
    ctx: LayoutContext, node: Node, roles: Sequence[Sequence[Role]], layouts: Sequence[Layout]
) -> LayoutPlan:
    """The plan of a product, from the roles of each operand's axes.

    The first sharded operand decides. A product is linear in each operand while the other is
    replicated. A sharded contracted axis gives a partial sum.
    """
    for i, layout in enumerate(layouts):
        if not isinstance(layout, Sharded):
            continue
        result, partner = roles[i][layout.axis]
        if result is None and node.outputs[0].type.dtype == BOOL:
            continue  # an "or", not a sum
        other = REPLICATED if partner is None else Sharded(partner)
        operands = [layout, other] if i == 0 else [other, layout]
        if result is None:
            return LayoutPlan(operands, [SUM], fill={0: "sum", 1: "sum"})
        return LayoutPlan(operands, [Sharded(result)])
    if SUM in layouts and any(isinstance(layout, Replicated) for layout in layouts):
        return LayoutPlan(list(layouts), [SUM])
    return replicated(ctx, node, *layouts)
