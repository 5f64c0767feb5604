"""Loops that end when a condition is false: `while_loop`, `fori_loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from graphc.errors import AttributeValueError, DTypeError, GradientError, GraphError
from graphc.ir.dims import Dim, DimExpr
from graphc.ir.dtypes import BOOL, INT32, is_integer
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, Effects, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.program import effects_of, region
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import arange
from graphc.ops.control.bodies import (
    Parts,
    assigned_in,
    check_body,
    check_nest,
    fresh,
    has_writes,
    numbered,
    split,
    trace,
    united,
)
from graphc.ops.control.loops import infer_loop, loop_operator
from graphc.ops.control.scan import scan
from graphc.ops.control.scan_gradient import BackwardScan
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import constant, convert, dim_value, emit_node, graph_of, to_dtype
from graphc.ops.elementwise.comparison import less, logical_and, not_equal
from graphc.typing import TensorLike, TensorTree

__all__ = ["fori_loop", "while_loop"]

_PLACE = TensorType(INT32, ())
_TRUTH = TensorType(BOOL, ())


def _infer_while(
    ctx: InferContext, *types: TensorType, consts: int, carries: int, length: Dim | None, step: int
) -> tuple[TensorType, ...]:
    given = split(types, consts, carries)
    body, condition = ctx.regions
    truths = [t.type for t in condition.output_tensors()]
    ctx.require(
        truths == [_TRUTH],
        f"the condition must return one bool, got {', '.join(map(str, truths))}",
        hint="reduce it with gc.any(...) or gc.all(...)"
        if len(truths) == 1 and truths[0].shape
        else "compare: lambda i: i < 10",
        dtype=len(truths) == 1 and truths[0].shape == (),
    )
    if any(effects_of(node) & ~Effects.READ for node in condition.nodes):
        ctx.fail(
            "the condition assigns a variable, draws random numbers or calls Python",
            hint="do so in the body, and carry the values that the condition needs",
            error=GraphError,
        )
    if length is None:
        stackless = not given.xs and len(body.outputs) == carries
        ctx.require(stackless, "xs and ys need a length")
        return infer_loop(ctx, given, 0)
    ctx.require(given.carries[:1] == (_PLACE,), "carry 0 must be the index, an i32[]")
    return infer_loop(ctx, given, length, own=1)


def _lower_while(
    ctx: LowerContext, *operands: Any, consts: int, carries: int, length: Dim | None, step: int
) -> tuple[Any, ...]:
    body, condition = ctx.node.regions
    given = split(operands, consts, carries)
    stacks = tuple(
        lax.full(ctx.shape(t.type.shape), 0, t.type.dtype) for t in ctx.node.outputs[carries:]
    )

    def holds(state: tuple[Any, Any]) -> Any:
        (truth,) = ctx.lower_region(condition, [*given.consts, *state[0]], loop=True)
        return truth

    def iterate(state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, stacks = state
        slices = [lax.dynamic_index_in_dim(x, carry[0], keepdims=False) for x in given.xs]
        results = ctx.lower_region(body, [*given.consts, *carry, *slices], loop=True)
        written = [
            lax.dynamic_update_index_in_dim(stack, y, carry[0], axis=0)
            for stack, y in zip(stacks, results[carries:], strict=True)
        ]
        return tuple(results[:carries]), tuple(written)

    final, stacks = lax.while_loop(holds, iterate, (given.carries, stacks))
    return (*final, *stacks)


def while_gradient(
    ctx: GradientContext, node: Node, *adjoints: Tensor | None
) -> list[Tensor | None]:
    """A loop over the iterations that were made, in reverse order.

    Raises:
        GradientError: the maximum number of iterations is not known.
    """
    if node.attrs["length"] is None:
        raise GradientError(
            f"no gradient through {node.name!r}: its maximum number of iterations is not known, "
            "and the values of each iteration must be stored",
            source=node.source,
            hint="pass max_trip_count=, or apply gc.stop_gradient to the inputs of the loop",
        )
    graph = graph_of(node.inputs)
    node = graph.node(node.name)  # another gradient may have added results
    return _BackwardWhile(ctx, graph, node, adjoints).build()


class _BackwardWhile(BackwardScan):
    """The backward loop of a `While`: another `While`, whose index goes in the other direction."""

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
        unused = [list(map(fresh, tensors)) for tensors in (inside.consts, inside.carries)]
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


WHILE = loop_operator(
    "While(*operands) -> *results",
    attrs={
        "length": Attr("dim", default=None, doc="the leading size of xs and ys"),
        "step": Attr(
            "int",
            default=1,
            check=lambda step: step in (1, -1),
            must="be 1 or -1",
            doc="what is added to the index in each iteration",
        ),
    },
    infer=_infer_while,
    lower=_lower_while,
    gradient=while_gradient,
    doc="A loop that continues while its condition, the second region, is true. The condition "
    "takes (consts, carries). The first region, the body, takes (consts, carries, slices of the "
    "xs) and returns (carries, ys). With a length, carry 0 is the index at which an iteration "
    "reads its slices and writes its ys. Stacked ys are zeros where there was no iteration. "
    "Source: jax.lax.while_loop.",
)


def while_loop(
    cond: Callable[[TensorTree], TensorLike],
    body: Callable[[TensorTree], TensorTree],
    init: TensorTree,
    *,
    max_trip_count: Dim | None = None,
    name: str | None = None,
) -> TensorTree:
    """Repeats `carry = body(carry)` while `cond(carry)` is true, and returns the final carry.

    Args:
        cond: called once, with tensors. Returns a bool scalar. It may use outer tensors and read
            variables, including those that the body assigns.
        body: called once, with tensors, to build the body. It may use outer tensors and variables.
            Variables that it assigns are carried from iteration to iteration.
        init: a nest (tuples, lists, dicts) of tensors. The carry keeps its types.
        max_trip_count: the maximum number of iterations. Gradients need it, because the values of
            each iteration are stored. The backward loop makes as many iterations as the forward
            loop did.

    Raises:
        ShapeError, DTypeError: the carry changes its type, or `cond` does not return a bool.
        GraphError: `cond` assigns a variable or draws random numbers.
        AttributeValueError: `max_trip_count` is not a size.

    Source: jax.lax.while_loop.

    Examples:
        >>> run(gc.while_loop(lambda x: x < 100, lambda x: x * 2, 3))
        Array(192, dtype=int32)
    """
    check_body("while_loop: cond", cond, 1)
    check_body("while_loop: body", body, 1)
    tree = jax.tree.structure(init)

    def checked(carry: Any) -> Any:
        after = body(carry)
        check_nest("while_loop", tree, jax.tree.structure(after))
        return after

    if max_trip_count is None:
        return _add_while(cond, checked, init, None, name)
    _check_trips(max_trip_count)

    def holds(state: tuple[Tensor, Any]) -> Tensor:
        return logical_and(cond(state[1]), less(state[0], dim_value(max_trip_count)))

    state = (constant(0), init)
    return _add_while(holds, lambda s: (s[0] + 1, checked(s[1])), state, max_trip_count, name)[1]


def _add_while(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    length: Dim | None,
    name: str | None,
) -> Any:
    """Traces both functions and adds the node. With a length, the first leaf is the index."""
    leaves, tree = jax.tree.flatten(init)
    first = [convert(leaf) for leaf in leaves]
    graph = graph_of(first)
    parameters = numbered("carry", (t.type for t in first))
    with building(graph):
        inside = trace(
            name or "while_body",
            parameters,
            lambda taken: jax.tree.leaves(body(jax.tree.unflatten(tree, taken))),
        )
        condition = trace(
            f"{name or 'while'}_condition",
            parameters,
            lambda taken: [cond(jax.tree.unflatten(tree, taken))],
            assigned=assigned_in(inside.graph),
        )
        bodies = (inside, condition)
        consts, inner = united(bodies)
        regions = tuple(
            [b.region([*own, *b.parameters]) for b, own in zip(bodies, inner, strict=True)]
        )
        counts = {"consts": len(consts), "carries": len(first), "length": length}
        node = emit_node(WHILE, [*consts, *first], name=name, regions=regions, **counts)
    if has_writes(node.regions[0]):
        graph.last_reads.clear()
    return jax.tree.unflatten(tree, node.outputs)


def _check_trips(count: Any) -> None:
    if not isinstance(count, DimExpr) and (type(count) is not int or count < 1):
        refuse(
            f"while_loop: max_trip_count must be a positive int or a named size, got {count!r}",
            error=AttributeValueError,
        )


def fori_loop(
    lower: TensorLike,
    upper: TensorLike,
    body: Callable[[Tensor, TensorTree], TensorTree],
    init: TensorTree,
    *,
    max_trip_count: Dim | None = None,
    name: str | None = None,
) -> TensorTree:
    """Repeats `carry = body(i, carry)` for `i` in [lower, upper), and returns the final carry.

    Args:
        lower, upper: with ints or named sizes, the loop is a `scan`. With integer scalars that the
            graph computes, it is a `while_loop`.
        body: called once, with `i` as an int32 scalar, to build the body.
        init: a nest of tensors. The carry keeps its types.
        max_trip_count: as for `while_loop`, if the graph computes a bound.

    Raises:
        ShapeError, DTypeError: the carry changes its type, or a bound is not an integer scalar.

    Source: jax.lax.fori_loop.

    Examples:
        >>> run(gc.fori_loop(0, 4, lambda i, total: total + i, 0))
        Array(6, dtype=int32)
    """
    check_body("fori_loop: body", body, 2)
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
    """The bound if it is known while the graph is built, else None."""
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
            hint='gc.cast(n, "int32") makes a number of iterations',
            bound=tensor,
        )
    return to_dtype(tensor, INT32)


OPS: tuple[OpDef, ...] = (WHILE,)
