"""Writes the nodes that compute values on the used rows, and that update their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program, is_pure
from graphc.ir.rewrite import sort_nodes, used_from
from graphc.ops.arrays.indexing import SCATTER_ADD, TAKE
from graphc.ops.arrays.joining import SPLIT
from graphc.ops.arrays.scattering_nd import SCATTER_ND
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE
from graphc.ops.arrays.slicing import SLICE
from graphc.ops.arrays.stacking import UNSTACK
from graphc.ops.arrays.unique_rows import UNIQUE_ROWS
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.rowwise import ByRows, attrs_of, by_rows, resized
from graphc.passes.sparse.row_analysis import Group, RowAnalysis

_PIECES = (SLICE, SPLIT, UNSTACK)

Along = tuple[Tensor, int]  # a value, and the axis of its rows


class RowWriter:
    """Rewrites one group by rows.

    Args:
        written: the values to write, each with the tensor that it equals outside the rows.
    """

    def __init__(
        self,
        program: Program,
        analysis: RowAnalysis,
        group: Group,
        written: Mapping[Tensor, Tensor],
    ) -> None:
        self._program = program
        self._analysis = analysis
        self._group = group
        self._written = written
        self._order = {node: i for i, node in enumerate(program.nodes)}
        # Not those of the analysis: sums of groups written earlier have new nodes.
        self._made = program.producers()
        self._model = group.sources[0]
        self._builder = Builder(self._model)
        self._new = self._builder.nodes
        self._rows: dict[Along, Tensor] = {}
        self._how: dict[Along, ByRows | None] = {}

    def run(self) -> Program:
        """The program with this group computed by rows, without unneeded nodes."""
        self._choose()
        needed = self._needed()
        for along in sorted(needed, key=self._place):
            self._rows[along] = self._by_rows(along)
        replaced = self._sums() | self._write()
        nodes = [*(node for node in self._program.nodes if node not in replaced), *self._new]
        kept = used_from(
            sort_nodes(nodes),
            self._program.output_tensors(),
            keep=lambda node: not is_pure(node),
        )
        return self._program.replace(nodes=kept)

    def _place(self, along: Along) -> int:
        made = self._made.get(along[0])
        return -1 if made is None else self._order[made]

    # -- which rows --------------------------------------------------------------------------

    def _choose(self) -> None:
        indices = self._group.indices()
        results = self._add(
            UNIQUE_ROWS,
            [tensor for tensor, _ in indices],
            size=self._group.rows,
            clipped=sum(mode == "clip" for _, mode in indices),
            pieces=any(self._is_piece(tensor) for tensor, _ in indices),
        )
        self._used = results[0]
        self._places = dict(zip(indices, results[1:], strict=True))
        (self._count,) = self._used.type.shape

    def _is_piece(self, tensor: Tensor) -> bool:
        """Whether a kernel that computes `tensor` reads a piece of another tensor."""
        stack, seen = [tensor], {tensor}
        while stack:
            node = self._made.get(stack.pop())
            if node is not None and node.op in _PIECES:
                return True
            if node is not None and (node.op.is_elementwise or node.op is RESHAPE):
                stack += [each for each in node.inputs if each not in seen]
                seen.update(node.inputs)
        return False

    # -- needed values -------------------------------------------------------------------------

    def _needed(self) -> dict[Along, None]:
        """The values that are needed by rows: those that are written or summed, and their
        operands."""
        rows = self._analysis.rows
        stack: list[Along] = [(tensor, rows[tensor].axis) for tensor in self._written]
        for node in self._group.sums:
            stack += _operands(node, self._analysis.how[node])
        found: dict[Along, None] = {}
        while stack:
            along = stack.pop()
            if along not in found:
                found[along] = None
                stack += self._comes_from(along)
        return found

    def _comes_from(self, along: Along) -> Iterable[Along]:
        tensor, axis = along
        node = self._made.get(tensor)
        if node is not None and node in self._group.sources:
            return [(t, axis) for t in node.inputs[:1] if t in self._analysis.rows]
        how = None if node is None else self._pushed(node, along)
        self._how[along] = how
        return [] if node is None or how is None else _operands(node, how)

    def _pushed(self, node: Node, along: Along) -> ByRows | None:
        """How the rows of `along` are computed from rows of the operands; None if they must be
        gathered."""
        known = self._analysis.how.get(node)
        if known is not None:
            return known
        tensor, axis = along
        if node.op is BROADCAST_TO:
            own = axis - tensor.type.rank + node.inputs[0].type.rank
            if own < 0 or node.inputs[0].type.shape[own] == 1:
                return ByRows((None,), axis)
        for i, operand in enumerate(node.inputs):
            for own, size in enumerate(operand.type.shape):
                if size == self._group.rows:
                    axes = [own if i == j else None for j in range(len(node.inputs))]
                    how = by_rows(node, axes, self._group.rows)
                    if how is not None and how.axis == axis:
                        return how
        return None

    # -- computing -----------------------------------------------------------------------------

    def _by_rows(self, along: Along) -> Tensor:
        tensor, axis = along
        node = self._made.get(tensor)
        if node is not None and node in self._group.sources:
            return self._summed(node, axis)
        how = self._how[along]
        if node is None or how is None:
            (taken,) = self._add(TAKE, (tensor, self._used), tensor, axis=axis, mode="clip")
            return taken
        return self._computed(node, how, tensor, axis)

    def _computed(self, node: Node, how: ByRows, tensor: Tensor, axis: int) -> Tensor:
        """The result of the node for rows of its operands."""
        name = f"{node.name}/rows"
        shape = resized(tensor.type.shape, axis, self._count)
        result = Tensor(tensor.type._replace(shape=shape), f"{name}:0")
        self._new.append(
            node.replace(
                inputs=self._inputs(node, how),
                outputs=(result,),
                attrs=attrs_of(node, how, self._count),
                name=name,
            )
        )
        return result

    def _summed(self, node: Node, axis: int) -> Tensor:
        """The sum of the updates of each row."""
        operand, indices, updates = node.inputs
        into = self._rows.get((operand, axis))
        if into is None:
            zero = np.zeros((), operand.type.dtype)
            zero.flags.writeable = False
            shape = resized(operand.type.shape, axis, self._count)
            into = self._add(CONSTANT, (), operand, value=zero)[0]
            into = self._add(BROADCAST_TO, (into,), operand, shape=shape)[0]
        places = self._places[indices, node.attrs["mode"]]
        inputs = (into, places, updates)
        return self._add(SCATTER_ADD, inputs, node.outputs[0], axis=axis, mode="drop")[0]

    def _inputs(self, node: Node, how: ByRows) -> tuple[Tensor, ...]:
        return tuple(
            tensor if axis is None else self._rows[tensor, axis]
            for tensor, axis in zip(node.inputs, how.operands, strict=True)
        )

    # -- results for the rest of the program -----------------------------------------------------

    def _sums(self) -> set[Node]:
        for node in self._group.sums:
            how = self._analysis.how[node]
            attrs = attrs_of(node, how, self._count)
            self._new.append(node.replace(inputs=self._inputs(node, how), attrs=attrs))
        return set(self._group.sums)

    def _write(self) -> set[Node]:
        """Writes rows into their tables; returns the nodes that computed those values before.

        If a value and an earlier one update the same tensor along the same axis, it is written over
        the earlier one: the rows are the same, and the first may have been written in place.
        """
        made = self._made
        (places,) = self._add(RESHAPE, (self._used,), shape=(self._count, 1))
        latest: dict[Along, Tensor] = {}
        for tensor in sorted(self._written, key=lambda t: self._order[made[t]]):
            outside = self._written[tensor]
            axis = self._analysis.rows[tensor].axis
            node = made[tensor]
            attrs = SCATTER_ND.complete({"op": "set", "axes": (axis,), "mode": "drop"})
            inputs = (latest.get((outside, axis), outside), places, self._rows[tensor, axis])
            self._new.append(node.replace(op=SCATTER_ND, inputs=inputs, attrs=attrs))
            latest[outside, axis] = tensor
        return {made[tensor] for tensor in self._written}

    def _add(
        self, op: OpDef, inputs: Sequence[Tensor], of: Tensor | None = None, **attrs: Any
    ) -> tuple[Tensor, ...]:
        """The results of a new node, named after the value that it concerns."""
        scope = None if of is None else of.name.removesuffix(":0").replace(":", "/")
        with self._builder.at(self._model, scope):
            return self._builder.add(op, inputs, attrs).outputs


def _operands(node: Node, how: ByRows) -> list[Along]:
    return [
        (tensor, axis)
        for tensor, axis in zip(node.inputs, how.operands, strict=True)
        if axis is not None
    ]
