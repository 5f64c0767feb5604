"""The graphs in a .pt2 file as nodes, in the form of `torch.fx` as far as the importer reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from graphc.importers.torch.archive.sizes import size_of
from graphc.importers.torch.archive.tensors import dtype_number
from graphc.importers.torch.call import Refused
from graphc.ir.dims import Dim

_DEEPEST: Final = 50  # graphs inside each other
_KEYWORD: Final = 2  # `ArgumentKind` of the file's schema


def _known(size: Mapping[str, Any]) -> int:
    if "as_int" not in size:
        raise Refused("with named sizes is not supported")
    return int(size["as_int"])


@dataclass(frozen=True)
class Value:
    """What is known about a tensor before its node is imported.

    Attributes:
        meta: its `TensorMeta` in the file.
    """

    meta: Mapping[str, Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        return dtype_number(self.meta["dtype"])

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(map(size_of, self.meta["sizes"]))

    def stride(self, axis: int) -> int:
        """How many elements the next one along an axis is away in memory."""
        return _known(self.meta["strides"][axis])

    def storage_offset(self) -> int:
        """How many elements come before the first one in memory."""
        return _known(self.meta["storage_offset"])

    @property
    def is_contiguous(self) -> bool | None:
        """Whether the elements are in order, without gaps; None if that depends on sizes."""
        strides, wanted = [s.get("as_int") for s in self.meta["strides"]], 1
        try:
            sizes = self.shape
        except Refused:  # an expression that only sizes of inputs may not have
            return None
        for size, stride in zip(sizes[::-1], strides[::-1], strict=True):
            if stride is None or not isinstance(wanted, int):
                return None
            if size != 1 and stride != wanted:
                return False
            wanted = wanted * size  # may have a name
        return True


@dataclass(eq=False)
class Node:
    """A node. Its class has the name that the importer looks for.

    Attributes:
        op: "placeholder", "call_function" or "output".
        target: the operator, such as "aten.add.Tensor".
        meta: "val": a `Value`, a list of them, or a constant; "stack_trace": as in PyTorch;
            "refused": why the node cannot be imported.
        users: the nodes that use its value.
    """

    op: str
    name: str
    target: str = ""
    args: Any = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    users: dict[Node, None] = field(default_factory=dict)


@dataclass(eq=False)
class Graph:
    """The nodes in order; the last is the output, whose only argument is the list of results."""

    nodes: list[Node]


@dataclass(eq=False)
class GraphModule:
    """A graph, as a node of a higher order gets it."""

    graph: Graph


def mapped(value: Any, function: Callable[[Node], Any]) -> Any:
    """Arguments with another value in place of each node."""
    if isinstance(value, Node):
        return function(value)
    if isinstance(value, list):
        return [mapped(item, function) for item in value]
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    return value


def nodes_in(value: Any) -> Iterable[Node]:
    """The nodes in arguments."""
    found: list[Node] = []
    mapped(value, found.append)
    return found


def link(nodes: Iterable[Node]) -> None:
    """Enters each node among the users of its operands."""
    for node in nodes:
        for operand in nodes_in([node.args, node.kwargs]):
            operand.users[node] = None


def graph_of(data: Mapping[str, Any], depth: int = 0) -> GraphModule:
    """A graph of the file, without checks of its operators.

    Raises:
        ValueError, KeyError, TypeError, and so on: it is malformed.
    """
    if depth > _DEEPEST:
        raise ValueError(f"graphs are nested more than {_DEEPEST} deep")
    return GraphModule(Graph(_Reading(data, depth).nodes))


class _Reading:
    """Makes the nodes of a graph."""

    def __init__(self, data: Mapping[str, Any], depth: int) -> None:
        self._data, self._depth = data, depth
        self._named: dict[str, Node] = {}
        self.nodes: list[Node] = []
        for i, argument in enumerate(data["inputs"]):
            self._placeholder(i, argument)
        for node in data["nodes"]:
            self._call(node)
        results = [self._argument(argument) for argument in data["outputs"]]
        self.nodes.append(Node("output", "output", args=[results]))
        self._link()

    def _link(self) -> None:
        """Finds the users, and drops results of nodes that nobody uses."""
        used = {id(n) for node in self.nodes for n in nodes_in([node.args, node.kwargs])}
        self.nodes = [n for n in self.nodes if n.target != "getitem" or id(n) in used]
        link(self.nodes)

    def _placeholder(self, place: int, argument: Any) -> None:
        (kind, value), *_ = argument.items()
        if kind in ("as_tensor", "as_sym_int"):
            name = str(value["name"] if kind == "as_tensor" else value["as_name"])
            node = Node("placeholder", name, meta={"val": self._value(name)})
            self._named[name] = node
        else:
            constant = self._argument(argument)
            if isinstance(constant, (list, dict, GraphModule)):
                raise ValueError(f"an input is {kind}")
            node = Node("placeholder", f"input {place}", meta={"val": constant})
        self.nodes.append(node)

    def _value(self, name: str) -> Value | None:
        """What the file says about a value; None for one that is not a tensor."""
        meta = self._data["tensor_values"].get(name)
        return None if meta is None else Value(dict(meta))

    def _call(self, data: Mapping[str, Any]) -> None:
        args, kwargs = [], {}
        for given in data["inputs"]:
            value = self._argument(given["arg"])
            if given["kind"] == _KEYWORD:
                kwargs[str(given["name"])] = value
            else:
                args.append(value)
        outputs = data["outputs"]
        meta: dict[str, Any] = {"stack_trace": str(data["metadata"].get("stack_trace") or "")}
        target = _target(str(data["target"]))
        node = Node("call_function", str(data.get("name") or ""), target, args, kwargs, meta)
        self.nodes.append(node)
        if len(outputs) == 1 and "as_tensors" in outputs[0]:
            outputs = [{"as_tensor": output} for output in outputs[0]["as_tensors"]]
        elif len(outputs) == 1 and data.get("is_hop_single_tensor_return") is not False:
            self._result(node, outputs[0])
            return
        meta["val"] = [self._result(self._item(node, i), o) for i, o in enumerate(outputs)]

    def _item(self, node: Node, place: int) -> Node:
        meta = {"stack_trace": node.meta["stack_trace"]}
        item = Node("call_function", "", "getitem", [node, place], meta=meta)
        self.nodes.append(item)
        return item

    def _result(self, node: Node, output: Mapping[str, Any]) -> Any:
        """Names the node as the file does; returns what is known about its value."""
        (kind, value), *_ = output.items()
        if kind == "as_tensors":
            found = [
                self._result(self._item(node, i), {"as_tensor": v}) for i, v in enumerate(value)
            ]
            node.meta["val"] = found
            return found
        if kind == "as_none":
            return None
        node.name = str(value["name"] if kind == "as_tensor" else value["as_name"])
        self._named[node.name] = node
        node.meta["val"] = self._value(node.name)
        return node.meta["val"]

    def _argument(self, argument: Mapping[str, Any]) -> Any:
        """The value of an argument: nodes, numbers, texts, dtypes, graphs, lists of them."""
        (kind, value), *_ = argument.items()
        if kind.endswith("s") and kind in _MANY:
            return [self._argument(item if kind in _ITEMS else {kind[:-1]: item}) for item in value]
        match kind:
            case "as_none" | "as_layout" | "as_memory_format" | "as_device":
                return None
            case "as_tensor":
                return self._named[value["name"]]
            case "as_name":
                return self._named[value]
            case "as_sym_int" | "as_sym_float" | "as_sym_bool" | "as_optional_tensor":
                return self._argument(value)
            case "as_float":
                return float(value)  # or a text: "Infinity", "NaN"
            case "as_complex":
                return complex(float(value["real"]), float(value["imag"]))
            case "as_scalar_type":
                return dtype_number(value)
            case "as_graph":
                return graph_of(value["graph"], self._depth + 1)
            case "as_string_to_argument":
                return {str(name): self._argument(item) for name, item in value.items()}
        if kind in _PLAIN and type(value) is _PLAIN[kind]:
            return value
        raise Refused(f"has an argument of the kind {str(kind)[:40]!r}, which is not supported")


_PLAIN: Final[Mapping[str, type]] = {"as_int": int, "as_bool": bool, "as_string": str}
_ITEMS: Final = {"as_sym_ints", "as_sym_floats", "as_sym_bools", "as_optional_tensors"}
_MANY: Final = _ITEMS | {"as_tensors", "as_ints", "as_floats", "as_bools", "as_strings"}


def _target(text: str) -> str:
    """The name of an operator in the tables: "torch.ops.aten.add.Tensor" -> "aten.add.Tensor"."""
    short = text.removeprefix("torch.ops.")
    if short == text or short.startswith("higher_order."):
        return text.rpartition(".")[2]  # "_operator.add", "torch.ops.higher_order.cond"
    return short
