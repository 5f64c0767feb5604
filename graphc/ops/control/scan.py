"""Loops over a leading axis: `scan`, `map_fn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.control.bodies import (
    Parts,
    check_body,
    check_nest,
    has_writes,
    numbered,
    slice_type,
    split,
    trace,
)
from graphc.ops.control.loops import infer_loop, loop_operator
from graphc.ops.control.scan_gradient import scan_gradient
from graphc.ops.core.defining import at_least
from graphc.ops.core.emit import convert, emit_node, graph_of
from graphc.typing import TensorTree

__all__ = ["map_fn", "scan"]


def _infer_scan(
    ctx: InferContext, *types: TensorType, consts: int, carries: int, length: Dim, **how: int
) -> tuple[TensorType, ...]:
    ctx.require(not isinstance(length, int) or length >= 0, f"the length is negative: {length}")
    return infer_loop(ctx, split(types, consts, carries), length)


def _lower_scan(
    ctx: LowerContext, *operands: Any, consts: int, carries: int, length: Dim, **how: Any
) -> tuple[Any, ...]:
    body = ctx.node.regions[0]
    given = split(operands, consts, carries)

    def step(carry: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[Any, Any]:
        outputs = ctx.lower_region(body, [*given.consts, *carry, *x], loop=True)
        return tuple(outputs[:carries]), tuple(outputs[carries:])

    turns = ctx.dim(length)
    if isinstance(turns, int):
        final, stacked = lax.scan(step, given.carries, given.xs, length=turns, **how)
    else:  # in an artifact for any size
        types = [
            jax.ShapeDtypeStruct(ctx.shape(t.type.shape), t.type.dtype)
            for t in ctx.node.outputs[carries:]
        ]
        final, stacked = _scan_of_open_length(step, given, types, turns, reverse=how["reverse"])
    return (*final, *stacked)


def _scan_of_open_length(
    step: Callable[..., Any], given: Parts, types: Sequence[Any], turns: Any, *, reverse: bool
) -> tuple[Any, Any]:
    """`lax.scan`, which wants to know the number of turns, as a `while` loop.

    JAX refuses an index into an axis that may have no rows, such as one of `n - 1`. Such axes get
    one more row.

    Args:
        types: of the stacked results.
        turns: JAX's symbolic size.
    """
    more = 0 if _is_positive(turns) else 1
    xs = [_with_rows(x, more) for x in given.xs]
    room = [_with_rows(jnp.zeros(each.shape, each.dtype), more) for each in types]
    last = jnp.asarray(turns) - 1

    def turn(state: tuple[Any, ...]) -> tuple[Any, ...]:
        number, carries, ys = state
        place = last - number if reverse else number
        x = tuple([lax.dynamic_index_in_dim(each, place, keepdims=False) for each in xs])
        carries, y = step(carries, x)
        pairs = zip(ys, y, strict=True)
        ys = tuple([lax.dynamic_update_index_in_dim(all_, each, place, 0) for all_, each in pairs])
        return number + 1, carries, ys

    start = jnp.zeros_like(last), tuple(given.carries), tuple(room)
    _, final, stacked = lax.while_loop(lambda state: state[0] <= last, turn, start)
    return final, [lax.slice_in_dim(y, 0, turns) if more else y for y in stacked]


def _is_positive(size: Any) -> bool:
    """Whether JAX can tell that a symbolic size is at least 1."""
    try:
        return bool(size >= 1)
    except Exception:  # its error is not public
        return False


def _with_rows(x: Any, more: int) -> Any:
    return jnp.concatenate([x, jnp.zeros((more, *x.shape[1:]), x.dtype)]) if more else x


SCAN = loop_operator(
    "Scan(*operands) -> *results",
    attrs={
        "length": Attr("dim"),
        "reverse": Attr("bool", default=False),
        "unroll": at_least(
            1,
            "be the number of iterations that the compiled loop makes at once, at least 1",
            default=1,
        ),
    },
    infer=_infer_scan,
    lower=_lower_scan,
    gradient=scan_gradient,
    doc="A loop over the leading axis of the xs: the body takes (consts, carries, slices of the "
    "xs) and returns (carries, ys). The results are the final carries and the stacked ys.",
)


def scan(
    f: Callable[[TensorTree, TensorTree], tuple[TensorTree, TensorTree]],
    init: TensorTree,
    xs: TensorTree = None,
    *,
    length: Dim | None = None,
    reverse: bool = False,
    unroll: int = 1,
    name: str | None = None,
) -> tuple[TensorTree, TensorTree]:
    """Repeats `carry, y = f(carry, x)` over the leading axis of `xs`.

    Args:
        f: called once, with tensors, to build the body. It may use outer tensors and variables.
            Variables that it assigns are carried from iteration to iteration.
        init: a nest (tuples, lists, dicts) of tensors. The carry keeps its types.
        xs: a nest of tensors with the same leading size, or None with `length`.
        reverse: iterates from the last slice to the first. ys keep the positions of their xs.
        unroll: the number of iterations that the compiled loop makes at once. Larger numbers take
            longer to compile.

    Returns:
        The final carry and the stacked ys.

    Raises:
        ShapeError: lengths differ, or the carry changes its type.
        AttributeValueError: `f` does not return (carry, y), or the length is missing.

    Examples:
        >>> run(gc.scan(lambda total, x: (total + x, total), 0, gc.constant([1, 2, 3])))
        (Array(6, dtype=int32), Array([0, 1, 3], dtype=int32))
    """
    check_body("scan: f", f, 2)
    init_leaves, init_tree = jax.tree.flatten(init)
    x_leaves, x_tree = jax.tree.flatten(xs)
    first = [convert(leaf) for leaf in init_leaves]
    outer_xs = [convert(leaf) for leaf in x_leaves]
    options = {"length": _scan_length(outer_xs, length), "reverse": reverse, "unroll": unroll}
    y_tree: Any = None

    def step(taken: Sequence[Tensor]) -> list[Any]:
        nonlocal y_tree
        carry, slices = taken[: len(first)], taken[len(first) :]
        out = f(jax.tree.unflatten(init_tree, carry), jax.tree.unflatten(x_tree, slices))
        new_carry, y_leaves, y_tree = _body_results(out, init_tree)
        return [*new_carry, *y_leaves]

    results = _emit_scan(step, first, outer_xs, name, options)
    final, stacked = results[: len(first)], results[len(first) :]
    return jax.tree.unflatten(init_tree, final), jax.tree.unflatten(y_tree, stacked)


def _emit_scan(
    step: Callable[[Sequence[Tensor]], list[Any]],
    first: Sequence[Tensor],
    xs: Sequence[Tensor],
    name: str | None,
    options: Mapping[str, Any],
) -> Sequence[Tensor]:
    """The results of a Scan node whose body is traced from `step`."""
    graph = graph_of([*first, *xs])
    parameters = numbered("carry", (t.type for t in first))
    parameters += numbered("x", (slice_type(t.type) for t in xs))
    with building(graph):
        body = trace(name or "scan_body", parameters, step)
        operands = [*body.captured, *first, *xs]
        attrs = {"consts": len(body.captured), "carries": len(first), **options}
        node = emit_node(SCAN, operands, name=name, regions=(body.region(),), **attrs)
    if has_writes(node.regions[0]):
        graph.last_reads.clear()
    return node.outputs


def _scan_length(xs: Sequence[Tensor], length: Dim | None) -> Dim:
    for x in xs:
        if x.ndim == 0:
            raise ShapeError.here(
                "scan: xs need a leading axis to scan over, got a scalar",
                hint="gc.expand_dims(x, 0) makes one slice of it; constants need not be in xs",
            )
    if length is None and not xs:
        raise AttributeValueError.here(
            "scan: without xs, give length=",
            hint="gc.scan(f, init, length=10) calls f with None for x",
        )
    return length if length is not None else xs[0].shape[0]


def _body_results(out: Any, init_tree: Any) -> tuple[list[Any], list[Any], Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise AttributeValueError.here(
            f"scan: the body must return (carry, y), got {type(out).__name__}",
            hint="if there is no y, return carry, None",
        )
    leaves, tree = jax.tree.flatten(out[0])
    check_nest("scan", init_tree, tree)
    y_leaves, y_tree = jax.tree.flatten(out[1])
    return leaves, y_leaves, y_tree


def map_fn(
    f: Callable[[TensorTree], TensorTree], xs: TensorTree, *, name: str | None = None
) -> TensorTree:
    """Applies `f` to each slice of `xs` along their leading axis, one after the other, and stacks
    the results.

    Args:
        f: called once, with tensors, to build the body. It may use outer tensors and variables.
        xs: a nest (tuples, lists, dicts) of tensors with the same leading size.

    Raises:
        ShapeError: lengths differ, or there is no leading axis.
        AttributeValueError: there are no xs.

    Source: jax.lax.map.

    Examples:
        >>> run(gc.map_fn(lambda row: row / gc.sum(row), gc.constant([[1.0, 3.0], [2.0, 2.0]])))
        Array([[0.25, 0.75],
               [0.5 , 0.5 ]], dtype=float32)
    """
    check_body("map_fn: f", f, 1)
    return scan(lambda carry, x: (carry, f(x)), (), xs, name=name)[1]


OPS: tuple[OpDef, ...] = (SCAN,)
