"""One body for many values at once: `Map`."""

from __future__ import annotations

from typing import Any

import jax

from graphc.ir.dims import Dim
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.program import region
from graphc.ir.rewrite import used_from
from graphc.ir.types import TensorType
from graphc.ops.bodies import check_taken, slice_type


def _infer_map(
    ctx: InferContext, *types: TensorType, mapped: int, length: Dim
) -> tuple[TensorType, ...]:
    for type in types[:mapped]:
        ctx.require(type.rank > 0, "a mapped operand needs a leading axis")
        ctx.unify(type.shape[0], length, "lengths of mapped operands")
    check_taken(ctx, (*map(slice_type, types[:mapped]), *types[mapped:]))
    results = ctx.regions[0].output_tensors()
    return tuple(TensorType(t.type.dtype, (length, *t.type.shape)) for t in results)


def _lower_map(ctx: LowerContext, *operands: Any, mapped: int, length: Dim) -> tuple[Any, ...]:
    body = ctx.node.regions[0]

    def once(*values: Any) -> tuple[Any, ...]:
        return tuple(ctx.lower_region(body, values))

    axes = (*[0] * mapped, *[None] * (len(operands) - mapped))
    return jax.vmap(once, in_axes=axes, axis_size=ctx.dim(length))(*operands)


def _layout_map(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Each turn lies as the body does; the mapped axis itself is never cut."""
    mapped = node.attrs["mapped"]
    outer = [REPLICATED if x == Sharded(0) and i < mapped else x for i, x in enumerate(operands)]
    inner = [
        Sharded(x.axis - 1) if isinstance(x, Sharded) and i < mapped else x
        for i, x in enumerate(outer)
    ]
    body = node.regions[0]
    local, results = ctx.replicate_region(body, inner, [None] * len(body.outputs))
    stacked: list[Layout] = [Sharded(x.axis + 1) if isinstance(x, Sharded) else x for x in results]
    return LayoutPlan(outer, stacked, regions=(local,))


def _prune_map(node: Node, used: set[Tensor]) -> Node:
    """The map without results that nobody uses, and operands that its body then leaves."""
    body, mapped = node.regions[0], node.attrs["mapped"]
    kept = [i for i, tensor in enumerate(node.outputs) if tensor in used]
    results = [body.outputs[i].tensor for i in kept]
    nodes = used_from(body.nodes, results)
    needed = {t for inner in nodes for t in inner.inputs} | set(results)
    inputs = body.input_tensors()
    taken = [i for i, tensor in enumerate(inputs) if tensor in needed]
    if len(kept) == len(node.outputs) and len(taken) == len(inputs):
        return node
    return node.replace(
        inputs=tuple(node.inputs[i] for i in taken),
        outputs=tuple(node.outputs[i] for i in kept),
        attrs={**node.attrs, "mapped": sum(i < mapped for i in taken)},
        regions=(region(body.name, [inputs[i] for i in taken], nodes, results),),
    )


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
    prune_outputs=_prune_map,
    doc="The body on each slice of the mapped operands along their leading axis, side by side; "
    "results are stacked. Made by the pass `GroupAlike`. Source: jax.vmap.",
)

OPS: tuple[OpDef, ...] = (MAP,)
