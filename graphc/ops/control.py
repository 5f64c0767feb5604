"""Loops whose body is a region: `scan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from graphc.errors import AttributeValueError, GraphcError, ShapeError
from graphc.ir.dims import Dim
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Partial, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.program import is_pure, region
from graphc.ir.scopes import building
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ops.bodies import (
    Body,
    ThreadedBody,
    body_region,
    check_taken,
    close_body,
    has_writes,
    open_body,
    slice_type,
    split,
)
from graphc.ops.emit import convert, emit_node, graph_of
from graphc.ops.layout_rules import SUM
from graphc.ops.scan_gradient import scan_gradient
from graphc.ops.state import read


def _infer_scan(
    ctx: InferContext,
    *types: TensorType,
    consts: int,
    carries: int,
    length: Dim,
    reverse: bool,
    unroll: int,
) -> tuple[TensorType, ...]:
    body = ctx.regions[0]
    given = split(types, consts, carries)
    ctx.require(not isinstance(length, int) or length >= 0, f"the length is negative: {length}")
    results = [t.type for t in body.output_tensors()]
    for i, (before, after) in enumerate(zip(given.carries, results, strict=False)):
        ctx.require(
            before.dtype == after.dtype and before.rank == after.rank,
            f"carry {i} is {before} going in and {after} coming out of the body",
            mend="the body must return carries of the types it was given",
        )
        for a, b in zip(before.shape, after.shape, strict=True):
            ctx.unify(a, b, f"sizes of carry {i} going in and coming out")
    for x in given.xs:
        ctx.require(x.rank > 0, "xs need a leading axis to scan over")
        ctx.unify(x.shape[0], length, "lengths of xs")
    check_taken(ctx, (*given.consts, *given.carries, *map(slice_type, given.xs)))
    stacked = [TensorType(y.dtype, (length, *y.shape)) for y in results[carries:]]
    return (*given.carries, *stacked)


def _lower_scan(
    ctx: LowerContext,
    *operands: Any,
    consts: int,
    carries: int,
    length: Dim,
    reverse: bool,
    unroll: int,
) -> tuple[Any, ...]:
    body = ctx.node.regions[0]
    given = split(operands, consts, carries)

    def step(carry: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[Any, Any]:
        outputs = ctx.lower_region(body, [*given.consts, *carry, *x], loop=True)
        return tuple(outputs[:carries]), tuple(outputs[carries:])

    final, stacked = lax.scan(
        step, given.carries, given.xs, length=ctx.dim(length), reverse=reverse, unroll=unroll
    )
    return (*final, *stacked)


def _thread_scan(node: Node, bodies: Sequence[ThreadedBody]) -> tuple[Node, dict[str, Tensor]]:
    """The scan with variables that its body assigns among the carries: see `functionalize`."""
    (body, invariants, extra) = bodies[0]
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    outer = split(node.inputs, consts, carries)
    inner = split(body.input_tensors(), consts, carries)
    results = body.output_tensors()
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
        regions=(new_region,),
    )
    named = {c.variable: t for c, t in zip(extra, finals, strict=True) if c.variable}
    return new_node, named


def _prune_scan(node: Node, used: set[Tensor]) -> Node:
    """The scan without stacked results that nobody uses, and inputs that its body then leaves."""
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    body = node.regions[0]
    results = body.output_tensors()
    kept = [i for i in range(len(results)) if i < carries or node.outputs[i] in used]
    needed = {results[i] for i in kept}
    nodes = []
    for inner in reversed(body.nodes):
        if not needed.isdisjoint(inner.outputs) or not is_pure(inner):
            needed.update(inner.inputs)
            nodes.append(inner)
    inputs = split(body.input_tensors(), consts, carries)
    keep_const = [t in needed for t in inputs.consts]
    keep_x = [t in needed for t in inputs.xs]
    if len(kept) == len(results) and all(keep_const) and all(keep_x):
        return node
    outer = split(node.inputs, consts, carries)

    def pick(items: Sequence[Tensor], flags: Sequence[bool]) -> list[Tensor]:
        return [item for item, keep in zip(items, flags, strict=True) if keep]

    return node.replace(
        inputs=(*pick(outer.consts, keep_const), *outer.carries, *pick(outer.xs, keep_x)),
        outputs=tuple(node.outputs[i] for i in kept),
        attrs={**node.attrs, "consts": sum(keep_const)},
        regions=(
            region(
                body.name,
                [*pick(inputs.consts, keep_const), *inputs.carries, *pick(inputs.xs, keep_x)],
                nodes[::-1],
                [results[i] for i in kept],
            ),
        ),
    )


def _layout_scan(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Carries keep one layout through all iterations; xs may be sharded along any other axis."""
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    body = node.regions[0]
    given = split(operands, consts, carries)
    inner_consts = [_unless_partial(layout) for layout in given.consts]
    outer_xs = [
        layout if isinstance(layout, Sharded) and layout.axis > 0 else REPLICATED
        for layout in given.xs
    ]
    inner_xs = [
        Sharded(layout.axis - 1) if isinstance(layout, Sharded) else layout for layout in outer_xs
    ]
    users = body.users()
    adds = [
        _only_adds(users.get(taken, []), following)
        for taken, following in zip(
            body.input_tensors()[consts : consts + carries], body.output_tensors(), strict=False
        )
    ]
    current = [
        layout if layout == SUM and only_adds else _unless_partial(layout)
        for layout, only_adds in zip(given.carries, adds, strict=True)
    ]
    tried = [{layout} for layout in current]
    while True:
        inputs = [*inner_consts, *current, *inner_xs]
        _, results = ctx.replicate_region(body, inputs, [None] * len(body.outputs))
        wanted = [_next_carry(*row) for row in zip(current, results, tried, adds, strict=False)]
        if wanted == current:
            break
        current = wanted
        for layouts, layout in zip(tried, current, strict=True):
            layouts.add(layout)
    required = [*current, *([None] * (len(body.outputs) - carries))]
    inputs = [*inner_consts, *current, *inner_xs]
    local, results = ctx.replicate_region(body, inputs, required)
    stacked: list[Layout] = [
        Sharded(layout.axis + 1) if isinstance(layout, Sharded) else layout
        for layout in results[carries:]
    ]
    return LayoutPlan([*inner_consts, *current, *outer_xs], [*current, *stacked], regions=(local,))


def _unless_partial(layout: Layout) -> Layout:
    """The layout, or whole for a partial value: else each iteration would make it whole."""
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


SCAN = OpDef(
    name="Scan",
    signature="*operands -> *results",
    attrs={
        "consts": Attr("int", doc="how many operands are the same in each iteration"),
        "carries": Attr("int", doc="how many are carried from one to the next"),
        "length": Attr("dim"),
        "reverse": Attr("bool", default=False),
        "unroll": Attr(
            "int",
            default=1,
            check=lambda turns: turns > 0,
            must="be how many turns the compiled loop takes at once, at least 1",
        ),
    },
    infer=_infer_scan,
    lower=_lower_scan,
    gradient=scan_gradient,
    layout=_layout_scan,
    thread_state=_thread_scan,
    prune_outputs=_prune_scan,
    doc="A loop over the leading axis of the xs: the body takes (consts, carries, slices of the "
    "xs) and gives (carries, ys); results are the last carries and the stacked ys.",
)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    *,
    length: Dim | None = None,
    reverse: bool = False,
    unroll: int = 1,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Loops `carry, y = f(carry, x)` over the leading axis of `xs`; gives (carry, stacked ys).

    Args:
        f: called once, with tensors, to build the body. Outer tensors and variables may be
            used in it; variables assigned in it are carried from iteration to iteration.
        init: a nest (tuples, lists, dicts) of tensors; the carry keeps its types.
        xs: a nest of tensors with one leading size, or None with `length`.
        reverse: from the last slice to the first; ys keep the places of their xs.
        unroll: how many turns the compiled loop takes at once; more cost compile time.

    Raises:
        ShapeError: lengths differ, or the carry changes its type.
        AttributeValueError: `f` does not return (carry, y), or the length is not given.
    """
    init_leaves, init_tree = jax.tree.flatten(init)
    x_leaves, x_tree = jax.tree.flatten(xs)
    first = [convert(leaf) for leaf in init_leaves]
    outer_xs = [convert(leaf) for leaf in x_leaves]
    count = _scan_length(outer_xs, length)
    graph = graph_of([*first, *outer_xs])
    with building(graph), open_body(name or "scan_body") as child:
        carry = [child.add_input(t.type, f"carry{i}") for i, t in enumerate(first)]
        slices = [child.add_input(slice_type(t.type), f"x{i}") for i, t in enumerate(outer_xs)]
        out = f(jax.tree.unflatten(init_tree, carry), jax.tree.unflatten(x_tree, slices))
        new_carry, y_leaves, y_tree = _body_results(out, init_tree)
        results = [convert(leaf) for leaf in (*new_carry, *y_leaves)]
        body = close_body(child, results, read)
    with building(graph):
        node = _add_scan(body, first, outer_xs, [*carry, *slices], count, name, reverse, unroll)
    if has_writes(node.regions[0]):
        graph.last_reads.clear()
    final, stacked = node.outputs[: len(first)], node.outputs[len(first) :]
    return jax.tree.unflatten(init_tree, final), jax.tree.unflatten(y_tree, stacked)


def _add_scan(
    body: Body,
    first: Sequence[Tensor],
    xs: Sequence[Tensor],
    parameters: Sequence[Tensor],
    length: Dim,
    name: str | None,
    reverse: bool,
    unroll: int,
) -> Node:
    return emit_node(
        SCAN,
        [*body.captured, *first, *xs],
        name=name,
        regions=(body_region(body, parameters),),
        consts=len(body.captured),
        carries=len(first),
        length=length,
        reverse=reverse,
        unroll=unroll,
    )


def _scan_length(xs: Sequence[Tensor], length: Dim | None) -> Dim:
    for x in xs:
        if x.ndim == 0:
            raise ShapeError(
                "scan: xs need a leading axis to scan over, got a scalar",
                source=current_source(),
            )
    if length is None and not xs:
        raise AttributeValueError("scan: without xs, give length=", source=current_source())
    return length if length is not None else xs[0].shape[0]


def _body_results(out: Any, init_tree: Any) -> tuple[list[Any], list[Any], Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise AttributeValueError(
            f"scan: the body must return (carry, y), got {type(out).__name__}",
            source=current_source(),
            mend="return carry, None where there is no y",
        )
    leaves, tree = jax.tree.flatten(out[0])
    if tree != init_tree:
        raise GraphcError(
            f"scan: the carry is {init_tree} going in and {tree} coming out",
            source=current_source(),
            mend="return a carry of the same nest as init",
        )
    y_leaves, y_tree = jax.tree.flatten(out[1])
    return leaves, y_leaves, y_tree


OPS: tuple[OpDef, ...] = (SCAN,)
