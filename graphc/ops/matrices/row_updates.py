"""Updates of matrices by a product, in blocks of rows: `UpdateByRows`."""

from __future__ import annotations

from typing import Any

from jax import lax

from graphc.ir.dims import Dim
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.control.bodies import check_taken
from graphc.ops.core.cost_rules import scaled
from graphc.ops.core.defining import define
from graphc.ops.core.layout_rules import replicated


def _infer_updates(
    ctx: InferContext, a: TensorType, b: TensorType, *rest: TensorType, states: int, rows: Dim
) -> tuple[TensorType, ...]:
    ctx.require(a.rank == b.rank == 2, "a and b must be matrices")
    ctx.unify(a.shape[0], b.shape[0], "what the product sums over")
    ctx.require(0 < states <= len(rest), f"{states} states among {len(rest)} operands")
    ctx.require(len(ctx.regions) == states + 1, "needs a body for the product and each state")
    height, width = a.shape[1], b.shape[1]
    whole = [type.shape == (height, width) for type in rest]
    ctx.require(all(whole[:states]), "states must have the shape of the product")
    sizes = isinstance(height, int) and isinstance(rows, int) and rows > 0
    ctx.require(sizes and height % rows == 0, "rows must divide the number of rows of the product")
    check_taken(ctx, [TensorType(a.dtype, (a.shape[0], rows)), b])
    (product,) = (t.type for t in ctx.regions[0].output_tensors())
    cut = [
        TensorType(type.dtype, (rows, width)) if is_whole else type
        for type, is_whole in zip(rest, whole, strict=True)
    ]
    for number in range(states):
        check_taken(ctx, [product, *cut], number + 1)
        given = [t.type for t in ctx.regions[number + 1].output_tensors()]
        ctx.require(given == [cut[number]], f"body {number + 1} must return state {number} only")
    return tuple(rest[:states])


def _lower_updates(
    ctx: LowerContext, a: Any, b: Any, *rest: Any, states: int, rows: int
) -> tuple[Any, ...]:
    product, *updates = ctx.node.regions
    shape = rest[0].shape

    def turn(number: Any, written: tuple[Any, ...]) -> tuple[Any, ...]:
        def cut(x: Any, axis: int = 0) -> Any:
            return lax.dynamic_slice_in_dim(x, number * rows, rows, axis)

        new = list(written)
        (piece,) = ctx.lower_region(product, [cut(a, 1), b], loop=True)
        values = [cut(x) if x.shape == shape else x for x in (*written, *rest[states:])]
        for i, update in enumerate(updates):
            (value,) = ctx.lower_region(update, [piece, *values], loop=True)
            new[i] = lax.dynamic_update_slice_in_dim(new[i], value, number * rows, 0)
            # The other bodies take the written value. Recomputing it would need the old state,
            # which XLA would then copy.
            values[i] = cut(new[i])
        return tuple(new)

    return tuple(lax.fori_loop(0, shape[0] // rows, turn, tuple(rest[:states])))


UPDATE_BY_ROWS = define(
    "UpdateByRows(a, b, *rest) -> *states",
    precision="wide",
    attrs={
        "states": Attr("int", doc="how many matrices are updated: the first of the rest"),
        "rows": Attr("dim", doc="of a block; divides the number of rows of the states"),
    },
    infer=_infer_updates,
    lower=_lower_updates,
    layout=replicated,
    # The cost of all bodies for each block of rows.
    cost=lambda ctx, node: scaled(
        list(map(ctx.of_region, node.regions)), node.inputs[0].type.shape[1] // node.attrs["rows"]
    ),
    doc="New values of matrices [m, n] by a product of a [k, m], transposed, and b [k, n]: in "
    "blocks of rows, so that the whole product is never in memory. The first body takes a block "
    "of a and b and returns the rows of the product. Body i takes these rows, the rows of all "
    "states (new ones for states before i) and of the other operands of that shape, and the "
    "remaining operands. It returns the rows of state i. The pass `CpuUpdateByRows` creates it.",
)

OPS: tuple[OpDef, ...] = (UPDATE_BY_ROWS,)
