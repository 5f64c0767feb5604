"""Finds the values of a program that are known by rows, because they derive from sums of looked-up
rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from graphc.ir.dims import Dim, product
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, dependents
from graphc.ops.arrays.indexing import SCATTER_ADD
from graphc.ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT
from graphc.ops.elementwise.comparison import WHERE
from graphc.ops.reductions.reduction import REDUCE_ALL, REDUCE_ANY
from graphc.ops.structure.state import IDENTITY, STOP_GRADIENT
from graphc.passes.core.rowwise import ByRows, attrs_of, by_rows, resized
from graphc.passes.core.rules import Rewriter


@dataclass(eq=False)
class Group:
    """Values that are computed on one set of rows.

    Attributes:
        rows: the number of rows of the table.
        sources: the `ScatterAdd` nodes whose indices select the rows.
        nodes: all nodes that compute by rows, including the sources, in program order.
        sums: nodes that sum such values over all rows, and need only the used rows.
        joined: the group that this group was merged into.
    """

    rows: int
    sources: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    sums: list[Node] = field(default_factory=list)
    joined: Group | None = None

    def root(self) -> Group:
        """The group that this one is now a part of."""
        group = self
        while group.joined is not None:
            group = group.joined
        return group

    def indices(self) -> list[tuple[Tensor, str]]:
        """The indices that select the rows, with their mode, each once; clipped ones first."""
        found = dict.fromkeys((node.inputs[1], node.attrs["mode"]) for node in self.sources)
        return sorted(found, key=lambda each: each[1] != "clip")

    def lookups(self) -> Dim:
        """The maximum number of used rows."""
        return sum((product(tensor.type.shape) for tensor, _ in self.indices()), start=0)


@dataclass(frozen=True, eq=False)
class Rows:
    """A value that is known on some rows, and elsewhere.

    Attributes:
        axis: the axis of the rows.
        outside: the value elsewhere.
    """

    group: Group
    axis: int
    outside: Outside


class RowAnalysis:
    """The values of a program that are known by rows.

    Args:
        nodes: the needed nodes of the program; unneeded nodes could only prevent matches.

    Attributes:
        rows: those values.
        how: how each node computes by rows, or sums rows; without `ScatterAdd` sources.
        made: tensor -> its producer.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.rows: dict[Tensor, Rows] = {}
        self.how: dict[Node, ByRows] = {}
        self._scalars = Rewriter()
        self._even: dict[Tensor, np.generic] = {}
        self.made = self._scalars.made
        for node in nodes:
            if node.op is SCATTER_ADD and self._is_source(node):
                self._source(node)
            elif not self.rows.keys().isdisjoint(node.inputs):
                self._follow(node)
            else:
                self._follow_even(node)
            self.made.update((tensor, node) for tensor in node.outputs)

    def groups(self) -> list[Group]:
        """The groups, in the order of their first sources."""
        return list(dict.fromkeys(rows.group.root() for rows in self.rows.values()))

    def belongs(self, tensor: Tensor, group: Group) -> bool:
        """Whether `tensor` is a value of `group`."""
        known = self.rows.get(tensor)
        return known is not None and known.group.root() is group

    def outside(self, tensor: Tensor) -> Outside:
        """The value of `tensor` outside the rows; everywhere for a value without rows."""
        known = self.rows.get(tensor)
        if known is not None:
            return known.outside
        if tensor in self._even:
            return self._even[tensor]
        scalar = self._scalars.scalar(tensor)
        if scalar is None:
            return tensor
        number: np.generic = np.full(1, scalar, tensor.type.dtype)[0]
        return number

    def _is_source(self, node: Node) -> bool:
        operand, indices, updates = node.inputs
        known = self.rows.get(operand)
        rows = operand.type.shape[node.attrs["axis"]]
        if type(rows) is not int or rows == 0 or indices in self.rows or updates in self.rows:
            return False
        if known is not None:
            return bool(known.axis == node.attrs["axis"])
        scalar = self._scalars.scalar(operand)
        return scalar is not None and bool(scalar == 0)

    def _source(self, node: Node) -> None:
        operand, axis = node.inputs[0], node.attrs["axis"]
        known = self.rows.get(operand)
        rows: Any = operand.type.shape[axis]  # an int: see `_is_source`
        group = Group(rows) if known is None else known.group.root()
        group.sources.append(node)
        group.nodes.append(node)
        self.rows[node.outputs[0]] = Rows(group, axis, self.outside(operand))

    def _follow(self, node: Node) -> None:
        """Records the results of a node with row operands, unless it needs them whole."""
        known = [self.rows[t] for t in node.inputs if t in self.rows]
        size = known[0].group.root().rows
        if any(each.group.root().rows != size for each in known):
            return
        axes = [self.rows[t].axis if t in self.rows else None for t in node.inputs]
        if node.op in (REDUCE_ALL, REDUCE_ANY) and known[0].axis in node.attrs["axes"]:
            self._follow_truth(node, axes, known[0])
            return
        how = by_rows(node, axes, size)
        if how is None:
            return
        outside = outside_of(node, how, [self.outside(t) for t in node.inputs])
        if how.axis is None:
            if isinstance(outside, np.generic) and bool(outside == 0):
                self._add_up(node, how, known)
            return
        group = _join(known)
        group.nodes.append(node)
        self.how[node] = how
        self.rows[node.outputs[0]] = Rows(group, how.axis, outside)

    def _follow_even(self, node: Node) -> None:
        """Records a value whose elements are all one number because its operands are such
        values."""
        shape = node.outputs[0].type.shape if len(node.outputs) == 1 else ()
        if not node.inputs or not shape or type(shape[0]) is not int or shape[0] < 1:
            return
        if not all(isinstance(self.outside(t), np.generic) for t in node.inputs):
            return
        operands = [self.outside(t) for t in node.inputs]
        axes = [0 if t.type.shape == shape else None for t in node.inputs]
        how = by_rows(node, axes, shape[0]) if 0 in axes else None
        value = None if how is None else outside_of(node, how, operands)
        if isinstance(value, np.generic):
            self._even[node.outputs[0]] = value

    def _add_up(self, node: Node, how: ByRows, known: Sequence[Rows]) -> None:
        self.how[node] = how
        _join(known).sums.append(node)

    def _follow_truth(self, node: Node, axes: Sequence[int | None], known: Rows) -> None:
        """Records whether all, or any, elements are true, if the unused rows do not decide it."""
        neutral = node.op is REDUCE_ALL
        decided = isinstance(known.outside, np.generic) and bool(known.outside) is neutral
        if decided:
            self._add_up(node, ByRows(tuple(axes), None), [known])


def _join(known: Sequence[Rows]) -> Group:
    """Merges the groups of all these values."""
    groups = list(dict.fromkeys(each.group.root() for each in known))
    first = groups[0]
    for other in groups[1:]:
        other.joined = first
        first.sources += other.sources
        first.nodes += other.nodes
        first.sums += other.sums
    return first


def chooses_by_itself(program: Program, group: Group) -> bool:
    """Whether values from rows of the group select some of its rows."""
    made = chain.from_iterable(node.outputs for node in group.sources)
    found = dependents(program.nodes, made)
    return any(node.inputs[1] in found for node in group.sources)


# A number that all elements equal, a tensor that the value equals there, or None: unknown.
Outside = np.generic | Tensor | None

_LARGEST = 1 << 16  # elements of a row that are computed on the host


def outside_of(node: Node, how: ByRows, operands: Sequence[Outside]) -> Outside:
    """The result of `node` outside the rows, for the values of its operands there.

    A product with 0 counts as 0, and so does 0 divided by anything, although the other factor may
    be infinite or NaN, or the divisor 0.
    """
    if all(isinstance(value, np.generic) for value in operands):
        return _folded(node, how, operands)
    x, y = operands[0], operands[1] if len(operands) > 1 else None
    op = node.op
    if op in (IDENTITY, STOP_GRADIENT):
        return x
    if op is ADD:
        return _kept(node, x, y, 0) if _is(y, 0) else _kept(node, y, x, 0)
    if op is SUBTRACT:
        return _kept(node, x, y, 0)
    if op is MULTIPLY:
        if _is(x, 0) or _is(y, 0):
            return _zero(node)
        return _kept(node, x, y, 1) if _is(y, 1) else _kept(node, y, x, 1)
    if op is DIVIDE:
        return _zero(node) if _is(x, 0) else _kept(node, x, y, 1)
    if op is WHERE:
        return _chosen(node, x, y, operands[2])
    return None


def _is(value: Outside, number: int) -> bool:
    return isinstance(value, np.generic) and bool(value == number)


def _zero(node: Node) -> np.generic:
    zero: np.generic = node.outputs[0].type.dtype.type(0)
    return zero


def _kept(node: Node, kept: Outside, other: Outside, neutral: int) -> Tensor | None:
    """`kept` if the other operand changes nothing, including the shape."""
    fits = isinstance(kept, Tensor) and kept.type == node.outputs[0].type
    return kept if fits and _is(other, neutral) else None  # type: ignore[return-value]


def _chosen(node: Node, condition: Outside, x: Outside, y: Outside) -> Outside:
    if isinstance(condition, np.generic):
        found = x if condition else y
    elif isinstance(x, np.generic) and isinstance(y, np.generic):
        found = x if bool(x == y) else None
    else:
        found = x if x is y else None
    if isinstance(found, Tensor) and found.type != node.outputs[0].type:
        return None  # it was broadcast
    return found


def _folded(node: Node, how: ByRows, operands: Sequence[Any]) -> Outside:
    """The number that all elements of a row become; None if unknown."""
    fold = node.op.fold
    shapes: list[Any] = [
        tensor.type.shape if axis is None else resized(tensor.type.shape, axis, 1)
        for tensor, axis in zip(node.inputs, how.operands, strict=True)
    ]
    if fold is None or not all(type(dim) is int for shape in shapes for dim in shape):
        return None
    if sum(int(np.prod(shape)) for shape in shapes) > _LARGEST:
        return None
    rows = [np.full(shape, value) for shape, value in zip(shapes, operands, strict=True)]
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise", under="ignore"):
            result = fold(*rows, **attrs_of(node, how, 1))
    except ArithmeticError:
        return None
    if result is None:
        return None
    row = np.asarray(result).astype(node.outputs[0].type.dtype)
    if not row.size:
        return None
    value: np.generic = row.flat[0]
    return value if bool((row == value).all()) else None
