"""`Tensor` and `Node`: the two records that make up a graph and a program.

A tensor does not refer to its producer (as in a jaxpr). A pass replaces a node by another one with
the *same* result tensors, so no other node has to be rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import is_
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from graphc.copying import Uncopied
from graphc.errors import GraphError
from graphc.ir.foreign_members import MEMBERS
from graphc.ir.members import Missing
from graphc.ir.operand import Operand
from graphc.ir.source import Source
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.ir.graph import Graph
    from graphc.ir.opdef import OpDef
    from graphc.ir.program import Program


class Tensor(Operand):
    """One value of a graph or program: a type, a name (`hidden/MatMul:0`) and its graph.

    A tensor has no elements while the graph is built; `Session.run` computes them. It has the
    operators of Python and the methods of NumPy's arrays, which add nodes to the graph. Tensors
    are hashed by identity; `==` creates a node that compares elements.

    Attributes:
        type: the dtype and the shape.
        name: of the node, with the number of the result.
        graph: the graph; None for a tensor of a program.

    Examples:
        >>> x = gc.constant([[1.0, 2.0], [3.0, 4.0]], name="x")
        >>> x, x.shape, x.dtype.name, x.node.op.name
        (<Tensor x:0 f32[2, 2]>, (2, 2), 'float32', 'Constant')
        >>> run(x[0] * 2 + x.sum(axis=1))
        Array([ 5., 11.], dtype=float32)
    """

    __slots__ = ("__weakref__", "graph", "name", "type")

    name: str
    graph: Graph | None

    instead = (
        "send the graph, which can be pickled and copied, and find it there by its name: "
        "graph.tensor(name)"
    )

    def __init__(self, type: TensorType, name: str = "", graph: Graph | None = None) -> None:
        given: Any = type
        if given.__class__ is not TensorType:
            raise GraphError.here(
                f"a tensor is made by a function, not of {given!r}",
                hint="gc.constant(value) holds a value, gc.placeholder(shape) is fed",
            )
        _set_type(self, type)  # the class's own method rejects changes of a name, and is slower
        _set_name(self, name)
        _set_graph(self, graph)

    @property
    def node(self) -> Node:
        """The node of the graph that produces this tensor.

        Examples:
            >>> gc.exp(1.0, name="e").node
            <Node e = Exp -> f32[]>
        """
        if self.graph is None:
            raise GraphError(f"tensor {self.name!r} belongs to a program, not to a graph")
        return self.graph.producer(self)

    def __repr__(self) -> str:
        return f"<Tensor {self.name or '?'} {self.type.shown()}>"


_set_type, _set_name, _set_graph = (
    vars(Tensor)[each].__set__ for each in ("type", "name", "graph")
)

C = TypeVar("C")

Attrs: TypeAlias = Mapping[str, Any]
"""Attribute -> its value: an int, a text, a dtype, a tuple of dims, an array or a function."""

EMPTY: Attrs = {}


@dataclass(frozen=True, eq=False, slots=True, init=False)
class Node(Uncopied):
    """One application of an operator; immutable, compared by identity.

    Attributes:
        op: the operator's record.
        inputs: operands, in the operator's order.
        outputs: result tensors, which this node defines.
        attrs: attributes, including defaults; never mutated.
        regions: the bodies, for operators that have some.
        name: unique in its graph, with the name scopes: `hidden/MatMul`.
        source: the user's line; every rewrite preserves it.
        device: the requested device, or "".
        control_inputs: names of nodes that run whenever this node runs.

    Examples:
        >>> node = gc.one_hot([0, 2], 3, name="labels").node
        >>> node, node.inputs[0].shape, node.attrs["depth"]
        (<Node labels = OneHot -> f32[2, 3]>, (2,), 3)
    """

    instead: ClassVar[str] = (
        "send the graph, which can be pickled and copied, and find it there: graph.node(name)"
    )

    op: OpDef
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attrs: Attrs
    regions: tuple[Program, ...]
    name: str
    source: Source | None
    device: str
    control_inputs: tuple[str, ...]

    def __init__(  # takes half the time of the one that `dataclass` writes
        self,
        op: OpDef,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        attrs: Attrs = EMPTY,
        regions: tuple[Program, ...] = (),
        name: str = "",
        source: Source | None = None,
        device: str = "",
        control_inputs: tuple[str, ...] = (),
    ) -> None:
        _set_op(self, op)
        _set_inputs(self, inputs)
        _set_outputs(self, outputs)
        _set_attrs(self, attrs)
        _set_regions(self, regions)
        _set_node_name(self, name)
        _set_source(self, source)
        _set_device(self, device)
        _set_control_inputs(self, control_inputs)

    def replace(self, **changes: object) -> Node:
        """A copy with the given fields changed.

        Examples:
            >>> node = gc.exp(1.0, name="e").node
            >>> node.replace(name="other")
            <Node other = Exp -> f32[]>
        """
        return replace(self, **changes)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        outputs = ", ".join(t.type.shown() for t in self.outputs)
        return f"<Node {self.name or '?'} = {self.op.name} -> {outputs or 'nothing'}>"


(
    _set_op, _set_inputs, _set_outputs, _set_attrs, _set_regions, _set_node_name, _set_source,
    _set_device, _set_control_inputs,
) = (vars(Node)[each.name].__set__ for each in fields(Node))  # fmt: skip

# A method `__getattr__` would make each access to an attribute take three times as long.
for _name in MEMBERS["Node"]:
    setattr(Node, _name, Missing(_name))

# `in`, `list.index` and `==` of sequences use `==` of the elements. `==` of tensors creates nodes.


def is_among(item: Any, items: Iterable[Any]) -> bool:
    """Whether `item` itself is one of `items`: `in` by identity."""
    return any(other is item for other in items)


def position_of(item: Any, items: Iterable[Any]) -> int:
    """The first position of `item` itself: `list.index` by identity. `items` must contain it."""
    return next(i for i, other in enumerate(items) if other is item)


def same_items(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two sequences have the same items in the same order: `==` by identity."""
    return len(a) == len(b) and all(map(is_, a, b))


def by_identity(cls: type[C]) -> type[C]:
    """Makes `==` of a class of named tuples compare the tensors among the fields by identity."""

    def equal(a: Any, b: Any) -> bool:
        return type(a) is type(b) and all(
            x is y or (not isinstance(x, Operand) and bool(x == y))
            for x, y in zip(a, b, strict=True)
        )

    cls.__eq__ = equal  # type: ignore[method-assign]
    cls.__ne__ = lambda a, b: not equal(a, b)  # type: ignore[method-assign]
    cls.__hash__ = tuple.__hash__  # type: ignore[assignment, method-assign]
    return cls


def describe_tensors(tensors: Mapping[str, Tensor]) -> list[str]:
    """The lines of an error: label, name, type and user's line of each tensor, in columns."""
    rows = []
    for label, tensor in tensors.items():
        name, source = _name_and_source(tensor)
        sizes = tensor.type.shown().partition("[")[2]
        type_text = f"{tensor.type.dtype.name}[{sizes}"
        rows.append((label, name, type_text, str(source or "")))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _name_and_source(tensor: Tensor) -> tuple[str, Source | None]:
    """The name and line that users know. For the value of a variable, they are those of the
    variable. For a tensor marked for `check_numerics`, they are those of the operand."""
    graph = tensor.graph
    producer = graph.find_producer(tensor) if graph is not None else None
    if producer is not None and producer.op.name == "InRange":
        return _name_and_source(producer.inputs[0])
    if graph is None or producer is None:
        return tensor.name, None
    variable = graph.root.variables.get(producer.attrs.get("variable", ""))
    if variable is not None and not producer.inputs:
        return variable.name, variable.source
    return tensor.name, producer.source
