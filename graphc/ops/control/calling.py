"""One body with several callers: `function`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax

from graphc.errors import GraphError
from graphc.ir.dtypes import INT32
from graphc.ir.graph import Graph
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan
from graphc.ir.node import Node, Tensor, is_among, position_of
from graphc.ir.opdef import Effects, GradientContext, InferContext, OpDef
from graphc.ir.program import Program, effects_of, region
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.ops.control.backward import differentiate
from graphc.ops.control.bodies import (
    ThreadedBody,
    check_taken,
    close_body,
    has_writes,
    open_body,
    prune_regions,
)
from graphc.ops.control.branch_bodies import thread_bodies
from graphc.ops.core.checks import refuse
from graphc.ops.core.cost_rules import once
from graphc.ops.core.defining import define
from graphc.ops.core.emit import constant, convert, emit_node, graph_of
from graphc.ops.structure.state import read

__all__ = ["function"]


def _infer_call(ctx: InferContext, *types: TensorType) -> tuple[TensorType, ...]:
    check_taken(ctx, types)
    return tuple(t.type for t in ctx.regions[0].output_tensors())


def _layout_call(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """The body takes its operands in their layouts. Callers with equal layouts still share it."""
    body = node.regions[0]
    local, results = ctx.replicate_region(body, operands, [None] * len(body.outputs))
    return LayoutPlan(operands, results, regions=(local,))


def _thread_call(node: Node, bodies: Sequence[ThreadedBody]) -> tuple[Node, dict[str, Tensor]]:
    """A body that draws takes a number as its first operand, different for each caller."""
    draws = any(carry.variable is None for carry in bodies[0].carries)
    return thread_bodies(node, bodies, node.inputs[0] if draws else None)


class _Derivative(NamedTuple):
    """The two bodies of a differentiated call."""

    forward: Program  # returns what the other one needs as additional results
    backward: Program
    inputs: list[int]  # the operands that the backward body takes
    saved: list[int]  # the forward results that it takes after the adjoints
    reached: list[int]  # the operands whose adjoints it returns


def call_gradient(
    ctx: GradientContext, node: Node, *adjoints: Tensor | None
) -> list[Tensor | None]:
    """A call of the backward side of the body, over values that the forward call saved."""
    graph = graph_of(node.inputs)
    node = graph.node(node.name)  # it may have additional results by now
    flowing = {i: adjoint for i, adjoint in enumerate(adjoints) if adjoint is not None}
    key = ("derivative", node.regions[0], tuple(flowing))
    if key not in graph.memo:
        graph.memo[key] = _derivative(ctx, graph, node.regions[0], list(flowing))
    found: _Derivative = graph.memo[key]
    results: list[Tensor | None] = [None] * len(node.inputs)
    if not found.reached:
        return results
    node = _with_body(graph, node, found.forward)
    backward = emit_node(
        node.op,
        [
            *(node.inputs[i] for i in found.inputs),
            *flowing.values(),
            *(node.outputs[i] for i in found.saved),
        ],
        regions=(found.backward,),
    )
    for i, tensor in zip(found.reached, backward.outputs, strict=True):
        results[i] = tensor
    return results


def _derivative(
    ctx: GradientContext, graph: Graph, body: Program, flowing: list[int]
) -> _Derivative:
    side = differentiate(ctx, graph, body, flowing)
    results = side.forward.output_tensors()
    results += [t for t in side.saved if not is_among(t, results)]
    forward = region(body.name, body.input_tensors(), side.forward.nodes, results)
    taken = [*side.inputs.values(), *side.adjoints, *side.saved.values()]
    gradients = list(side.gradients.values())
    backward = region(f"{body.name}_grad", taken, side.nodes, gradients)
    saved = [position_of(t, results) for t in side.saved]
    return _Derivative(forward, backward, list(side.inputs), saved, list(side.gradients))


def _with_body(graph: Graph, node: Node, body: Program) -> Node:
    """The call with a body that returns additional results."""
    added = body.output_tensors()[len(node.outputs) :]
    if not added:
        return node
    results = [Tensor(t.type, f"{node.name}:saved") for t in added]
    changed = node.replace(outputs=(*node.outputs, *results), regions=(body,))
    graph.replace_node(node, changed)
    return changed


CALL = define(
    "Call(*operands) -> *results",
    precision="wide",
    infer=_infer_call,
    lower=lambda ctx, *operands: tuple(ctx.call_region(ctx.node.regions[0], operands)),
    gradient=call_gradient,
    layout=_layout_call,
    thread_state=_thread_call,
    prune_outputs=prune_regions,
    cost=once,
    doc="The results of its region, which takes all operands. Callers with the same region share "
    "one trace and one lowering of it. A body that draws takes the caller's number, an int32 "
    "scalar, as its first operand. Source: jax.jit.",
)


def function(f: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """`f` as one body with several callers: traced once for all calls with operands of the same
    types.

    Args:
        f: a function of nests (tuples, lists, dicts) of tensors that returns such a nest. It is
            traced at the first call in a graph with operands of new types. It may use outer
            tensors, and read and assign variables. A variable has the value that it has where the
            function is called. Each call has its own random streams.
        name: of the nodes; by default that of `f`.

    Returns:
        A function that adds a node which applies `f` to its operands. Also usable as a decorator:
        `@gc.function`.

    Raises:
        DTypeError: an operand is neither a tensor nor a number.
        GraphError: `f` calls itself.

    Source: jax.jit.

    Examples:
        >>> twice = gc.function(lambda x: x * 2)
        >>> run(twice(3) + twice(4))
        Array(14, dtype=int32)
    """
    own_name = name or getattr(f, "__name__", "function").strip("<>")
    hashable = _is_hashable(f)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        operands = [convert(leaf) for leaf in leaves]
        graph = graph_of(operands)
        # If `f` cannot be hashed, `call` stands for it. `call` refers to `f`, so no other function
        # can have the same identity while `call` exists.
        find = graph.constraints.find  # two names of one size are not two types
        key = (f if hashable else call, tree, tuple(t.type.map_dims(find) for t in operands))
        with building(graph):
            traced = graph.memo.get(key)
            if traced is _BEING_TRACED:
                refuse(
                    f"function: {own_name} calls itself",
                    error=GraphError,
                    hint="a graph has no recursion: use gc.scan or gc.while_loop",
                )
            if traced is None or not traced.is_visible_in(graph):
                traced = graph.memo[key] = _trace(f, own_name, operands, tree, key)
            inputs = [*traced.outer(graph), *operands]
            node = emit_node(CALL, inputs, name=own_name, regions=(traced.body,))
        if has_writes(traced.body):
            graph.last_reads.clear()
        return jax.tree.unflatten(traced.tree, node.outputs)

    return call


def _is_hashable(f: object) -> bool:
    try:
        hash(f)
    except TypeError:
        return False
    return True


_BEING_TRACED = object()


class _Traced(NamedTuple):
    """A function traced for operands of certain types."""

    body: Program  # its inputs: a number if it draws, the captured tensors, the operands
    draws: bool
    captured: list[Tensor | Variable]
    tree: Any  # the nest of its results

    def is_visible_in(self, graph: Graph) -> bool:
        """Whether everything that the body captures can be used in `graph`."""
        around = [graph]
        while (parent := around[-1].parent) is not None:
            around.append(parent)
        return all(isinstance(t, Variable) or t.graph in around for t in self.captured)

    def outer(self, graph: Graph) -> list[Tensor]:
        """The inputs that a new caller in `graph` passes to the body before the operands."""
        number = [constant(graph.next_draw())] if self.draws else []
        return [*number, *(read(t) if isinstance(t, Variable) else t for t in self.captured)]


def _trace(
    f: Callable[..., Any], name: str, operands: Sequence[Tensor], tree: Any, key: Hashable
) -> _Traced:
    reads: dict[Tensor, Variable] = {}

    def stand_in(variable: Variable) -> Tensor:
        """A placeholder for the value of a variable. Each caller reads the variable itself."""
        known = [tensor for tensor, other in reads.items() if other is variable]
        tensor = known[0] if known else Tensor(variable.type, variable.name)
        reads[tensor] = variable
        return tensor

    with open_body(name) as child:
        child.memo[key] = _BEING_TRACED
        try:
            parameters = [child.add_input(t.type, f"x{i}") for i, t in enumerate(operands)]
            args, kwargs = jax.tree.unflatten(tree, parameters)
            leaves, out_tree = jax.tree.flatten(f(*args, **kwargs))
            body = close_body(child, [convert(leaf) for leaf in leaves], stand_in)
        finally:
            del child.memo[key]
    draws = any(effects_of(node) & Effects.RANDOM for node in child.nodes)
    number = [Tensor(TensorType(INT32, ()), "number")] if draws else []
    inputs = [*number, *body.inner, *parameters]
    captured = [reads.get(t, t) for t in body.captured]
    return _Traced(region(name, inputs, child.nodes, body.results), draws, captured, out_tree)


OPS: tuple[OpDef, ...] = (CALL,)
