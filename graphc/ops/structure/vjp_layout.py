"""How the adjoints that `VJP` computes lie, told by the layout rule of the operator itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.ir.layouts import (
    REPLICATED,
    Fill,
    Layout,
    LayoutContext,
    LayoutPlan,
    Replicated,
    Sharded,
)
from graphc.ir.node import Node
from graphc.ir.opdef import OpDef
from graphc.ops.core.layout_rules import SUM, replicated


def differentiated(node: Node, catalogue: Mapping[str, OpDef]) -> Node:
    """A node of the operator that a `VJP` node differentiates, for the same operands."""
    count, attrs = node.attrs["count"], node.attrs["attrs"]
    return Node(catalogue[node.attrs["op"]], node.inputs[:count], node.inputs[count:], attrs)


def vjp_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Each replica pulls back what its own pieces of the results come from.

    The adjoint of a piece is a piece. A whole operand that pieces of results come from gets a
    term of its adjoint on every replica.
    """
    own = differentiated(node, ctx.catalogue)
    if own.op.layout is None:
        return replicated(ctx, node, *operands)
    plan = own.op.layout(ctx, own, *operands[: len(own.inputs)])
    lies = _adjoints(plan)
    if lies is None:
        return replicated(ctx, node, *operands)
    required = [REPLICATED if layout == SUM else layout for layout in plan.results]
    results = [lies[i] for i in node.attrs["wrt"]]
    local = None if plan.attrs is None else {"attrs": {**own.attrs, **plan.attrs}}
    # Of sums over the batch padding is no part only if it is finite, which nobody knows here.
    fill = None if SUM in results else _fill(plan)
    return LayoutPlan([*plan.operands, *required], results, local, fill=fill)


def _fill(plan: LayoutPlan) -> Mapping[int, Fill] | None:
    """Padding for which pulling back gives zeros: what adds nothing to results, and zeros for the
    adjoints of padding."""
    fill = plan.fill
    if fill is None:
        if not all(isinstance(layout, Sharded) for layout in plan.results):
            return None
        fill = {}
    first = len(plan.operands)
    return {**fill, **{first + i: "sum" for i, _ in enumerate(plan.results)}}


def _adjoints(plan: LayoutPlan) -> Sequence[Layout] | None:
    """Where the adjoints of the operands lie; None where pulling back by pieces would be wrong."""
    cut = [isinstance(layout, Sharded) or layout == SUM for layout in plan.results]
    if plan.fold_replica or not all(cut):
        return None
    if not all(isinstance(layout, Sharded | Replicated) for layout in plan.operands):
        return None
    return [x if isinstance(x, Sharded) else SUM for x in plan.operands]
