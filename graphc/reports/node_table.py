"""The nodes of several programs as one table of plain data, for pages.

Passes keep most nodes. So each different node is one row, and a program is a list of numbers of
rows. Types, operators, devices and lines are numbered too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphc.errors import GraphcError, TextError
from graphc.ir.costs import bytes_of_type
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.source import Source
from graphc.ir.values import same_value, write_attr
from graphc.passes.core.costs import node_cost
from graphc.reports.source_files import lines_of

_AROUND = 4  # lines of code before and after a node's own
_LONGEST = 400  # characters of an attribute
_MOST_TURNS = 32  # nodes that one of a rolled block stands for

Row = dict[str, Any]


class _Numbers:
    """Numbers values in the order of their first use."""

    def __init__(self) -> None:
        self.values: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        return self.values.setdefault(value, len(self.values))


class NodeTable:
    """Rows of nodes and tensors. `to_json` gives them all.

    Args:
        bindings: the sizes of named dims, for costs.
    """

    def __init__(self, bindings: Mapping[str, int]) -> None:
        self._bindings = bindings
        self._rows: list[Row] = []
        self._by_content: dict[Any, int] = {}
        self._by_node: dict[Node, int] = {}
        self._tensors: dict[Tensor, int] = {}
        self._tensor_rows: list[tuple[int, int | None]] = []
        self._types, self._operators = _Numbers(), _Numbers()
        self._devices, self._places, self._files = _Numbers(), _Numbers(), _Numbers()

    def program(self, program: Program) -> Row:
        """A program as plain data: its ports, and the numbers of its nodes."""
        bound = program
        if program.symbols() and self._bindings:
            bound = bind_sizes(program, self._bindings)
        return self._body(program, bound)

    def node(self, node: Node) -> int | None:
        """The number of a node that is in the table."""
        return self._by_node.get(node)

    def tensor(self, tensor: Tensor, bound: Tensor | None = None) -> int:
        """The number of a tensor."""
        if tensor not in self._tensors:
            type = (tensor if bound is None else bound).type
            known = all(isinstance(dim, int) for dim in type.shape)
            self._tensors[tensor] = len(self._tensor_rows)
            size = bytes_of_type(type) if known else None
            self._tensor_rows.append((self._types.of(tensor.type.shown()), size))
        return self._tensors[tensor]

    def device(self, name: str) -> int:
        """The number of a device."""
        return self._devices.of(name)

    def to_json(self) -> Row:
        """All rows, and the lists that their numbers mean."""
        return {
            "nodes": self._rows,
            "tensors": self._tensor_rows,
            "types": list(self._types.values),
            "operators": list(self._operators.values),
            "devices": list(self._devices.values),
            "lines": list(self._places.values),
            "files": self._source_files(),
        }

    def _body(self, program: Program, bound: Program) -> Row:
        inputs = zip(program.inputs, bound.inputs, strict=True)
        made = {"inputs": [self._port(port, other.tensor) for port, other in inputs]}
        pairs = zip(program.nodes, bound.nodes, strict=True)
        numbers = [self._number(node, other) for node, other in pairs]
        outputs = zip(program.outputs, bound.outputs, strict=True)
        made["outputs"] = [self._port(port, other.tensor) for port, other in outputs]
        return {"name": program.name, **made, "nodes": ranges(numbers)}

    def _port(self, port: Port, bound: Tensor) -> list[Any]:
        return [port.name, port.kind, self.tensor(port.tensor, bound)]

    def _number(self, node: Node, bound: Node) -> int:
        found = self._by_node.get(node)
        if found is not None:
            return found
        row = self._row(node, bound)
        key = repr({name: value for name, value in row.items() if name not in ("f", "b")})
        number = self._by_content.get(key)
        if number is None:
            number = self._by_content[key] = len(self._rows)
            self._rows.append(row)
        self._by_node[node] = self._by_node[bound] = number
        return number

    def _row(self, node: Node, bound: Node) -> Row:
        """The fields have one letter, because there are thousands of rows."""
        row: Row = {
            "n": node.name,
            "o": self._operators.of(node.op.name),
            "i": [self.tensor(*pair) for pair in zip(node.inputs, bound.inputs, strict=True)],
            "u": [self.tensor(*pair) for pair in zip(node.outputs, bound.outputs, strict=True)],
        }
        attributes = list(_attributes(node))
        if attributes:
            row["a"] = attributes
        if node.source is not None:
            row["s"] = self._line(node.source)
            turns = node.source.turns[:_MOST_TURNS]
            if turns:
                row["t"] = [[n, -1 if s is None else self._line(s)] for n, s in turns]
        if node.device:
            row["d"] = self._devices.of(node.device)
        if node.control_inputs:
            row["c"] = list(node.control_inputs)
        if node.regions:
            bodies = zip(node.regions, bound.regions, strict=True)
            row["r"] = [self._body(*pair) for pair in bodies]
        cost = _of(node_cost, bound)
        if cost is not None:
            row["f"], row["b"] = cost.flops, cost.bytes
        return row

    def _line(self, source: Source) -> int:
        return self._places.of((self._files.of(source.file), source.line))

    def _source_files(self) -> list[Row]:
        """Each file, with the lines around those of nodes."""
        wanted: dict[int, set[int]] = {}
        for file, line in self._places.values:
            wanted.setdefault(file, set()).update(range(line - _AROUND, line + _AROUND + 1))
        made = []
        for name, number in self._files.values.items():
            text = lines_of(name)
            near = sorted(wanted.get(number, ()))
            code = {n: text[n - 1].rstrip("\n") for n in near if 1 <= n <= len(text)}
            made.append({"name": name, "code": code})
        return made


def _of(rule: Callable[[Node], Any], bound: Node) -> Any:
    """The cost of a node; None if a size is open, or an operator of a user has a faulty rule."""
    tensors = (*bound.inputs, *bound.outputs)
    if not all(isinstance(dim, int) for tensor in tensors for dim in tensor.type.shape):
        return None
    try:
        return rule(bound)
    except (GraphcError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _attributes(node: Node) -> Iterable[tuple[str, str]]:
    """The attributes that do not have their defaults, as text."""
    for name, value in node.attrs.items():
        declared = node.op.attrs.get(name)
        if declared is not None and same_value(value, declared.default):
            continue
        try:
            text = write_attr("any" if declared is None else declared.kind, value, elide=True)
        except TextError:
            text = type(value).__name__
        yield name, text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def ranges(numbers: Sequence[int]) -> list[int]:
    """Consecutive numbers as pairs: the first, and how many follow one by one.

    >>> ranges([4, 5, 6, 9, 1, 2])
    [4, 3, 9, 1, 1, 2]
    """
    found: list[int] = []
    for number in numbers:
        if found and number == found[-2] + found[-1]:
            found[-1] += 1
        else:
            found += [number, 1]
    return found
