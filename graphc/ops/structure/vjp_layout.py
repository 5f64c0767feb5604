"""The layout rule of `VJP`, derived from the rule of the differentiated operator."""

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
    """Each replica pulls back the adjoints of its own pieces of the results.

    The adjoint of a sharded operand is sharded. For a replicated operand, each replica computes one
    term of its adjoint.
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
    # Padding adds nothing to sums over the batch only if it is finite, which is unknown here.
    fill = None if SUM in results else _fill(plan)
    return LayoutPlan([*plan.operands, *required], results, local, fill=fill)


def _fill(plan: LayoutPlan) -> Mapping[int, Fill] | None:
    """Padding whose adjoint is zero: operands that add nothing to the results, and zeros as the
    adjoints of the padding."""
    fill = plan.fill
    if fill is None:
        if not all(isinstance(layout, Sharded) for layout in plan.results):
            return None
        fill = {}
    first = len(plan.operands)
    return {**fill, **{first + i: "sum" for i, _ in enumerate(plan.results)}}


def _adjoints(plan: LayoutPlan) -> Sequence[Layout] | None:
    """The layouts of the operands' adjoints; None where pulling back by pieces would be wrong."""
    cut = [isinstance(layout, Sharded) or layout == SUM for layout in plan.results]
    if plan.fold_replica or not all(cut):
        return None
    if not all(isinstance(layout, Sharded | Replicated) for layout in plan.operands):
        return None
    return [x if isinstance(x, Sharded) else SUM for x in plan.operands]
