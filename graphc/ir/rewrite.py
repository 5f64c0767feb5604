"""Tools for passes: redirect uses, copy, bind sizes, sort, find used nodes. All are linear."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, overload

from graphc.errors import FeedError, ShapeError, VerifyError
from graphc.ir import dims
from graphc.ir.dims import Dim, DimExpr, Shape
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType


@overload
def substitute(where: Program, mapping: Mapping[Tensor, Tensor]) -> Program: ...
@overload
def substitute(where: Sequence[Node], mapping: Mapping[Tensor, Tensor]) -> tuple[Node, ...]: ...
def substitute(
    where: Program | Sequence[Node], mapping: Mapping[Tensor, Tensor]
) -> Program | tuple[Node, ...]:
    """Redirects operands and outputs: replaces each key of `mapping` by its value.

    Chains are followed (a -> b, b -> c redirects a to c). Definitions do not change; pruning
    removes the nodes that become unused. Nodes without a redirected operand are the same objects.
    Regions are not entered, because they capture nothing.

    Raises:
        VerifyError: the mapping has a cycle.
    """
    ends = _follow(mapping)
    if isinstance(where, Program):
        if not ends:
            return where
        outputs = tuple(p._replace(tensor=ends.get(p.tensor, p.tensor)) for p in where.outputs)
        return where.replace(nodes=_redirected(where.nodes, ends), outputs=outputs)
    return _redirected(where, ends)


def _redirected(nodes: Iterable[Node], ends: Mapping[Tensor, Tensor]) -> tuple[Node, ...]:
    keys = ends.keys()
    return tuple(
        node
        if keys.isdisjoint(node.inputs)
        else node.replace(inputs=tuple([ends.get(t, t) for t in node.inputs]))
        for node in nodes
    )


def _follow(mapping: Mapping[Tensor, Tensor]) -> dict[Tensor, Tensor]:
    """The last tensor of each key's chain."""
    ends: dict[Tensor, Tensor] = {}
    for start in mapping:
        chain: dict[Tensor, None] = {}
        tensor = start
        while tensor in mapping and tensor not in ends:
            if tensor in chain:
                raise VerifyError(f"substitute: {tensor.name or tensor!r} is redirected to itself")
            chain[tensor] = None
            tensor = mapping[tensor]
        end = ends.get(tensor, tensor)
        ends.update(dict.fromkeys(chain, end))
    return ends


def clone(
    program: Program,
    type_map: Callable[[TensorType], TensorType] | None = None,
    attr_map: Callable[[Node], Mapping[str, Any]] | None = None,
) -> Program:
    """The same program with new tensors, also in its regions.

    Args:
        type_map: returns the new type for each type.
        attr_map: returns the new attributes of each node.

    Raises:
        VerifyError: an operand is not defined before its use.
    """
    fresh: dict[Tensor, Tensor] = {}

    def copy(tensor: Tensor) -> Tensor:
        type = tensor.type if type_map is None else type_map(tensor.type)
        new = fresh[tensor] = Tensor(type, tensor.name)
        return new

    def copied(node: Node) -> Node:
        return Node(
            node.op,
            tuple([fresh[t] for t in node.inputs]),
            tuple([copy(t) for t in node.outputs]),
            node.attrs if attr_map is None else attr_map(node),
            tuple([clone(r, type_map, attr_map) for r in node.regions]) if node.regions else (),
            node.name, node.source, node.device, node.control_inputs,
        )  # fmt: skip

    try:
        return program.replace(
            inputs=tuple(port._replace(tensor=copy(port.tensor)) for port in program.inputs),
            nodes=tuple([copied(node) for node in program.nodes]),
            outputs=tuple(p._replace(tensor=fresh[p.tensor]) for p in program.outputs),
        )
    except KeyError as error:
        name = getattr(error.args[0], "name", "?")
        raise VerifyError(f"{program.name}: {name!r} is used before it is defined") from error


def bind_sizes(program: Program, bindings: Mapping[str, int]) -> Program:
    """The program with named sizes replaced by ints in types, attributes and regions.

    Unbound names, and equalities that contain one, are kept. Nodes and tensors without named sizes
    are shared with `program`.

    Raises:
        FeedError: a binding is not a size, or violates an equality of the program.
        ShapeError: a dim of a tensor would be negative, or there is a division by zero.
    """
    for name, size in bindings.items():
        if type(size) is not int or size < 0:
            raise FeedError(f"size {name!r} must be an int of at least 0, got {size!r}")
    given = ", ".join(f"{name} = {size}" for name, size in bindings.items())

    def bound(dim: Dim) -> Dim:
        try:
            result: Dim = dims.substitute(dim, bindings)
        except ZeroDivisionError:
            raise ShapeError(f"{dim} divides by zero", details=[given]) from None
        return result

    for left, right in program.equalities:
        a, b = bound(left), bound(right)
        if isinstance(a, int) and isinstance(b, int) and a != b:
            raise FeedError(
                f"the sizes fed do not fit: {left} must equal {right}, got {a} and {b}",
                details=[given],
            )
    return map_dims(program, bound)


def map_dims(program: Program, function: Callable[[Dim], Dim]) -> Program:
    """The program with `function` applied to every dim that is not an int.

    It is applied in types, in attributes of the kinds dim, dims, pairs and attrs, in equalities and
    in regions. Equalities whose sides become the same are dropped. Unchanged nodes and tensors are
    shared with `program`.

    Raises:
        ShapeError: a dim of a tensor becomes negative, or an equality becomes false.
    """
    return _DimMap(function).program(program)


# Attributes of these kinds may hold named sizes.
_DIM_KINDS = frozenset({"dim", "dims", "pairs", "attrs"})


class _DimMap:
    """One run of `map_dims`, with its memoized results."""

    def __init__(self, function: Callable[[Dim], Dim]) -> None:
        self._function = function
        self._dims: dict[Dim, Dim] = {}
        self._shapes: dict[Shape, Shape] = {}
        self._attrs: dict[OpDef, tuple[str, ...]] = {}
        self._tensors: dict[Tensor, Tensor] = {}

    def program(self, program: Program) -> Program:
        inputs = tuple(self._port(port) for port in program.inputs)
        nodes = tuple([self._node(node) for node in program.nodes])
        outputs = tuple(
            p._replace(tensor=self._tensors.get(p.tensor, p.tensor)) for p in program.outputs
        )
        equalities = tuple(self._equalities(program))
        if (inputs, outputs, equalities) == (
            program.inputs,
            program.outputs,
            program.equalities,
        ) and all(map(is_, nodes, program.nodes)):
            return program
        return program.replace(inputs=inputs, nodes=nodes, outputs=outputs, equalities=equalities)

    def _equalities(self, program: Program) -> Iterator[tuple[Dim, Dim]]:
        for left, right in program.equalities:
            a, b = self._value(left), self._value(right)
            if isinstance(a, int) and isinstance(b, int) and a != b:
                raise ShapeError(f"{left} must equal {right}, and they become {a} and {b}")
            if a != b:
                yield a, b

    def _port(self, port: Port) -> Port:
        new = self._result(port.tensor)
        return port if new is port.tensor else port._replace(tensor=new)

    def _node(self, node: Node) -> Node:
        known = self._tensors
        inputs, outputs, attrs, regions = node.inputs, node.outputs, node.attrs, node.regions
        if not known.keys().isdisjoint(inputs):
            inputs = tuple([known.get(t, t) for t in inputs])
        results = tuple([self._result(t, node.source) for t in outputs])
        if not all(map(is_, results, outputs)):
            outputs = results
        if attrs:
            attrs = self._mapped_attrs(node)
        if regions:
            regions = tuple([self.program(region) for region in regions])
        if (
            inputs is node.inputs
            and outputs is node.outputs
            and attrs is node.attrs
            and all(map(is_, regions, node.regions))
        ):
            return node
        return Node(
            node.op, inputs, outputs, attrs, regions,
            node.name, node.source, node.device, node.control_inputs,
        )  # fmt: skip

    def _result(self, tensor: Tensor, source: object = None) -> Tensor:
        """The replacement of a newly defined tensor: itself if its type is unchanged."""
        dtype, old = tensor.type
        shape = self._shapes.get(old)
        if shape is None:
            shape = self._value(old)
            if any(isinstance(dim, int) and dim < 0 for dim in shape):
                type = TensorType(dtype, shape)
                raise ShapeError(
                    f"{tensor.name or 'a tensor'}: {tensor.type} becomes {type}",
                    source=source,
                    hint="no size may be below 0",
                )
            self._shapes[old] = shape
        if shape == old:
            return tensor
        new = self._tensors[tensor] = Tensor(TensorType(dtype, shape), tensor.name)
        return new

    def _mapped_attrs(self, node: Node) -> Mapping[str, Any]:
        names = self._attrs.get(node.op)
        if names is None:
            names = tuple(name for name, attr in node.op.attrs.items() if attr.kind in _DIM_KINDS)
            self._attrs[node.op] = names
        changed = {}
        for name in names:
            value = node.attrs.get(name)
            new = self._value(value)
            if new is not value:
                changed[name] = new
        return {**node.attrs, **changed} if changed else node.attrs

    def _value(self, value: Any) -> Any:
        """Maps a dim, or dims in tuples and mappings. The same object if nothing changes."""
        if type(value) is int:  # the common case
            return value
        if isinstance(value, DimExpr):
            new = self._dims.get(value)
            if new is None:
                new = self._dims[value] = self._function(value)
            return value if new == value else new
        if isinstance(value, tuple):
            items = tuple([self._value(item) for item in value])
            return value if all(map(is_, items, value)) else items
        if isinstance(value, Mapping):
            mapped = {key: self._value(item) for key, item in value.items()}
            return value if all(mapped[key] is value[key] for key in mapped) else mapped
        return value


def rename_feeds(program: Program, names: Sequence[str]) -> Program:
    """The program with these names for its feeds, in the same order."""
    new = iter(names)
    axes: dict[str, int] = {}
    inputs = []
    for port in program.inputs:
        if port.kind == "feed":
            name = next(new)
            if port.name in program.batch_axes:
                axes[name] = program.batch_axes[port.name]
            port = port._replace(name=name)
        inputs.append(port)
    return program.replace(inputs=tuple(inputs), batch_axes=axes)


def sort_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes in an order in which operands come before their uses.

    A node moves only if necessary. Nodes that are already in order are not reordered, which
    preserves the order of reads and assignments.

    Raises:
        VerifyError: the nodes depend on each other in a cycle.
    """
    producers = {tensor: node for node in nodes for tensor in node.outputs}
    done: dict[Node, bool] = {}  # False while the node's operands are being placed
    for root in nodes:
        stack = [root]
        while stack:
            node = stack[-1]
            if done.get(node):
                stack.pop()
                continue
            done[node] = False
            waiting = [p for t in node.inputs if (p := producers.get(t)) and not done.get(p)]
            if not waiting:
                # A dict keeps a key at its first position, so the key is removed and added again.
                del done[stack.pop()]
                done[node] = True
            for producer in reversed(waiting):
                if producer in done:
                    raise VerifyError(f"{producer!r} needs its own result", source=producer.source)
                stack.append(producer)
    return tuple(done)


def used_from(
    nodes: Sequence[Node], outputs: Iterable[Tensor], keep: Callable[[Node], bool] | None = None
) -> tuple[Node, ...]:
    """The nodes on which `outputs` depend through operands, in their order.

    Args:
        nodes: in an order in which operands come before their uses.
        keep: nodes for which it returns True are included too, with their dependencies.
    """
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs) or (keep is not None and keep(node)):
            wanted.update(node.inputs)
            kept.append(node)
    return tuple(reversed(kept))
