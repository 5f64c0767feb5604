"""Choices made while the program runs: `cond` and `switch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax

from graphc.errors import AttributeValueError, DTypeError, GraphcError, ShapeError
from graphc.ir.costs import Cost
from graphc.ir.dtypes import BOOL, INT32, is_integer
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Partial, Sharded
from graphc.ir.node import Node, Tensor, describe_tensors
from graphc.ir.opdef import InferContext, LowerContext, OpDef
from graphc.ir.program import Program
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.control.bodies import (
    Body,
    check_body,
    check_taken,
    has_writes,
    numbered,
    prune_regions,
    shown_nest,
    trace,
    united,
)
from graphc.ops.control.branch_bodies import thread_bodies
from graphc.ops.control.platforms import OF_SWITCH, by_platform
from graphc.ops.control.switch_gradient import switch_gradient
from graphc.ops.core.checks import refuse
from graphc.ops.core.defining import define
from graphc.ops.core.emit import convert, emit_node, graph_of, to_dtype
from graphc.ops.elementwise.arithmetic import clip
from graphc.typing import TensorLike, TensorTree

__all__ = ["cond", "switch"]


def _infer_switch(
    ctx: InferContext, index: TensorType, *types: TensorType, platforms: str | None
) -> tuple[TensorType, ...]:
    branches = len(ctx.regions)
    ctx.require(branches > 0, "needs at least one branch")
    ctx.require(index.rank == 0, f"the index must be a scalar, got {index}")
    ctx.require(
        index.dtype == INT32 or (index.dtype == BOOL and branches == 2),
        f"the index must be int32, or bool with two branches, got {index}",
        dtype=True,
    )
    groups = branches if platforms is None else platforms.count(";") + 1
    ctx.require(groups == branches, f"{groups} groups of platforms for {branches} branches")
    for i in range(branches):
        check_taken(ctx, types, i)
    first, *others = ctx.regions
    results = [t.type for t in first.output_tensors()]
    for other in others:
        _check_alike(ctx, first, other)
        for i, tensor in enumerate(other.output_tensors()):
            shape = [
                ctx.unify(
                    a,
                    b,
                    f"sizes of result {i} of {first.name} and {other.name}",
                    hint="all branches must give results of one shape: gc.pad or gc.reshape one",
                )
                for a, b in zip(results[i].shape, tensor.type.shape, strict=True)
            ]
            results[i] = TensorType(tensor.type.dtype, tuple(shape))
    return tuple(results)


def _check_alike(ctx: InferContext, first: Program, other: Program) -> None:
    """Raises unless the two branches give results of the same dtypes and ranks."""
    a, b = first.output_tensors(), other.output_tensors()
    ctx.require(
        len(a) == len(b),
        f"{first.name} gives {len(a)} results and {other.name} gives {len(b)}",
        hint="all branches must give the same number of results",
    )
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x.dtype != y.dtype or x.ndim != y.ndim:
            error = DTypeError if x.dtype != y.dtype else ShapeError
            raise error(
                f"{ctx.op.name}: result {i} is {x.type} from {first.name} and {y.type} from "
                f"{other.name}",
                details=describe_tensors({first.name: x, other.name: y}),
                source=ctx.source,
                hint="all branches must give results of the same types: gc.cast or gc.reshape one",
            )


def _lower_switch(
    ctx: LowerContext, index: Any, *operands: Any, platforms: str | None
) -> tuple[Any, ...]:
    def branch(body: Program) -> Callable[..., tuple[Any, ...]]:
        # XLA:CPU treats a branch like the body of a loop: it is not the main computation.
        return lambda *values: tuple(ctx.lower_region(body, values, loop=True))

    branches = [branch(body) for body in ctx.node.regions]
    if platforms is not None:
        return tuple(by_platform(platforms, branches, *operands))
    number = lax.convert_element_type(index, INT32)
    results: tuple[Any, ...] = lax.switch(number, branches, *operands)
    return results


def _layout_switch(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Every replica runs the same branch, so branches may contain collectives.

    A result has the layout that the branches return. If these differ, the layout is one that most
    of the branches can return without exchanging data.
    """
    given = [REPLICATED if isinstance(x, Partial) else x for x in operands[1:]]
    count = len(node.outputs)
    found = [ctx.replicate_region(body, given, [None] * count)[1] for body in node.regions]
    agreed = [_agreed(layouts) for layouts in zip(*found, strict=True)]
    local = [ctx.replicate_region(body, given, agreed)[0] for body in node.regions]
    return LayoutPlan([REPLICATED, *given], agreed, regions=tuple(local))


def _agreed(layouts: Sequence[Layout]) -> Layout:
    """One layout for a result that the branches return in `layouts`. A replicated value fits
    all of them."""
    distinct = {layout for layout in layouts if layout != REPLICATED}
    if len(distinct) == 1:
        (only,) = distinct
        return only
    return next((x for x in layouts if isinstance(x, Sharded)), REPLICATED)


SWITCH = define(
    "Switch(index, *operands) -> *results",
    precision="wide",
    attrs={"platforms": OF_SWITCH},
    infer=_infer_switch,
    lower=_lower_switch,
    gradient=switch_gradient,
    layout=_layout_switch,
    thread_state=thread_bodies,
    prune_outputs=prune_regions,
    cost=lambda ctx, node: Cost(*map(max, zip(*map(ctx.of_region, node.regions), strict=True))),
    doc="The results of one of the branches. The branches are the regions of the node; each takes "
    "all operands. The index is an int32 scalar, clamped to the valid range, or for two branches "
    "a bool scalar: False chooses the first. Only the chosen branch runs. Source: jax.lax.switch.",
)


def cond(
    predicate: TensorLike,
    true_fn: Callable[..., TensorTree],
    false_fn: Callable[..., TensorTree],
    *args: TensorTree,
    name: str | None = None,
) -> TensorTree:
    """`true_fn(*args)` if `predicate` is true, else `false_fn(*args)`; only one of them runs.

    Args:
        predicate: a bool scalar.
        true_fn, false_fn: each called once, with tensors, to build its branch. Outer tensors
            and variables may be used in both. A variable that one of them assigns keeps its value
            if the other one runs. It is assigned only if a result of `cond` is fetched.
        *args: nests (tuples, lists, dicts) of tensors.

    Returns:
        The nest that both functions return, of the same types in both.

    Raises:
        ShapeError, DTypeError: the predicate is not a bool scalar, or the results differ in type.
        GraphcError: the functions return different nests.

    Source: jax.lax.cond.

    Examples:
        >>> run(gc.cond(gc.constant(3) > 2, lambda: 1, lambda: 0))
        Array(1, dtype=int32)
    """
    chooser = convert(predicate)
    if chooser.dtype != BOOL or chooser.ndim:
        refuse(
            f"cond: the predicate must be a bool scalar, got {chooser.type}",
            error=DTypeError if chooser.dtype != BOOL else ShapeError,
            hint="compare (x > 0), and reduce with gc.all or gc.any; gc.where chooses elementwise",
        )
    check_body("cond: true_fn", true_fn, len(args))
    check_body("cond: false_fn", false_fn, len(args))
    branches = {"false_branch": false_fn, "true_branch": true_fn}
    return add_switch("cond", chooser, branches, args, name)


def switch(
    index: TensorLike,
    branches: Sequence[Callable[..., TensorTree]],
    *args: TensorTree,
    name: str | None = None,
) -> TensorTree:
    """`branches[index](*args)`, with the index clamped to the valid range; only that branch runs.

    Args:
        index: an integer scalar.
        branches: functions of `args`, each called once, with tensors: see `cond`.
        *args: nests (tuples, lists, dicts) of tensors.

    Returns:
        The nest that all functions return, of the same types in all.

    Raises:
        ShapeError, DTypeError: the index is not an integer scalar, or the results differ in type.
        AttributeValueError: there are no branches.
        GraphcError: the functions return different nests.

    Source: jax.lax.switch.

    Examples:
        >>> run(gc.switch(1, [gc.sin, gc.cos], 0.0))
        Array(1., dtype=float32)
    """
    chooser = convert(index)
    if not is_integer(chooser.dtype) or chooser.ndim:
        refuse(
            f"switch: the index must be an integer scalar, got {chooser.type}",
            error=ShapeError if chooser.ndim else DTypeError,
            hint="gc.cond takes a bool; gc.cast(x, 'int32') makes a number an index",
        )
    if not branches:
        refuse(
            "switch: there are no branches",
            error=AttributeValueError,
            hint="gc.switch(index, [lambda: a, lambda: b])",
        )
    for i, function in enumerate(branches):
        check_body(f"switch: branch {i}", function, len(args))
    if chooser.dtype != INT32:
        chooser = to_dtype(clip(chooser, 0, len(branches) - 1), INT32)
    named = {f"branch{i}": function for i, function in enumerate(branches)}
    return add_switch("switch", chooser, named, args, name)


def add_switch(
    what: str,
    chooser: Tensor,
    branches: Mapping[str, Callable[..., Any]],
    args: tuple[Any, ...],
    name: str | None,
    platforms: str | None = None,
) -> Any:
    """The results of a new `Switch`.

    Args:
        what: the user's function, for errors.
        chooser: the index.
        branches: by the names that errors call them.
        args: nests of tensors.
        name: of the node.
        platforms: the attribute of the node.
    """
    leaves, tree = jax.tree.flatten(args)
    operands = [convert(leaf) for leaf in leaves]
    graph = graph_of([chooser, *operands])
    with building(graph):
        traced = {key: _trace(f, key, operands, tree) for key, f in branches.items()}
        out_tree = _common_tree(what, {key: branch.tree for key, branch in traced.items()})
        bodies = [branch.body for branch in traced.values()]
        captured, inner = united(bodies)
        regions = tuple(
            [body.region([*body.parameters, *own]) for body, own in zip(bodies, inner, strict=True)]
        )
        inputs = [chooser, *operands, *captured]
        node = emit_node(SWITCH, inputs, name=name or what, regions=regions, platforms=platforms)
    if any(map(has_writes, regions)):
        graph.last_reads.clear()
    return jax.tree.unflatten(out_tree, node.outputs)


class _Branch(NamedTuple):
    """A traced branch and the nest of its results."""

    body: Body
    tree: Any


def _trace(f: Callable[..., Any], name: str, operands: Sequence[Tensor], tree: Any) -> _Branch:
    out_tree: Any = None

    def leaves(parameters: Sequence[Tensor]) -> list[Any]:
        nonlocal out_tree
        found, out_tree = jax.tree.flatten(f(*jax.tree.unflatten(tree, parameters)))
        return found

    body = trace(name, numbered("x", (t.type for t in operands)), leaves)
    return _Branch(body, out_tree)


def _common_tree(what: str, trees: Mapping[str, Any]) -> Any:
    (first, tree), *others = trees.items()
    for other, found in others:
        if found != tree:
            refuse(
                f"{what}: {first} returns {shown_nest(tree)}, {other} returns {shown_nest(found)}",
                error=GraphcError,
                hint="return the same nest of tensors from all branches",
            )
    return tree


OPS: tuple[OpDef, ...] = (SWITCH,)
