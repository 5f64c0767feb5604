"""One body applied to many values at once: `Map`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax

from graphc.ir.dims import Dim
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Partial, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.control.bodies import check_taken, prune_regions, shifted, slice_type, stacked_type
from graphc.ops.core.cost_rules import every_iteration
from graphc.ops.core.defining import at_least, define


def _infer_map(
    ctx: InferContext, *types: TensorType, mapped: int, length: Dim
) -> tuple[TensorType, ...]:
    for type in types[:mapped]:
        ctx.require(type.rank > 0, "a mapped operand needs a leading axis")
        ctx.unify(type.shape[0], length, "lengths of mapped operands")
    check_taken(ctx, (*map(slice_type, types[:mapped]), *types[mapped:]))
    results = ctx.regions[0].output_tensors()
    return tuple(stacked_type(t.type, length) for t in results)


def _lower_map(ctx: LowerContext, *operands: Any, mapped: int, length: Dim) -> tuple[Any, ...]:
    body = ctx.node.regions[0]

    def once(*values: Any) -> tuple[Any, ...]:
        return tuple(ctx.lower_region(body, values))

    axes = (*[0] * mapped, *[None] * (len(operands) - mapped))
    return jax.vmap(once, in_axes=axes, axis_size=ctx.dim(length))(*operands)


def _layout_map(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Each iteration has the layout of the body. The mapped axis itself is never sharded.

    A partial operand that the body would reduce or pass on is reduced before the map. A collective
    in the body would wait for all operands of the body, and a collective over new state would
    exchange that state, in the state's dtype.
    """
    mapped = node.attrs["mapped"]
    outer = [REPLICATED if x == Sharded(0) and i < mapped else x for i, x in enumerate(operands)]
    plan = _plan(ctx, node, outer)
    whole = _whole_before(plan) if any(isinstance(x, Partial) for x in outer) else ()
    if not whole:
        return plan
    return _plan(ctx, node, [REPLICATED if i in whole else x for i, x in enumerate(outer)])


def _plan(ctx: LayoutContext, node: Node, outer: Sequence[Layout]) -> LayoutPlan:
    """The plan for operands in the layouts `outer`."""
    mapped = node.attrs["mapped"]
    inner = [*(shifted(x, -1) for x in outer[:mapped]), *outer[mapped:]]
    body = node.regions[0]
    local, results = ctx.replicate_region(body, inner, [None] * len(body.outputs))
    return LayoutPlan(outer, [shifted(x, 1) for x in results], regions=(local,))


def _whole_before(plan: LayoutPlan) -> set[int]:
    """The indices of the partial operands to reduce before the map. These are operands that the
    body reduces, and operands that are the only source of partial results which are not smaller."""
    assert plan.regions is not None
    (body,) = plan.regions
    inputs = body.input_tensors()
    number = {tensor: i for i, tensor in enumerate(inputs)}
    is_partial = [isinstance(layout, Partial) for layout in plan.operands]
    # For each value: the operands that it is computed from and that are not replicated.
    behind = {
        tensor: frozenset([i]) if layout != REPLICATED else frozenset[int]()
        for i, (tensor, layout) in enumerate(zip(inputs, plan.operands, strict=True))
    }
    found = set[int]()
    for node in body.nodes:
        sources = frozenset[int]().union(*(behind[t] for t in node.inputs))
        if node.op.name == "AllReduce":
            found.update(number[t] for t in node.inputs if t in number and is_partial[number[t]])
            sources = frozenset()
        behind.update(dict.fromkeys(node.outputs, sources))
    sizes = Counter[int]()
    for tensor, layout in zip(body.output_tensors(), plan.results, strict=True):
        sources = behind[tensor]
        if isinstance(layout, Partial) and len(sources) == 1:
            sizes.update(dict.fromkeys(sources, _elements(tensor)))
    found.update(i for i, n in sizes.items() if is_partial[i] and _elements(inputs[i]) <= n)
    return found


def _elements(tensor: Tensor) -> int:
    shape = [dim for dim in tensor.type.shape if isinstance(dim, int)]  # the program is bound
    return math.prod(shape)


MAP = define(
    "Map(*operands) -> *results",
    precision="wide",
    attrs={
        "mapped": at_least(
            0,
            "be the number of operands that are mapped over",
            doc="the mapped operands come first; the others are shared",
        ),
        "length": Attr("dim", doc="the leading size of the mapped operands"),
    },
    infer=_infer_map,
    lower=_lower_map,
    layout=_layout_map,
    prune_outputs=lambda node, used: prune_regions(node, used, "mapped"),
    cost=every_iteration,
    doc="The body applied to each slice of the mapped operands along their leading axis, in "
    "parallel; the results are stacked. The pass `GroupAlike` creates it. Source: jax.vmap.",
)

OPS: tuple[OpDef, ...] = (MAP,)
