"""`Program`: the form on which passes work. It is immutable and in SSA form, with named inputs and
outputs.

The body of every region is a program too. Its ports are of kind "arg" and "result", and captured
values are explicit inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from graphc.copying import Uncopied
from graphc.ir.dims import Dim, symbols_of
from graphc.ir.node import Node, Tensor, by_identity
from graphc.ir.opdef import PURE, Effects
from graphc.ir.sharding import Spec
from graphc.ir.text import print_program


@by_identity
class Port(NamedTuple):
    """A named input or output of a program.

    `kind` of an input is "feed", "state" or "arg" (of a region); of an output "fetch", "state" (the
    new value of a variable) or "result" (of a region).
    """

    name: str
    kind: str
    tensor: Tensor


@dataclass(frozen=True, eq=False)
class Program(Uncopied):
    """Nodes in an order in which each operand is defined before it is used.

    `Executable.program` is the program of a compiled step. `print` shows it as text.

    Attributes:
        name: for print-outs.
        inputs: the ports whose tensors the caller passes.
        nodes: in program order.
        outputs: the ports whose tensors the caller receives.
        equalities: pairs of different dims that must be equal when sizes are bound. Equal named
            sizes are already replaced by one representative.
        batch_axes: feed name -> the axis along which the feed may be sharded.
        homes: state name -> its device, if nodes were placed on several devices.
        shards: variable -> its layout on a mesh of devices, if specified.

    Examples:
        >>> x = gc.placeholder((2,), name="x")
        >>> program = gc.compile(graph, gc.exp(x) * 2.0, {x: (2,)}).program
        >>> program.inputs[0].name, [node.op.name for node in program.nodes]
        ('x', ['Exp', 'Constant', 'Multiply'])
    """

    instead: ClassVar[str] = "send the graph that it was made from, which can be pickled and copied"

    name: str
    inputs: tuple[Port, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Port, ...]
    equalities: tuple[tuple[Dim, Dim], ...] = ()
    batch_axes: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[str, Spec] = field(default_factory=dict)

    homes: Mapping[str, str] = field(default_factory=dict)

    def replace(self, **changes: object) -> Program:
        """A copy with the given fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def input_tensors(self, kind: str | None = None) -> list[Tensor]:
        return [p.tensor for p in self.inputs if kind is None or p.kind == kind]

    def output_tensors(self) -> list[Tensor]:
        return [p.tensor for p in self.outputs]

    def ports(self, kind: str) -> list[Port]:
        """The inputs (feed, state, arg) or outputs (fetch, result) of one kind."""
        side = self.outputs if kind in ("fetch", "result") else self.inputs
        return [p for p in side if p.kind == kind]

    def new_state(self) -> list[Port]:
        """The outputs that are new values of variables."""
        return [p for p in self.outputs if p.kind == "state"]

    def producers(self) -> dict[Tensor, Node]:
        """Tensor -> the node that produces it (not for inputs)."""
        return {out: node for node in self.nodes for out in node.outputs}

    def users(self) -> dict[Tensor, list[Node]]:
        """Tensor -> the nodes that use it, in program order, once per operand."""
        found: dict[Tensor, list[Node]] = {}
        for node in self.nodes:
            for tensor in node.inputs:
                found.setdefault(tensor, []).append(node)
        return found

    def symbols(self) -> list[str]:
        """The named sizes of the inputs, in order of first appearance."""
        names: dict[str, None] = {}
        for port in self.inputs:
            for dim in port.tensor.type.shape:
                names.update(dict.fromkeys(sorted(symbols_of(dim))))
        return list(names)

    def walk(self) -> Iterable[Node]:
        """Every node, including nodes inside regions."""
        for node in self.nodes:
            yield node
            for body in node.regions:
                yield from body.walk()

    def __str__(self) -> str:
        return print_program(self)


def walk(node: Node) -> Iterator[Node]:
    """The node, and every node inside its regions."""
    yield node
    for body in node.regions:
        yield from body.walk()


def region(
    name: str, inputs: Sequence[Tensor], nodes: Sequence[Node], outputs: Sequence[Tensor]
) -> Program:
    """A program that is the body of an operator; its ports are named by position."""
    return Program(
        name,
        tuple(Port(f"a{i}", "arg", t) for i, t in enumerate(inputs)),
        tuple(nodes),
        tuple(Port(f"r{i}", "result", t) for i, t in enumerate(outputs)),
    )


def attribute_symbols(program: Program) -> dict[str, Node]:
    """The named sizes in attributes of nodes, including regions, each with its first node."""
    found: dict[str, Node] = {}
    for node in program.walk():
        for name, value in node.attrs.items():
            if node.op.attrs[name].kind in ("dim", "dims", "pairs"):
                for symbol in _symbols_in(value):
                    found.setdefault(symbol, node)
    return found


def _symbols_in(value: Any) -> Iterable[str]:
    if isinstance(value, tuple):
        return [name for item in value for name in _symbols_in(item)]
    return symbols_of(value)


def ancestors(producers: Mapping[Tensor, Node], tensors: Iterable[Tensor]) -> set[Node]:
    """The nodes among `producers` that the tensors depend on."""
    found: set[Node] = set()
    pending = list(tensors)
    while pending:
        node = producers.get(pending.pop())
        if node is not None and node not in found:
            found.add(node)
            pending += node.inputs
    return found


def dependents(nodes: Iterable[Node], tensors: Iterable[Tensor]) -> set[Tensor]:
    """`tensors`, and the results of those nodes that depend on them. Operands come before their
    uses."""
    found = set(tensors)
    for node in nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def effects_of(node: Node) -> Effects:
    """The node's own effects and those of every node in its regions."""
    effects = node.op.effects
    for body in node.regions:
        for inner in body.nodes:
            effects |= effects_of(inner)
    return effects


def is_pure(node: Node) -> bool:
    """Whether the node only computes its results from its operands."""
    return effects_of(node) is PURE if node.regions else node.op.effects is PURE
