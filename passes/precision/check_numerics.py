"""Check numerics: adds an output that identifies the first node that computed a NaN or infinity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from graphc.ir.builder import Builder
from graphc.ir.dtypes import INT32, is_inexact
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Port, Program, region
from graphc.ir.source import Source
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE, TRANSPOSE
from graphc.ops.control.branching import SWITCH
from graphc.ops.control.calling import CALL
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.mapping import MAP
from graphc.ops.control.scan import SCAN
from graphc.ops.control.while_loops import WHILE
from graphc.ops.core.emit import CONSTANT, constant
from graphc.ops.core.ranges import IN_RANGE
from graphc.ops.structure.numerics import (
    FIRST_FAULT,
    HEAD,
    KEEP_FAULT,
    NON_FINITE,
    ONCE,
    OUT_OF_RANGE,
    ROWS,
    TURN,
)
from graphc.ops.structure.state import IDENTITY, STOP_GRADIENT
from graphc.passes.core.base import Pass, PassResult

NUMERICS = "__numerics__"
"""The name of the output."""

_NUMBER = TensorType(INT32, ())
_LOOPS = (SCAN, WHILE)
_WITH_BODIES = (*_LOOPS, MAP, SWITCH, CALL)
# Their results have the elements of their first operand.
_MOVES = (RESHAPE, TRANSPOSE, BROADCAST_TO, IDENTITY, STOP_GRADIENT)


@dataclass(frozen=True)
class CheckNumerics(Pass):
    """Adds an output: the first node, in program order, that computed a NaN from operands without
    NaN or an infinity from finite ones, or that received an integer out of range (`ops.ranges`),
    with the iteration of each loop around it.

    XLA does not know the user's lines. Each result is checked once, which XLA fuses with its
    computation. Constants are not reported, and given infinities, as in masks, may propagate.

    It runs last, because it changes the ports and refers to positions in this program, which
    `table` describes. Conditions of loops are not checked.
    """

    optional: ClassVar[bool] = False

    def run(self, program: Program) -> PassResult:
        width = _width(program)
        builder, fault = _checked(program, width)
        port = Port(NUMERICS, "fetch", fault)
        checked = program.replace(nodes=tuple(builder.nodes), outputs=(*program.outputs, port))
        return PassResult(checked, 1)


def table(program: Program) -> dict[str, Any]:
    """The nodes at the positions of a program to be checked, as plain values: for each position the
    node, its line, the text of the line, and its results; for nodes with bodies also the operator
    and the nodes inside; for nodes that represent several, those of each iteration."""
    return _entries(program.nodes, 0)


def _entries(nodes: Sequence[Node], start: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, node in enumerate(nodes, start):
        if not _may_fail(node):
            continue
        entry: dict[str, Any] = {
            **_said(node, node.name, node.source),
            "types": [str(t.type) for t in node.outputs],
        }
        if node.op is IN_RANGE:
            entry |= node.attrs
        if node.source is not None and node.source.turns:
            entry["turns"] = [_said(node, *turn) for turn in node.source.turns]
        if _has_bodies(node):
            entry["op"] = node.op.name
            entry["length"] = node.attrs.get("length")
            entry["inside"] = _entries([n for body in _bodies(node) for n in body.nodes], 0)
        found[str(place)] = entry
    return found


def _said(node: Node, name: str, source: Source | None) -> dict[str, str]:
    """The text that an error shows for the node."""
    return {
        "node": _subject(node, name),
        "line": "" if source is None else str(source),
        "code": "" if source is None else source.code,
    }


def _subject(node: Node, name: str) -> str:
    """The subject of an error: the node, or the function whose integers were out of range."""
    if node.op is not IN_RANGE or not node.attrs["of"]:
        return f"{node.op.name} {name!r}"
    scope = name.rpartition("/")[0]
    return f"{node.attrs['of']} in {scope!r}" if scope else node.attrs["of"]


# -- selection of the checked nodes ---------------------------------------------------------


def _bodies(node: Node) -> Sequence[Program]:
    """The bodies that run as a part of the node, except the condition of a loop."""
    return node.regions[:1] if node.op in _LOOPS else node.regions


def _has_bodies(node: Node) -> bool:
    return node.op in _WITH_BODIES and any(_may_fail(n) for b in _bodies(node) for n in b.nodes)


def _may_fail(node: Node) -> bool:
    """Whether the node, or a node in its bodies, can have a fault."""
    if node.op is IN_RANGE or any(is_inexact(t.type.dtype) for t in node.outputs):
        return True
    return _has_bodies(node)


def _width(program: Program) -> int:
    """The length of a fault record of the program: two more numbers for each level of bodies."""
    inner = [_width(body) + 2 for n in program.nodes if _has_bodies(n) for body in _bodies(n)]
    return max(inner, default=HEAD + 1)


# -- writing --------------------------------------------------------------------------------


def _checked(program: Program, width: int, start: int = 0) -> tuple[Builder, Tensor]:
    """The nodes with checks of their results, and the first fault.

    Args:
        start: the position of the first node.
    """
    writer = _Writer()
    for tensor in program.input_tensors():
        writer.look_at(tensor)
    for place, node in enumerate(program.nodes, start):
        writer.node(node, place)
    fault = writer.emit(
        FIRST_FAULT,
        (*writer.levels, *writer.outside, *writer.faults),
        rows=tuple(writer.rows),
        ranges=tuple(writer.ranges),
        bodies=tuple(writer.bodies),
        width=width,
    )
    return writer.builder, fault


@dataclass
class _Writer:
    builder: Builder = field(default_factory=lambda: Builder(scope="numerics"))
    levels: dict[Tensor, None] = field(default_factory=dict)
    outside: list[Tensor] = field(default_factory=list)
    faults: list[Tensor] = field(default_factory=list)
    ranges: list[int] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    bodies: list[tuple[int, ...]] = field(default_factory=list)
    numbers: dict[Tensor, int] = field(default_factory=dict)  # tensor -> number of its level

    def emit(self, op: OpDef, inputs: Sequence[Tensor], **attrs: Any) -> Tensor:
        return self.builder.add(op, inputs, attrs).outputs[0]

    def look_at(self, tensor: Tensor) -> None:
        if is_inexact(tensor.type.dtype):
            level = self.emit(NON_FINITE, (tensor,))
            self.numbers[tensor] = len(self.levels)
            self.levels[level] = None

    def node(self, node: Node, place: int) -> None:
        if _has_bodies(node):
            node = self.inside(node, place)
        self.builder.append(node)
        if node.op is IN_RANGE:
            bounds = {name: node.attrs[name] for name in ("low", "high")}
            self.outside.append(self.emit(OUT_OF_RANGE, node.inputs, **bounds))
            self.ranges.append(place)
            return
        if node.op in _MOVES:
            if node.inputs[0] in self.numbers:
                self.numbers[node.outputs[0]] = self.numbers[node.inputs[0]]
            return
        if node.op is CONSTANT and _is_finite(node.attrs["value"]):
            return
        for tensor in node.outputs:
            self.look_at(tensor)
        given = [self.numbers[t] for t in node.outputs if t in self.numbers]
        if given and node.inputs and not _has_bodies(node):
            taken = [self.numbers[t] for t in node.inputs if t in self.numbers]
            self.rows.append((place, len(taken), *taken, *given))

    def inside(self, node: Node, place: int) -> Node:
        """The node with checked bodies; its fault is recorded."""
        node, fault, form = (_in_loop if node.op in _LOOPS else _in_bodies)(self, node)
        self.faults.append(fault)
        self.bodies.append((place, form))
        return node


def _in_loop(writer: _Writer, node: Node) -> tuple[Node, Tensor, int]:
    """A loop that carries the first fault, and the number of the iteration."""
    view, body = LoopView.of(node), node.regions[0]
    width = _width(body)
    with writer.builder:
        first = (constant(np.zeros(width + 1, np.int32)), constant(0, INT32))
    kept = TensorType(INT32, (width + 1,))
    builder, fault = _checked(body, width)
    carried = (Tensor(kept, "fault"), Tensor(_NUMBER, "turn"))
    after = builder.add(KEEP_FAULT, (*carried, fault)).outputs
    last = (Tensor(kept, f"{node.name}:fault"), Tensor(_NUMBER, f"{node.name}:turn"))
    more = zip(first, carried, after, last, strict=True)
    return view.with_carries(more).with_nodes(builder.nodes).write(), last[0], TURN


def _in_bodies(writer: _Writer, node: Node) -> tuple[Node, Tensor, int]:
    """A node whose bodies return their faults as an additional result."""
    width = max(map(_width, node.regions))
    regions, start = [], 0
    for body in node.regions:
        builder, fault = _checked(body, width, start)
        start += len(body.nodes)
        results = [*body.output_tensors(), fault]
        regions.append(region(body.name, body.input_tensors(), builder.nodes, results))
    rows = (node.attrs["length"],) if node.op is MAP else ()
    fault = Tensor(TensorType(INT32, (*rows, width)), f"{node.name}:fault")
    changed = node.replace(outputs=(*node.outputs, fault), regions=tuple(regions))
    return changed, fault, ROWS if rows else ONCE


def _is_finite(value: np.ndarray[Any, Any]) -> bool:
    if not is_inexact(value.dtype):
        return True
    kind = np.complex128 if value.dtype.kind == "c" else np.float64
    return bool(np.isfinite(value.astype(kind)).all())
