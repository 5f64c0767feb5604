"""Loops that end when a condition says so: `while_loop`, `fori_loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from graphc.errors import AttributeValueError, DTypeError, GradientError, GraphcError, GraphError
from graphc.ir.dims import Dim, DimExpr
from graphc.ir.dtypes import BOOL, INT32, is_integer
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, Effects, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.program import effects_of, region
from graphc.ir.scopes import building
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import arange
from graphc.ops.control.bodies import (
    Body,
    Parts,
    assigned_in,
    close_body,
    has_writes,
    open_body,
    split,
)
from graphc.ops.control.loops import infer_loop, layout_loop, prune_loop, thread_loop
from graphc.ops.control.scan import scan
from graphc.ops.control.scan_gradient import BackwardScan
from graphc.ops.core.checks import refuse
from graphc.ops.core.cost_rules import every_iteration
from graphc.ops.core.emit import constant, convert, emit_node, graph_of, to_dtype
from graphc.ops.elementwise.comparison import less, logical_and, not_equal
from graphc.ops.structure.state import dim_value, read

__all__ = ["fori_loop", "while_loop"]

_PLACE = TensorType(INT32, ())
_TRUTH = TensorType(BOOL, ())


def _infer_while(
    ctx: InferContext,
    *types: TensorType,
    consts: int,
    carries: int,
    length: Dim | None,
    step: int,
) -> tuple[TensorType, ...]:
    given = split(types, consts, carries)
    body, condition = ctx.regions
    truths = [t.type for t in condition.output_tensors()]
    ctx.require(
        truths == [_TRUTH],
        f"the condition must give one bool, got {', '.join(map(str, truths))}",
        dtype=len(truths) == 1 and truths[0].shape == (),
    )
    if any(effects_of(node) & ~Effects.READ for node in condition.nodes):
        ctx.fail(
            "the condition assigns, draws or calls back",
            hint="do so in the body, and carry what the condition needs of it",
            error=GraphError,
        )
    if length is None:
        stackless = not given.xs and len(body.outputs) == carries
        ctx.require(stackless, "xs and ys need a length")
        return infer_loop(ctx, given, 0)
    ctx.require(given.carries[:1] == (_PLACE,), "carry 0 must be the place, an i32[]")
    return infer_loop(ctx, given, length, own=1)


def _lower_while(
    ctx: LowerContext,
    *operands: Any,
    consts: int,
    carries: int,
    length: Dim | None,
    step: int,
) -> tuple[Any, ...]:
    body, condition = ctx.node.regions
    given = split(operands, consts, carries)
    stacks = tuple(
        lax.full(ctx.shape(t.type.shape), 0, t.type.dtype) for t in ctx.node.outputs[carries:]
    )

    def holds(state: tuple[Any, Any]) -> Any:
        (truth,) = ctx.lower_region(condition, [*given.consts, *state[0]], loop=True)
        return truth

    def turn(state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, stacks = state
        slices = [lax.dynamic_index_in_dim(x, carry[0], keepdims=False) for x in given.xs]
        results = ctx.lower_region(body, [*given.consts, *carry, *slices], loop=True)
        written = [
            lax.dynamic_update_index_in_dim(stack, y, carry[0], axis=0)
            for stack, y in zip(stacks, results[carries:], strict=True)
        ]
        return tuple(results[:carries]), tuple(written)

    final, stacks = lax.while_loop(holds, turn, (given.carries, stacks))
    return (*final, *stacks)


def while_gradient(
    ctx: GradientContext, node: Node, *adjoints: Tensor | None
) -> list[Tensor | None]:
    """A loop that visits the turns made, the last one first: it costs as many, not the most.

    Raises:
        GradientError: it is not known how many turns there may be.
    """
    if node.attrs["length"] is None:
        raise GradientError(
            f"no gradient through {node.name!r}: nothing says how many trips it makes at most, "
            "and what its body computes must be kept for each one",
            source=node.source,
            hint="give max_trip_count=; or gc.stop_gradient of what the loop takes",
        )
    graph = graph_of(node.inputs)
    node = graph.node(node.name)  # it may have been given more results meanwhile
    return _BackwardWhile(ctx, graph, node, adjoints).build()


class _BackwardWhile(BackwardScan):
    """The backward loop of a `While`: another one, whose place goes the other way."""

    def loop(self, inside: Parts, outside: Parts, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        child, step = self.child, self.node.attrs["step"]
        start = self.node.outputs[0] - step
        stop = self.outer.carries[0] - step
        with building(child):
            place = child.add_input(start.type, "place")
            following = place - step
        with building(Graph(name=f"{child.name}_condition", parent=self.graph)) as condition:
            here = condition.add_input(start.type, "place")
            going = not_equal(here, stop)
        (stop_arg,) = condition.captures.values()
        unused = [[Tensor(t.type, t.name) for t in ts] for ts in (inside.consts, inside.carries)]
        regions = (
            region(
                child.name,
                [Tensor(stop.type, "stop"), *inside.consts, place, *inside.carries, *inside.xs],
                child.nodes,
                [following, *outputs],
            ),
            region(
                condition.name,
                [stop_arg, *unused[0], here, *unused[1]],
                condition.nodes,
                [going],
            ),
        )
        attrs = {
            "consts": 1 + len(outside.consts),
            "carries": 1 + len(outside.carries),
            "length": self.node.attrs["length"],
            "step": -step,
        }
        operands = [stop, *outside.consts, start, *outside.carries, *outside.xs]
        return emit_node(self.node.op, operands, regions=regions, **attrs).outputs[1:]


WHILE = OpDef(
    name="While",
    signature="*operands -> *results",
    precision="wide",
    attrs={
        "consts": Attr("int", doc="how many operands are the same in each trip"),
        "carries": Attr("int", doc="how many are carried from one to the next"),
        "length": Attr("dim", default=None, doc="how many trips xs and ys have room for"),
        "step": Attr(
            "int",
            default=1,
            check=lambda step: step in (1, -1),
            must="be 1 or -1",
            doc="how the place goes on from trip to trip",
        ),
    },
    infer=_infer_while,
    lower=_lower_while,
    gradient=while_gradient,
    layout=layout_loop,
    thread_state=thread_loop,
    prune_outputs=prune_loop,
    cost=every_iteration,
    doc="A loop that goes on while its condition, the second region, says so: it takes (consts, "
    "carries). The first one, the body, takes (consts, carries, slices of the xs) and gives "
    "(carries, ys). Where there is a length, carry 0 is the place at which a trip takes its "
    "slices and leaves its ys; stacked ys are zeros where no trip was. Source: "
    "jax.lax.while_loop.",
)


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    *,
    max_trip_count: Dim | None = None,
    name: str | None = None,
) -> Any:
    """Loops `carry = body(carry)` while `cond(carry)` is true; gives the last carry.

    Args:
        cond: called once, with tensors; gives a bool scalar. It may use outer tensors, and read
            variables, those too that the body assigns.
        body: called once, with tensors, to build the body. Outer tensors and variables may be
            used in it; variables assigned in it are carried from trip to trip.
        init: a nest (tuples, lists, dicts) of tensors; the carry keeps its types.
        max_trip_count: the loop ends after so many trips at the latest. Only then it can be
            differentiated: what the body computes is kept for so many. The backward loop makes
            as many trips as the forward one did.

    Raises:
        ShapeError, DTypeError: the carry changes its type, or `cond` does not give a bool.
        GraphError: `cond` assigns a variable or draws random numbers.
        AttributeValueError: `max_trip_count` is not a size.

    Source: jax.lax.while_loop.
    """
    tree = jax.tree.structure(init)

    def turn(carry: Any) -> Any:
        after = body(carry)
        _check_nest(tree, jax.tree.structure(after))
        return after

    if max_trip_count is None:
        return _add_while(cond, turn, init, None, name)
    _check_trips(max_trip_count)

    def holds(state: tuple[Tensor, Any]) -> Tensor:
        return logical_and(cond(state[1]), less(state[0], dim_value(max_trip_count)))

    state = (constant(0), init)
    return _add_while(holds, lambda s: (s[0] + 1, turn(s[1])), state, max_trip_count, name)[1]


def _add_while(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    length: Dim | None,
    name: str | None,
) -> Any:
    """Traces both functions and adds the node; with a length, the first leaf is the place."""
    leaves, tree = jax.tree.flatten(init)
    first = [convert(leaf) for leaf in leaves]
    graph = graph_of(first)
    with building(graph):
        with open_body(name or "while_body") as inside:
            taken = [inside.add_input(t.type, f"carry{i}") for i, t in enumerate(first)]
            results = jax.tree.leaves(body(jax.tree.unflatten(tree, taken)))
            turn = close_body(inside, [convert(leaf) for leaf in results], read)
        with open_body(f"{name or 'while'}_condition") as looking:
            seen = [looking.add_input(t.type, f"carry{i}") for i, t in enumerate(first)]
            truth = convert(cond(jax.tree.unflatten(tree, seen)))
            condition = close_body(looking, [truth], read, assigned=assigned_in(inside))
        consts, (turn_consts, condition_consts) = _united(turn, condition)
        regions = (
            region(inside.name, [*turn_consts, *taken], inside.nodes, turn.results),
            region(looking.name, [*condition_consts, *seen], looking.nodes, condition.results),
        )
        counts = {"consts": len(consts), "carries": len(first), "length": length}
        node = emit_node(WHILE, [*consts, *first], name=name, regions=regions, **counts)
    if has_writes(node.regions[0]):
        graph.last_reads.clear()
    return jax.tree.unflatten(tree, node.outputs)


def _united(*bodies: Body) -> tuple[list[Tensor], list[list[Tensor]]]:
    """What the bodies capture together, and for each of them the inputs that stand for it."""
    outer = list(dict.fromkeys(t for body in bodies for t in body.captured))
    inner = []
    for body in bodies:
        own = dict(zip(body.captured, body.inner, strict=True))
        inner.append([own[t] if t in own else Tensor(t.type, t.name) for t in outer])
    return outer, inner


def _check_trips(count: Any) -> None:
    if not isinstance(count, DimExpr) and (type(count) is not int or count < 1):
        refuse(
            f"while_loop: max_trip_count must be a positive int or a named size, got {count!r}",
            error=AttributeValueError,
        )


def _check_nest(before: Any, after: Any) -> None:
    if before != after:
        raise GraphcError(
            f"while_loop: the carry is {before} going in and {after} coming out",
            source=current_source(),
            hint="return a carry of the same nest as init",
        )


def fori_loop(
    lower: Any,
    upper: Any,
    body: Callable[[Tensor, Any], Any],
    init: Any,
    *,
    max_trip_count: Dim | None = None,
    name: str | None = None,
) -> Any:
    """Loops `carry = body(i, carry)` for `i` from `lower` to before `upper`; gives the last carry.

    Args:
        lower, upper: ints or named sizes, and the loop is a `scan`; or integer scalars that the
            graph computes, and it is a `while_loop`.
        body: called once, with `i` as an int32 scalar, to build the body.
        init: a nest of tensors; the carry keeps its types.
        max_trip_count: as for `while_loop`, if the graph computes a bound.

    Raises:
        ShapeError, DTypeError: the carry changes its type, or a bound is no integer scalar.

    Source: jax.lax.fori_loop.
    """
    first, end = _as_size(lower), _as_size(upper)
    if first is not None and end is not None:
        length = end - first
        count = max(length, 0) if isinstance(length, int) else length
        places = arange(count) + dim_value(first)
        return scan(lambda carry, i: (body(i, carry), None), init, places, name=name)[0]
    start, stop = _bound(lower), _bound(upper)
    _, result = while_loop(
        lambda state: less(state[0], stop),
        lambda state: (state[0] + 1, body(state[0], state[1])),
        (start, init),
        max_trip_count=max_trip_count,
        name=name,
    )
    return result


def _as_size(bound: Any) -> Dim | None:
    """The bound where it is known while the graph is built, else None."""
    if isinstance(bound, DimExpr):
        return bound
    return int(bound) if isinstance(bound, (int, np.integer)) else None


def _bound(value: Any) -> Tensor:
    size = _as_size(value)
    if size is not None:
        return dim_value(size)
    tensor = convert(value)
    if tensor.ndim != 0 or not is_integer(tensor.dtype):
        refuse(
            f"fori_loop: a bound must be an integer scalar, got {tensor.type}",
            error=DTypeError,
            bound=tensor,
        )
    return to_dtype(tensor, INT32)


OPS: tuple[OpDef, ...] = (WHILE,)
