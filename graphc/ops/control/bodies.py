"""Bodies of region operators: traced from functions, closed into programs, inlined, pruned."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from graphc.errors import ArgumentError, AttributeValueError, GraphcError
from graphc.ir.dims import Dim
from graphc.ir.graph import Graph
from graphc.ir.layouts import Layout, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Effects, InferContext
from graphc.ir.program import Program, effects_of, is_pure, region, walk
from graphc.ir.rewrite import substitute, used_from
from graphc.ir.scopes import AMBIENT, building
from graphc.ir.types import TensorType
from graphc.ops.core.emit import convert
from graphc.ops.structure.state import read as read_variable

Read = Callable[[Any], Tensor]


class Carry(NamedTuple):
    """A value that `functionalize` carries through the iterations of a body.

    `variable` names the variable whose value it is, or is None for an iteration counter.
    """

    variable: str | None
    initial: Tensor  # outside
    inner: Tensor  # the body's new input
    following: Tensor  # the body's new output


class Invariant(NamedTuple):
    """A value from outside that becomes a new input of a body."""

    outer: Tensor
    inner: Tensor
    variable: str | None  # the variable whose value it is; None for the run's key


class ThreadedBody(NamedTuple):
    """A body made pure, and what it takes in addition to its own inputs."""

    body: Program
    invariants: list[Invariant]
    carries: list[Carry]


class Body(NamedTuple):
    """A closed body.

    Attributes:
        graph: holds its nodes.
        parameters: its own inputs.
        results: the tensors that it returns.
        captured: the outer tensors that it uses.
        inner: the inputs that represent them in the body.
    """

    graph: Graph
    parameters: list[Tensor]
    results: list[Tensor]
    captured: list[Tensor]
    inner: list[Tensor]

    def region(self, inputs: Sequence[Tensor] | None = None) -> Program:
        """The body as a program. By default, it takes the captured values and its parameters."""
        if inputs is None:
            inputs = [*self.inner, *self.parameters]
        return region(self.graph.name, inputs, self.graph.nodes, self.results)


class Parts(NamedTuple):
    """The operands or region inputs of a loop, by role."""

    consts: tuple[Any, ...]
    carries: tuple[Any, ...]
    xs: tuple[Any, ...]

    def all(self) -> list[Any]:
        """The items in order."""
        return [*self.consts, *self.carries, *self.xs]


def split(items: Sequence[Any], consts: int, carries: int) -> Parts:
    """`items` by role: the first `consts`, the next `carries`, and the xs."""
    items = tuple(items)
    return Parts(items[:consts], items[consts : consts + carries], items[consts + carries :])


def parts_of(loop: Node, items: Sequence[Any]) -> Parts:
    """Operands of a loop, or inputs of one of its regions, by role."""
    return split(items, loop.attrs["consts"], loop.attrs["carries"])


# The form of functions whose arguments have different roles.
_FORMS = {
    "while_loop: cond": "write lambda carry: ..., for a carry in the form of init, such as (i, x)",
    "while_loop: body": "write lambda carry: ..., for a carry in the form of init, such as (i, x)",
    "scan: f": "write lambda carry, x: (carry, y), for a slice x of xs",
    "fori_loop: body": "write lambda i, carry: carry, with the number i of the iteration",
}


def check_body(label: str, f: object, count: int) -> None:
    """Raises unless `f` is a function that takes `count` arguments.

    Raises:
        AttributeValueError: it is not a function.
        ArgumentError: it takes another number of arguments.
    """
    if not callable(f):
        raise AttributeValueError.here(
            f"{label} must be a function, got {f!r}",
            hint="write `lambda: tensor`; gc.where chooses between tensors"
            if count == 0
            else "pass the function, not what it returns",
        )
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):  # one written in C
        return
    try:
        signature.bind(*[None] * count)
    except TypeError:
        given = "1 argument" if count == 1 else f"{count} arguments"
        raise ArgumentError.here(
            f"{label} is called with {given}, but takes {signature}",
            hint=_FORMS.get(label)
            or f"write lambda {', '.join('abcdefghijklmnop'[:count])}: ...".replace(" :", ":"),
        ) from None


@contextmanager
def open_body(name: str) -> Iterator[Graph]:
    """Enters a new child of the current graph."""
    with building(Graph(name=name, parent=AMBIENT.graphs[-1])) as child:
        yield child


def close_body(
    child: Graph, results: Sequence[Tensor], read: Read, assigned: Collection[str] = ()
) -> Body:
    """Ends a body: results from outside are captured, and reads are moved outside.

    A variable that the body only reads is read once outside. So it is an operand like any other,
    and gradients with respect to it pass through. This does not apply to the variables `assigned`
    elsewhere in the loop.
    """
    results = [child.adopt(t) for t in results]
    parameters = child.inputs[: len(child.inputs) - len(child.captures)]
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
    captures = child.captures
    return Body(child, parameters, results, list(captures), list(captures.values()))


def trace(
    name: str,
    parameters: Iterable[tuple[str, TensorType]],
    f: Callable[[list[Tensor]], Iterable[Any]],
    read: Read = read_variable,
    assigned: Collection[str] = (),
) -> Body:
    """The body that `f` builds from the named parameters in a child of the current graph."""
    with open_body(name) as child:
        taken = [child.add_input(type, own) for own, type in parameters]
        return close_body(child, [convert(result) for result in f(taken)], read, assigned)


def shown_nest(tree: Any) -> str:
    """A tree of JAX as its nest, for errors: `(x, {'a': x})`."""
    return str(tree).removeprefix("PyTreeDef(").removesuffix(")").replace("*", "x")


def check_nest(function: str, before: Any, after: Any) -> None:
    """Raises `GraphcError` if a body of `function` returns a carry of another nest."""
    if before != after:
        raise GraphcError.here(
            f"{function}: the carry is {shown_nest(before)} before the body and "
            f"{shown_nest(after)} after it",
            hint="return a carry of the same nest as init",
        )


def numbered(prefix: str, types: Iterable[TensorType]) -> list[tuple[str, TensorType]]:
    """Parameters named `x0`, `x1`, ... for `trace`."""
    return [(f"{prefix}{i}", type) for i, type in enumerate(types)]


def united(bodies: Sequence[Body]) -> tuple[list[Tensor], list[list[Tensor]]]:
    """All tensors that the bodies capture, and for each body the inputs that represent them."""
    outer = list(dict.fromkeys(t for body in bodies for t in body.captured))
    known = [dict(zip(body.captured, body.inner, strict=True)) for body in bodies]
    return outer, [[own[t] if t in own else fresh(t) for t in outer] for own in known]


def assigned_in(body: Graph) -> set[str]:
    """The variables that the body's nodes assign, also in their regions."""
    return {
        inside.attrs["variable"]
        for node in body.nodes
        for inside in walk(node)
        if inside.op.effects & Effects.WRITE
    }


def check_taken(ctx: InferContext, given: Sequence[TensorType], region: int = 0) -> None:
    """Requires that the node's body `region` takes values of the types `given`."""
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
    """Copies the nodes of `body` into `graph`, with `args` instead of its inputs. Returns the map
    from the body's tensors to their copies."""
    copies: dict[Tensor, Tensor] = dict(zip(body.input_tensors(), args, strict=True))
    for node in body.nodes:
        inputs = [copies[t] for t in node.inputs]
        new = graph.add(node.op, inputs, node.attrs, node.regions, node.op.name)
        copies.update(zip(node.outputs, new.outputs, strict=True))
    return copies


def prune_regions(
    node: Node, used: set[Tensor], leading: str | None = None, carries: int = 0
) -> Node:
    """The node without results that are not in `used`, and operands that no region needs then.

    Args:
        leading: the attribute that counts the first operands.
        carries: how many operands after those are carried, and how many results are final carries.
            They stay. All results of the other regions of a loop stay, too.
    """
    first = len(node.inputs) - len(node.regions[0].inputs)  # operands that choose the body
    held = range(node.attrs[leading], node.attrs[leading] + carries) if leading else range(0)
    kept = [i for i, tensor in enumerate(node.outputs) if i < carries or tensor in used]
    results, nodes, needed = [], [], set(held)
    for number, body in enumerate(node.regions):
        own = body.output_tensors()
        if leading is None or not number:
            own = [own[i] for i in kept]
        results.append(own)
        nodes.append(used_from(body.nodes, own, keep=lambda inner: not is_pure(inner)))
        used_inside = {t for inner in nodes[-1] for t in inner.inputs}.union(own)
        needed.update(i for i, t in enumerate(body.input_tensors()) if t in used_inside)
    if len(kept) == len(node.outputs) and len(needed) == len(node.regions[0].inputs):
        return node
    taken = sorted(needed)
    regions = [
        region(body.name, [body.inputs[i].tensor for i in taken if i < len(body.inputs)], left, own)
        for body, left, own in zip(node.regions, nodes, results, strict=True)
    ]
    count = {leading: sum(i < held.start for i in taken)} if leading else {}
    return node.replace(
        inputs=(*node.inputs[:first], *(node.inputs[first + i] for i in taken)),
        outputs=tuple(node.outputs[i] for i in kept),
        attrs={**node.attrs, **count},
        regions=tuple(regions),
    )


def slice_type(type: TensorType) -> TensorType:
    """The type of `x[i]`."""
    return TensorType(type.dtype, type.shape[1:])


def stacked_type(type: TensorType, length: Dim) -> TensorType:
    """The type of `length` values of a type, stacked along a new leading axis."""
    return TensorType(type.dtype, (length, *type.shape))


def shifted(layout: Layout, by: int) -> Layout:
    """The layout after `by` leading axes are added or, if `by` is negative, removed."""
    return Sharded(layout.axis + by) if isinstance(layout, Sharded) else layout


def fresh(tensor: Tensor) -> Tensor:
    """A new tensor of the same type and name."""
    return Tensor(tensor.type, tensor.name)
