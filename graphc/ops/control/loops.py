"""What loops have in common: types, state, pruning and layouts of `Scan` and `While`.

The operands of a loop are constants, carries and xs. Its first region is the body, which takes
(constants, carries, slices of the xs) and gives (carries, ys). Other regions look at a turn from
outside: they take (constants, carries). Attributes `consts` and `carries` count.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.dims import Dim
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Partial, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import InferContext
from graphc.ir.program import Program, is_pure, region
from graphc.ir.rewrite import used_from
from graphc.ir.types import TensorType
from graphc.ops.control.bodies import Parts, ThreadedBody, check_taken, slice_type, split
from graphc.ops.core.layout_rules import SUM

# -- types -----------------------------------------------------------------------------------


def infer_loop(
    ctx: InferContext, given: Parts, length: Dim, own: int = 0
) -> tuple[TensorType, ...]:
    """The types of the last carries and of the stacked ys, for operands of the types `given`.

    The first `own` carries are the loop's, not the user's: an error does not count them.
    """
    results = [t.type for t in ctx.regions[0].output_tensors()]
    for i, (before, after) in enumerate(zip(given.carries, results, strict=False), -own):
        ctx.require(
            before.dtype == after.dtype and before.rank == after.rank,
            f"carry {i} is {before} going in and {after} coming out of the body",
            hint="the body must return carries of the types it was given",
            dtype=before.dtype != after.dtype,
        )
        for a, b in zip(before.shape, after.shape, strict=True):
            ctx.unify(a, b, f"sizes of carry {i} going in and coming out")
    for x in given.xs:
        ctx.require(x.rank > 0, "xs need a leading axis to scan over")
        ctx.unify(x.shape[0], length, "lengths of xs")
    check_taken(ctx, (*given.consts, *given.carries, *map(slice_type, given.xs)))
    for number in range(1, len(ctx.regions)):
        check_taken(ctx, (*given.consts, *given.carries), number)
    ys = results[len(given.carries) :]
    return (*given.carries, *(TensorType(y.dtype, (length, *y.shape)) for y in ys))


# -- state -----------------------------------------------------------------------------------


def thread_loop(node: Node, bodies: Sequence[ThreadedBody]) -> tuple[Node, dict[str, Tensor]]:
    """The loop with variables that its body assigns among the carries: see `functionalize`."""
    (body, invariants, extra), *others = bodies
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    outer = split(node.inputs, consts, carries)
    inner = split(body.input_tensors(), consts, carries)
    results = body.output_tensors()
    looked_at = [i for other in others for i in other.invariants]
    known = {i.variable for i in invariants} | {c.variable for c in extra}
    invariants = [*invariants, *(i for i in looked_at if i.variable not in known)]
    new_region = region(
        body.name,
        [
            *inner.consts,
            *(i.inner for i in invariants),
            *inner.carries,
            *(c.inner for c in extra),
            *inner.xs,
        ],
        body.nodes,
        [*results[:carries], *(c.following for c in extra), *results[carries:]],
    )
    finals = [Tensor(c.initial.type, c.variable or "index") for c in extra]
    new_node = node.replace(
        inputs=(
            *outer.consts,
            *(i.outer for i in invariants),
            *outer.carries,
            *(c.initial for c in extra),
            *outer.xs,
        ),
        outputs=(*node.outputs[:carries], *finals, *node.outputs[carries:]),
        attrs={
            **node.attrs,
            "consts": consts + len(invariants),
            "carries": carries + len(extra),
        },
        regions=(
            new_region,
            *(
                _look(
                    other,
                    consts,
                    [(i.variable, i.inner) for i in invariants],
                    [(c.variable, c.inner) for c in extra],
                )
                for other in others
            ),
        ),
    )
    named = {c.variable: t for c, t in zip(extra, finals, strict=True) if c.variable}
    return new_node, named


def _look(
    threaded: ThreadedBody,
    consts: int,
    invariants: Sequence[tuple[str | None, Tensor]],
    extra: Sequence[tuple[str | None, Tensor]],
) -> Program:
    """A region beside the body, taking what the body newly takes: pairs (variable, input)."""
    body = threaded.body
    own = {i.variable: i.inner for i in threaded.invariants}
    inner = body.input_tensors()

    def taken(pairs: Sequence[tuple[str | None, Tensor]]) -> list[Tensor]:
        return [own.get(name, Tensor(like.type, like.name)) for name, like in pairs]

    inputs = [*inner[:consts], *taken(invariants), *inner[consts:], *taken(extra)]
    return region(body.name, inputs, body.nodes, body.output_tensors())


# -- pruning ---------------------------------------------------------------------------------


def prune_loop(node: Node, used: set[Tensor]) -> Node:
    """The loop without stacked results that nobody uses, and inputs that its regions then leave."""
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    body, *others = node.regions
    results = body.output_tensors()
    kept = [i for i in range(len(results)) if i < carries or node.outputs[i] in used]
    nodes = used_from(body.nodes, [results[i] for i in kept], keep=lambda inner: not is_pure(inner))
    needed = {t for inner in nodes for t in inner.inputs} | {results[i] for i in kept}
    for other in others:
        needed.update(t for inner in other.nodes for t in inner.inputs)
        needed.update(other.output_tensors())
    inputs = [split(body.input_tensors(), consts, carries) for body in node.regions]
    keep_const = [
        any(t in needed for t in row) for row in zip(*(i.consts for i in inputs), strict=True)
    ]
    keep_x = [t in needed for t in inputs[0].xs]
    if len(kept) == len(results) and all(keep_const) and all(keep_x):
        return node
    outer = split(node.inputs, consts, carries)

    def pick(items: Sequence[Tensor], flags: Sequence[bool]) -> list[Tensor]:
        return [item for item, keep in zip(items, flags, strict=True) if keep]

    smaller = [
        region(
            body.name,
            [*pick(inputs[0].consts, keep_const), *inputs[0].carries, *pick(inputs[0].xs, keep_x)],
            nodes,
            [results[i] for i in kept],
        ),
        *(
            region(
                other.name,
                [*pick(i.consts, keep_const), *i.carries],
                other.nodes,
                other.output_tensors(),
            )
            for other, i in zip(others, inputs[1:], strict=True)
        ),
    ]
    return node.replace(
        inputs=(*pick(outer.consts, keep_const), *outer.carries, *pick(outer.xs, keep_x)),
        outputs=tuple(node.outputs[i] for i in kept),
        attrs={**node.attrs, "consts": sum(keep_const)},
        regions=tuple(smaller),
    )


# -- layouts ---------------------------------------------------------------------------------


def layout_loop(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Carries keep one layout through all turns; xs may be sharded along any other axis.

    What the other regions give is whole: every replica makes as many turns.
    """
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    body, *others = node.regions
    given = split(operands, consts, carries)
    inner_consts = [_unless_partial(layout) for layout in given.consts]
    outer_xs = [
        layout if isinstance(layout, Sharded) and layout.axis > 0 else REPLICATED
        for layout in given.xs
    ]
    inner_xs = [
        Sharded(layout.axis - 1) if isinstance(layout, Sharded) else layout for layout in outer_xs
    ]
    current = _carried(ctx, node, inner_consts, given.carries, inner_xs)
    required = [*current, *([None] * (len(body.outputs) - carries))]
    local, results = ctx.replicate_region(body, [*inner_consts, *current, *inner_xs], required)
    local_others = [
        ctx.replicate_region(other, [*inner_consts, *current], [REPLICATED] * len(other.outputs))[0]
        for other in others
    ]
    stacked: list[Layout] = [
        Sharded(layout.axis + 1) if isinstance(layout, Sharded) else layout
        for layout in results[carries:]
    ]
    return LayoutPlan(
        [*inner_consts, *current, *outer_xs],
        [*current, *stacked],
        regions=(local, *local_others),
    )


def _carried(
    ctx: LayoutContext,
    node: Node,
    consts: Sequence[Layout],
    carries: Sequence[Layout],
    xs: Sequence[Layout],
) -> list[Layout]:
    """The layouts in which the body takes its carries and gives them back."""
    body = node.regions[0]
    users = body.users()
    taken = body.input_tensors()[len(consts) :]
    adds = [
        _only_adds(users.get(before, []), after)
        for before, after in zip(taken[: len(carries)], body.output_tensors(), strict=False)
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
    """The layout, or whole for a partial value: else each turn would make it whole."""
    return REPLICATED if isinstance(layout, Partial) else layout


def _next_carry(current: Layout, result: Layout, tried: set[Layout], only_adds: bool) -> Layout:
    """What to try for a carry after `current`, with which the body gives it back as `result`.

    What the body gives, if that is new; else whole. Partial only if the body does no more than
    add to it.
    """
    wanted = result if result == SUM and only_adds else _unless_partial(result)
    return wanted if wanted == current or wanted not in tried else REPLICATED


def _only_adds(users: Sequence[Node], following: Tensor) -> bool:
    """Whether a body only adds to a carry: then terms may be added up per replica."""
    return len(users) == 1 and users[0].op.name == "Add" and users[0].outputs[0] is following
