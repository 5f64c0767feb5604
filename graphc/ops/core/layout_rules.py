"""Layout rules shared by many operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from graphc.ir.dims import Dim, Shape
from graphc.ir.layouts import (
    REPLICATED,
    Layout,
    LayoutContext,
    LayoutPlan,
    LayoutRule,
    Partial,
    Replicated,
    Sharded,
    of_elements,
)
from graphc.ir.node import Node

SUM = Partial("sum")


def replicated(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Operands and results are replicated. For constants and operators that need all elements."""
    return LayoutPlan([REPLICATED] * len(operands), [REPLICATED] * len(node.outputs))


def output_axis(layouts: Sequence[Layout], shapes: Sequence[Shape], result: Shape) -> int | None:
    """The axis of `result` that corresponds to the axis of the first sharded operand."""
    for layout, shape in zip(layouts, shapes, strict=True):
        if isinstance(layout, Sharded) and shape[layout.axis] != 1:
            return layout.axis + len(result) - len(shape)
    return None


def follow_axis(shape: Shape, result: Shape, axis: int) -> Layout:
    """The layout of an operand of `shape` if the broadcast `result` is sharded along `axis`."""
    own = axis - (len(result) - len(shape))
    if own < 0 or shape[own] == 1:
        return REPLICATED
    return Sharded(own)


def _elementwise_plan(node: Node, operands: Sequence[Layout]) -> LayoutPlan:
    shapes = [t.type.shape for t in node.inputs]
    result = node.outputs[0].type.shape
    axis = output_axis(operands, shapes, result)
    if axis is None:
        return LayoutPlan([REPLICATED] * len(operands), [REPLICATED] * len(node.outputs))
    required = [follow_axis(shape, result, axis) for shape in shapes]
    return LayoutPlan(required, [Sharded(axis)] * len(node.outputs))


@of_elements
def elementwise(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """The results have the layout of the operands. Partial operands are reduced first."""
    return _elementwise_plan(node, operands)


@of_elements
def additive(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Elementwise and linear in all operands together (add, subtract, negate).

    A sum of partial sums is a partial sum. So is the sum of a partial sum and a replicated value,
    which one replica then adds.
    """
    if SUM in operands and all(x == SUM or isinstance(x, Replicated) for x in operands):
        return LayoutPlan([SUM] * len(operands), [SUM] * len(node.outputs))
    return _elementwise_plan(node, operands)


def linear_in(*positions: int) -> LayoutRule:
    """Elementwise, and linear in each single operand at `positions` while the others are fixed.

    A partial sum at such a position gives a partial sum if the other operands are replicated
    (multiply, divide).
    """

    @of_elements
    def rule(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
        partial = [i for i, layout in enumerate(operands) if layout == SUM]
        others = [layout for i, layout in enumerate(operands) if i not in partial]
        if (
            len(partial) == 1
            and partial[0] in positions
            and all(isinstance(layout, Replicated) for layout in others)
        ):
            return LayoutPlan(list(operands), [SUM] * len(node.outputs))
        return _elementwise_plan(node, operands)

    return rule


def map_axis(axis_of: Callable[[Node, int], int | None]) -> LayoutRule:
    """For operators whose results lack an axis of the first operand, such as reductions.

    `axis_of(node, axis)` returns the position of the operand's sharded axis in the results. None
    means that the operator needs the whole axis; the operand is then gathered.
    """

    def rule(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
        first, rest = operands[0], [REPLICATED] * (len(operands) - 1)
        if isinstance(first, Sharded):
            axis = axis_of(node, first.axis)
            if axis is not None:
                return LayoutPlan([first, *rest], [Sharded(axis)] * len(node.outputs))
        return LayoutPlan([REPLICATED, *rest], [REPLICATED] * len(node.outputs))

    return rule


def same_axis(keeps: Callable[[Node, int], bool], *, linear: bool = False) -> LayoutRule:
    """For operators whose operands and results are all sharded along the same axis.

    `keeps(node, axis)` returns whether they can be sharded along it; otherwise they are gathered.
    `linear`: partial sums stay partial.
    """

    def rule(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
        for layout in operands:
            if (isinstance(layout, Sharded) and keeps(node, layout.axis)) or (
                linear and layout == SUM
            ):
                return LayoutPlan([layout] * len(operands), [layout] * len(node.outputs))
        return replicated(ctx, node, *operands)

    return rule


def not_last(node: Node, axis: int) -> bool:
    """For `same_axis`: every axis but the last one."""
    return axis != node.inputs[0].ndim - 1


def not_along(node: Node, axis: int) -> bool:
    """For `same_axis`: every axis but the attribute `axis`."""
    return bool(axis != node.attrs["axis"])


def moves(
    place: Callable[[LayoutContext, Node, int], tuple[int, Mapping[str, Any] | None] | None],
) -> LayoutRule:
    """For operators that only move the elements of one operand: partial stays partial.

    `place(ctx, node, axis)` returns the position of the operand's sharded axis in the results, and
    the changed local attributes (or None). It returns None if the operand must be gathered.
    """

    def rule(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
        (x,) = operands
        if isinstance(x, Partial):
            return LayoutPlan([x], [x] * len(node.outputs))
        placed = place(ctx, node, x.axis) if isinstance(x, Sharded) else None
        if placed is None:
            return replicated(ctx, node, x)
        axis, attrs = placed
        return LayoutPlan([x], [Sharded(axis)] * len(node.outputs), attrs)

    return rule


def local_dims(dims: Sequence[Dim], axis: int, replicas: int | Fraction) -> Shape:
    """The `dims` of one replica's piece if `axis` is sharded."""
    piece = dims[axis] // replicas  # of ints: the program is bound
    return (*dims[:axis], piece, *dims[axis + 1 :])
