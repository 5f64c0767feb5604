"""Bodies of region operators: traced from Python functions, closed into programs, inlined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.opdef import Effects, InferContext
from graphc.ir.program import Program, effects_of, region, walk
from graphc.ir.rewrite import substitute
from graphc.ir.scopes import AMBIENT, building
from graphc.ir.types import TensorType


class Carry(NamedTuple):
    """A value that `functionalize` carries through the iterations of a body.

    `variable` names the variable whose value it is, or is None for an iteration counter.
    """

    variable: str | None
    initial: Tensor  # outside
    inner: Tensor  # the body's new input
    following: Tensor  # the body's new output


class Invariant(NamedTuple):
    """A value from outside that a body newly takes as an input."""

    outer: Tensor
    inner: Tensor
    variable: str | None  # whose value it is; None for the run's key


class ThreadedBody(NamedTuple):
    """A body made pure, and what it now takes beside its own inputs."""

    body: Program
    invariants: list[Invariant]
    carries: list[Carry]


class Body(NamedTuple):
    """A closed body: its nodes, results, and the outer tensors it captured."""

    graph: Graph
    results: list[Tensor]
    captured: list[Tensor]  # outside
    inner: list[Tensor]  # the inputs that stand for them


class Parts(NamedTuple):
    """The operands or region inputs of a loop, by role."""

    consts: tuple[Any, ...]
    carries: tuple[Any, ...]
    xs: tuple[Any, ...]

    def all(self) -> list[Any]:
        """The items in order."""
        return [*self.consts, *self.carries, *self.xs]


def split(items: Sequence[Any], consts: int, carries: int) -> Parts:
    """`items` by role: so many constants, so many carries, and the xs."""
    items = tuple(items)
    return Parts(items[:consts], items[consts : consts + carries], items[consts + carries :])


@contextmanager
def open_body(name: str) -> Iterator[Graph]:
    """A child of the current graph, entered."""
    with building(Graph(name=name, parent=AMBIENT.graphs[-1])) as child:
        yield child


def close_body(
    child: Graph,
    results: Sequence[Tensor],
    read: Callable[[Any], Tensor],
    assigned: Collection[str] = (),
) -> Body:
    """Ends a body: results that come from outside are captured, reads hoisted.

    A variable that the body only reads is read once, outside: so it is an operand like any
    other, and gradients with respect to it pass through. Not so those `assigned` elsewhere in
    the loop.
    """
    results = [child.adopt(t) for t in results]
    assigned = {*assigned, *assigned_in(child)}
    kept = []
    same: dict[Tensor, Tensor] = {}  # a read -> the capture of the same value
    for node in child.nodes:
        if node.op.effects & Effects.READ and node.attrs["variable"] not in assigned:
            variable = child.root.variables[node.attrs["variable"]]
            inner = node.outputs[0]
            with building(child.parent or child.root):
                outer = read(variable)
            if outer in child.captures:
                same[inner] = child.captures[outer]
            else:
                child.inputs.append(inner)
                child.captures[outer] = inner
        else:
            kept.append(node)
    child.nodes = list(substitute(kept, same))
    results = [same.get(t, t) for t in results]
    return Body(child, results, list(child.captures), list(child.captures.values()))


def assigned_in(body: Graph) -> set[str]:
    """The variables that the body's nodes assign, in their regions too."""
    return {
        inside.attrs["variable"]
        for node in body.nodes
        for inside in walk(node)
        if inside.op.effects & Effects.WRITE
    }


def check_taken(ctx: InferContext, given: Sequence[TensorType], region: int = 0) -> None:
    """Requires that the node's body number `region` takes values of the types `given`."""
    taken = ctx.regions[region].input_tensors()
    ctx.require(
        len(taken) == len(given), f"the body takes {len(taken)} values, and gets {len(given)}"
    )
    for i, (own, tensor) in enumerate(zip(given, taken, strict=True)):
        other = tensor.type
        if own == other:
            continue
        ctx.require(
            own.dtype == other.dtype and own.rank == other.rank,
            f"the body takes {other} for value {i}, and gets {own}",
        )
        for a, b in zip(own.shape, other.shape, strict=True):
            ctx.unify(a, b, f"sizes of value {i} given to the body and taken by it")


def has_writes(body: Program) -> bool:
    """Whether a node of the body assigns a variable."""
    return any(effects_of(node) & Effects.WRITE for node in body.nodes)


def inline(graph: Graph, body: Program, args: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """Copies the nodes of `body` into `graph` with `args` for its inputs.

    Gives the map from the body's tensors to their copies.
    """
    copies: dict[Tensor, Tensor] = dict(zip(body.input_tensors(), args, strict=True))
    for node in body.nodes:
        inputs = [copies[t] for t in node.inputs]
        new = graph.add(node.op, inputs, node.attrs, node.regions, node.op.name)
        copies.update(zip(node.outputs, new.outputs, strict=True))
    return copies


def body_region(body: Body, parameters: Sequence[Tensor]) -> Program:
    """The region of a closed body: captures first, then `parameters`."""
    return region(body.graph.name, [*body.inner, *parameters], body.graph.nodes, body.results)


def slice_type(type: TensorType) -> TensorType:
    """The type of `x[i]`."""
    return TensorType(type.dtype, type.shape[1:])
