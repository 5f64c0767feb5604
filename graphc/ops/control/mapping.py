"""One body for many values at once: `Map`."""

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
from graphc.ops.control.bodies import (
    check_taken,
    prune_regions,
    shifted,
    slice_type,
    stacked_type,
)
from graphc.ops.core.cost_rules import every_iteration


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
    """Each turn lies as the body does; the mapped axis itself is never cut.

    A partial operand that the body would make whole, or hand on, is made whole before the map: an
    exchange in a body waits for all that the body takes, and one of new state is of that and of the
    state's dtype.
    """
    mapped = node.attrs["mapped"]
    outer = [REPLICATED if x == Sharded(0) and i < mapped else x for i, x in enumerate(operands)]
    plan = _plan(ctx, node, outer)
    whole = _whole_before(plan) if any(isinstance(x, Partial) for x in outer) else ()
    if not whole:
        return plan
    return _plan(ctx, node, [REPLICATED if i in whole else x for i, x in enumerate(outer)])


def _plan(ctx: LayoutContext, node: Node, outer: Sequence[Layout]) -> LayoutPlan:
    """The plan for operands that lie so."""
    mapped = node.attrs["mapped"]
    inner = [*(shifted(x, -1) for x in outer[:mapped]), *outer[mapped:]]
    body = node.regions[0]
    local, results = ctx.replicate_region(body, inner, [None] * len(body.outputs))
    return LayoutPlan(outer, [shifted(x, 1) for x in results], regions=(local,))


def _whole_before(plan: LayoutPlan) -> set[int]:
    """The partial operands to make whole before the map: those that its body makes whole, and
    those that alone are behind results which are partial and not smaller."""
    assert plan.regions is not None
    (body,) = plan.regions
    inputs = body.input_tensors()
    number = {tensor: i for i, tensor in enumerate(inputs)}
    is_partial = [isinstance(layout, Partial) for layout in plan.operands]
    # Of each value: the operands behind it that are not whole.
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


MAP = OpDef(
    name="Map",
    signature="*operands -> *results",
    precision="wide",
    attrs={
        "mapped": Attr(
            "int",
            check=lambda count: count >= 0,
            must="be how many operands are mapped over",
            doc="these come first; the others are shared",
        ),
        "length": Attr("dim", doc="the leading size of those that are"),
    },
    infer=_infer_map,
    lower=_lower_map,
    layout=_layout_map,
    prune_outputs=lambda node, used: prune_regions(node, used, "mapped"),
    cost=every_iteration,
    doc="The body on each slice of the mapped operands along their leading axis, side by side; "
    "results are stacked. Made by the pass `GroupAlike`. Source: jax.vmap.",
)

OPS: tuple[OpDef, ...] = (MAP,)
