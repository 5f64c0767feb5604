"""Compares programs by structure: whether they are equal, and where they first differ."""

from __future__ import annotations

from itertools import zip_longest

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.text import name_tensors, node_text
from graphc.ir.values import same_value


def same(a: Program, b: Program) -> bool:
    """Whether two programs are equal up to the identity of tensors: see `difference`."""
    return difference(a, b) is None


def difference(a: Program, b: Program) -> str | None:
    """The first difference between two programs, with both sides, or None.

    The comparison covers ports (kind, name, type), operators, operands, attributes (bit by bit),
    result types, devices, regions, equalities, batch axes, and the order of all these. It ignores
    program and node names, sources and control inputs.
    """
    return _Comparison(a, b).run()


class _Comparison:
    """Two programs, and the correspondence of their tensors."""

    def __init__(self, a: Program, b: Program, where: str = "") -> None:
        self._a, self._b = a, b
        self._where = where
        self._match: dict[Tensor, Tensor] = {}

    def run(self) -> str | None:
        a, b = self._a, self._b
        found = self._ports("input", a.inputs, b.inputs)
        if found:
            return found
        self._match.update((p.tensor, q.tensor) for p, q in zip(a.inputs, b.inputs, strict=True))
        for position, (p, q) in enumerate(zip(a.nodes, b.nodes, strict=False)):
            found = self._nodes(position, p, q)
            if found:
                return found
            self._match.update(zip(p.outputs, q.outputs, strict=True))
        return self._ends()

    def _ends(self) -> str | None:
        """Compares the rest of the programs, once their common nodes agree."""
        a, b = self._a, self._b
        if len(a.nodes) != len(b.nodes):
            at = min(len(a.nodes), len(b.nodes))
            left = self._line(a, a.nodes[at]) if at < len(a.nodes) else "nothing"
            right = self._line(b, b.nodes[at]) if at < len(b.nodes) else "nothing"
            return self._report(f"{len(a.nodes)} nodes against {len(b.nodes)}", left, right)
        found = self._ports("output", a.outputs, b.outputs)
        if found:
            return found
        for p, q in zip(a.outputs, b.outputs, strict=True):
            if self._match.get(p.tensor) is not q.tensor:
                return self._report(
                    f"output {p.name!r} is another tensor",
                    name_tensors(a.inputs, a.nodes).get(p.tensor, "undefined"),
                    name_tensors(b.inputs, b.nodes).get(q.tensor, "undefined"),
                )
        mine, other = _equalities(a), _equalities(b)
        if mine != other:
            return self._report("equalities differ", ", ".join(mine), ", ".join(other))
        if dict(a.batch_axes) != dict(b.batch_axes):
            return self._report("batch axes differ", str(a.batch_axes), str(b.batch_axes))
        if dict(a.shards) != dict(b.shards):
            return self._report("shards differ", str(a.shards), str(b.shards))
        return None

    def _ports(self, side: str, a: tuple[Port, ...], b: tuple[Port, ...]) -> str | None:
        pairs = zip_longest(map(_port, a), map(_port, b), fillvalue="nothing")
        for position, (left, right) in enumerate(pairs):
            if left != right:
                return self._report(f"{side} {position} differs", left, right)
        return None

    def _nodes(self, position: int, p: Node, q: Node) -> str | None:
        what = self._node_difference(p, q)
        if what is not None:
            left, right = self._line(self._a, p), self._line(self._b, q)
            return self._report(f"node {position}: {what}", left, right)
        for number, (left_body, right_body) in enumerate(zip(p.regions, q.regions, strict=True)):
            where = f"{self._where}node {position} ({p.op.name}), region {number}: "
            found = _Comparison(left_body, right_body, where).run()
            if found:
                return found
        return None

    def _node_difference(self, p: Node, q: Node) -> str | None:
        if p.op is not q.op and p.op.name != q.op.name:
            return f"{p.op.name} against {q.op.name}"
        if len(p.inputs) != len(q.inputs):
            return f"{len(p.inputs)} operands against {len(q.inputs)}"
        for i, (x, y) in enumerate(zip(p.inputs, q.inputs, strict=True)):
            if self._match.get(x) is not y:
                return f"operand {p.op.operand_label(i)} is another tensor"
        if p.attrs.keys() != q.attrs.keys():
            return "other attributes"
        for name, value in p.attrs.items():
            if not same_value(value, q.attrs[name]):
                return f"attribute {name!r} differs"
        if [t.type for t in p.outputs] != [t.type for t in q.outputs]:
            return "result types differ"
        if p.device != q.device:
            return f"device {p.device!r} against {q.device!r}"
        if len(p.regions) != len(q.regions):
            return f"{len(p.regions)} regions against {len(q.regions)}"
        return None

    def _line(self, program: Program, node: Node) -> str:
        return node_text(node, name_tensors(program.inputs, program.nodes))

    def _report(self, what: str, left: str, right: str) -> str:
        return f"{self._where}{what}\n  left:  {left}\n  right: {right}"


def _port(port: Port) -> str:
    return f"{port.kind} {port.name}: {port.tensor.type}"


def _equalities(program: Program) -> list[str]:
    """The equalities as text, in an order that does not depend on how they were found."""
    return sorted(" == ".join(sorted(map(str, pair))) for pair in program.equalities)
