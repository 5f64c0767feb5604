"""What `Scan` and `While` have in common: types, state, pruning and layouts.

The operands of a loop are constants, carries and xs. Its first region is the body, which takes
(constants, carries, slices of the xs) and returns (carries, ys). Other regions inspect an iteration
from outside and take (constants, carries). The attributes `consts` and `carries` count them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.ir.dims import Dim, differ_if_positive, symbols_of
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Partial, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.control.bodies import (
    Carry,
    Invariant,
    Parts,
    ThreadedBody,
    check_taken,
    fresh,
    parts_of,
    prune_regions,
    shifted,
    slice_type,
    stacked_type,
)
from graphc.ops.control.loop_view import LoopView
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.cost_rules import every_iteration
from graphc.ops.core.defining import define
from graphc.ops.core.layout_rules import SUM

# -- types -----------------------------------------------------------------------------------


_GROWING = (
    "a carry keeps its shape: make it as large as it gets and write carry.at[i].set(row), or let "
    "gc.scan stack what f returns second"
)


def infer_loop(
    ctx: InferContext, given: Parts, length: Dim, own: int = 0
) -> tuple[TensorType, ...]:
    """The types of the final carries and of the stacked ys, for operands of the types `given`.

    The first `own` carries belong to the loop, not to the user. Errors do not count them.
    """
    results = [t.type for t in ctx.regions[0].output_tensors()]
    for i, (before, after) in enumerate(zip(given.carries, results, strict=False), -own):
        ctx.require(
            before.dtype == after.dtype and before.rank == after.rank,
            f"carry {i} is {before} before the body and {after} after it",
            hint="the body must return carries of the types that it takes",
            dtype=before.dtype != after.dtype,
        )
        for a, b in zip(before.shape, after.shape, strict=True):
            what = f"sizes of carry {i} before and after the body"
            if symbols_of(a) & symbols_of(b) and differ_if_positive(a, b):
                ctx.fail(f"{what} differ, {a} and {b}", hint=_GROWING)
            ctx.unify(a, b, what, hint=_GROWING)
    for x in given.xs:
        ctx.require(
            x.rank > 0,
            "xs need a leading axis to scan over",
            hint="length= repeats without xs: gc.scan(f, init, length=10)",
        )
        ctx.unify(
            x.shape[0],
            length,
            "lengths of xs",
            hint="every x of xs is cut along its first axis, in as many slices",
        )
    check_taken(ctx, (*given.consts, *given.carries, *map(slice_type, given.xs)))
    for number in range(1, len(ctx.regions)):
        check_taken(ctx, (*given.consts, *given.carries), number)
    ys = results[len(given.carries) :]
    return (*given.carries, *(stacked_type(y, length) for y in ys))


# -- state -----------------------------------------------------------------------------------


def thread_loop(node: Node, bodies: Sequence[ThreadedBody]) -> tuple[Node, dict[str, Tensor]]:
    """The loop with the variables that its body assigns as carries: see `functionalize`."""
    (_, invariants, extra), *others = bodies
    known = {i.variable for i in invariants} | {c.variable for c in extra}
    own = [{i.variable: i.inner for i in other.invariants} for other in others]
    invariants = [
        *invariants,
        *(i for other in others for i in other.invariants if i.variable not in known),
    ]

    def seen(rows: Sequence[Invariant | Carry]) -> list[list[Tensor]]:
        """The inputs of the other regions that correspond to the body's new inputs."""
        return [[taken.get(row.variable, fresh(row.inner)) for row in rows] for taken in own]

    finals = [Tensor(c.initial.type, c.variable or "index") for c in extra]
    rows = [(c.initial, c.inner, c.following, t) for c, t in zip(extra, finals, strict=True)]
    view = LoopView.of(node.replace(regions=tuple([each.body for each in bodies])))
    view = view.with_consts([(i.outer, i.inner) for i in invariants], seen(invariants))
    new_node = view.with_carries(rows, seen(extra)).write()
    return new_node, {c.variable: t for c, t in zip(extra, finals, strict=True) if c.variable}


# -- layouts ---------------------------------------------------------------------------------


def layout_loop(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Carries keep one layout through all iterations. xs may be sharded along any but their
    leading axis.

    The results of the other regions are replicated, because every replica makes the same number of
    iterations.
    """
    body, *others = node.regions
    given = parts_of(node, operands)
    carries = len(given.carries)
    inner_consts = [_unless_partial(layout) for layout in given.consts]
    outer_xs = [
        layout if isinstance(layout, Sharded) and layout.axis > 0 else REPLICATED
        for layout in given.xs
    ]
    inner_xs = [shifted(layout, -1) for layout in outer_xs]
    current = _carried(ctx, node, inner_consts, given.carries, inner_xs)
    required = [*current, *([None] * (len(body.outputs) - carries))]
    local, results = ctx.replicate_region(body, [*inner_consts, *current, *inner_xs], required)
    local_others = [
        ctx.replicate_region(other, [*inner_consts, *current], [REPLICATED] * len(other.outputs))[0]
        for other in others
    ]
    stacked = [shifted(layout, 1) for layout in results[carries:]]
    given_layouts = [*inner_consts, *current, *outer_xs]
    return LayoutPlan(given_layouts, [*current, *stacked], regions=(local, *local_others))


def _carried(
    ctx: LayoutContext,
    node: Node,
    consts: Sequence[Layout],
    carries: Sequence[Layout],
    xs: Sequence[Layout],
) -> list[Layout]:
    """The layouts in which the body takes its carries and returns them."""
    body, view = node.regions[0], LoopView.of(node)
    users = body.users()
    adds = [
        _only_adds(users.get(before, []), after)
        for before, after in zip(view.inner.carries, view.following, strict=True)
    ]
    current = [
        layout if layout == SUM and only_adds else _unless_partial(layout)
        for layout, only_adds in zip(carries, adds, strict=True)
    ]
    tried = [{layout} for layout in current]
    while True:
        _, results = ctx.replicate_region(
            body, [*consts, *current, *xs], [None] * len(body.outputs)
        )
        wanted = [_next_carry(*row) for row in zip(current, results, tried, adds, strict=False)]
        if wanted == current:
            return current
        current = wanted
        for layouts, layout in zip(tried, current, strict=True):
            layouts.add(layout)


def _unless_partial(layout: Layout) -> Layout:
    """The layout, or replicated for a partial value. Otherwise, each iteration would sum it."""
    return REPLICATED if isinstance(layout, Partial) else layout


def _next_carry(current: Layout, result: Layout, tried: set[Layout], only_adds: bool) -> Layout:
    """The layout to try next for a carry, which the body takes as `current` and returns as
    `result`: `result` if it was not tried yet, otherwise replicated. Partial only if the body does
    nothing but add to the carry."""
    wanted = result if result == SUM and only_adds else _unless_partial(result)
    return wanted if wanted == current or wanted not in tried else REPLICATED


def _only_adds(users: Sequence[Node], following: Tensor) -> bool:
    """Whether a body only adds to a carry. Then each replica may add up its own terms."""
    return len(users) == 1 and users[0].op.name == "Add" and users[0].outputs[0] is following


# -- records ---------------------------------------------------------------------------------


def loop_operator(
    schema: str,
    *,
    attrs: Mapping[str, Attr],
    infer: Callable[..., Any],
    lower: Callable[..., Any],
    gradient: Callable[..., Adjoints],
    doc: str,
) -> OpDef:
    """The record of a loop. `attrs` follow `consts` and `carries`; the others as in `define`."""
    counts = {
        "consts": Attr("int", doc="how many operands are the same in each iteration"),
        "carries": Attr("int", doc="how many are carried to the next iteration"),
    }
    return define(
        schema,
        precision="wide",
        attrs={**counts, **attrs},
        infer=infer,
        lower=lower,
        gradient=gradient,
        layout=layout_loop,
        thread_state=thread_loop,
        # The loop without unused stacked results and the inputs that its regions then ignore.
        prune_outputs=lambda node, used: prune_regions(node, used, "consts", node.attrs["carries"]),
        cost=every_iteration,
        doc=doc,
    )
