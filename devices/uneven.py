"""A batch that does not divide by the replicas: how layout rules are queried about its pieces.

Each replica holds ceil(rows / replicas) rows; the last ones hold padding after the real rows, or
padding only. Rules do not take padding into account. If a rule returns sharded results for sharded
operands, its operands may be split between any two rows. So each row of the results depends only on
the same row of the operands, and results from padding are padding. If a rule returns partial
results, its `fill` gives the padding value that keeps padding out of the result. If it has no
`fill`, operands are gathered without the padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from graphc.errors import LayoutError
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.core.layout_rules import replicated


def batch_layout(axis: int, rows: int, replicas: int) -> Layout:
    """The layout of a batch with this many rows along `axis`."""
    if rows % replicas == 0:
        return Sharded(axis)
    if rows == 1:
        return REPLICATED  # for layout rules, an axis of one element is a broadcast axis
    return Sharded(axis, rows)


def is_uneven(layout: Layout) -> bool:
    """Whether pieces with this layout contain padding."""
    return type(layout) is Sharded and layout.rows is not None


def divisor(rows: int | None, replicas: int | Fraction) -> int | Fraction:
    """The number by which the sizes of sharded axes must divide: see `LayoutContext`."""
    return replicas if rows is None else Fraction(rows, -(-rows // int(replicas)))


def piece_type(type: TensorType, layout: Sharded, replicas: int) -> TensorType:
    """The type of one replica's piece.

    Raises:
        LayoutError: the axis cannot be split in this way.
    """
    axis, size = layout.axis, type.shape[layout.axis]
    by = divisor(layout.rows, replicas)
    if not isinstance(size, int) or size % by:
        raise LayoutError(
            f"{type} cannot be cut into {replicas} pieces along axis {axis}, {layout}"
        )
    return TensorType(type.dtype, (*type.shape[:axis], int(size // by), *type.shape[axis + 1 :]))


def plan_unevenly(context: LayoutContext, node: Node, layouts: Sequence[Layout]) -> LayoutPlan:
    """The answer of the rule of a node that has pieces of uneven batches among its operands.

    All of them are treated as pieces of one batch: the batch of the first operand for which this is
    possible. If it is possible for none, operands are gathered.
    """
    for rows in dict.fromkeys(lies.rows for lies in layouts if isinstance(lies, Sharded)):
        plan = _Batch(context, rows).plan(node, layouts)
        if plan is not None:
            return plan
    return replicated(context, node, *layouts)


class _Uncut(Exception):
    """A size that cannot be split between the rows of a batch."""


class _Batch:
    """The `LayoutContext` of a rule whose sharded operands are pieces of a batch of `rows`."""

    catalogue: Mapping[str, OpDef]
    replicas: int | Fraction

    def __init__(self, context: LayoutContext, rows: int | None) -> None:
        self.catalogue = context.catalogue
        self.replicas = divisor(rows, context.replicas)
        self._context = context
        self._rows = rows

    def plan(self, node: Node, layouts: Sequence[Layout]) -> LayoutPlan | None:
        """The rule's answer, or None if it cannot be applied."""
        rule = node.op.layout or replicated
        if (
            node.regions and self._rows is not None
        ):  # the other sharded operands are not pieces of this batch
            layouts = [
                REPLICATED if isinstance(lies, Sharded) and lies.rows is None else lies
                for lies in layouts
            ]
        try:
            plan = rule(self, node, *map(_plain, layouts))
            operands = self._cut(plan.operands, [t.type for t in node.inputs])
            results = self._cut(plan.results, [t.type for t in node.outputs])
        except _Uncut:
            return None
        contracts = any(map(is_uneven, operands)) and not all(
            isinstance(layout, Sharded) for layout in results
        )
        if contracts and plan.fill is None and plan.regions is None:
            return None
        return replace(plan, operands=operands, results=results)

    def replicate_region(
        self, region: Program, inputs: Sequence[Layout], required: Sequence[Layout | None]
    ) -> tuple[Program, list[Layout]]:
        """Works as in the replicate pass. Results of other batches are made whole."""
        types = [t.type for t in region.output_tensors()]
        given = self._cut(inputs, [t.type for t in region.input_tensors()])
        wanted = [
            None if lies is None else self._cut([lies], [type])[0]
            for lies, type in zip(required, types, strict=True)
        ]
        local, results = self._context.replicate_region(region, given, wanted)
        strange = [self._is_strange(lies, type) for lies, type in zip(results, types, strict=True)]
        if any(strange):
            wanted = [
                REPLICATED if other else lies for lies, other in zip(wanted, strange, strict=True)
            ]
            local, results = self._context.replicate_region(region, given, wanted)
        return local, list(map(_plain, results))

    def _cut(self, layouts: Sequence[Layout], types: Sequence[TensorType]) -> list[Layout]:
        return [
            self._lies(layout, type) if isinstance(layout, Sharded) else layout
            for layout, type in zip(layouts, types, strict=True)
        ]

    def _lies(self, layout: Sharded, type: TensorType) -> Sharded:
        """The layout, as a layout of pieces of this batch."""
        size = type.shape[layout.axis]
        if not isinstance(size, int) or size % self.replicas:
            raise _Uncut
        return Sharded(layout.axis, self._rows)

    def _is_strange(self, layout: Layout, type: TensorType) -> bool:
        """Whether a region's result is split in another way than this batch."""
        if not isinstance(layout, Sharded):
            return False
        try:
            return self._lies(layout, type) != layout
        except _Uncut:
            return True


def _plain(layout: Layout) -> Layout:
    """The layout in the form that rules use."""
    return Sharded(layout.axis) if isinstance(layout, Sharded) else layout
