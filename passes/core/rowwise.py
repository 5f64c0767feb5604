"""What a node does to the rows of its operands, as its operator's layout rule tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from graphc.ir.layouts import REPLICATED, Layout, Pieces, Replicated, Sharded
from graphc.ir.node import EMPTY, Node
from graphc.ir.program import is_pure
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.core.layout_rules import SUM

Axes = tuple[int | None, ...]
_SIZED = {BROADCAST_TO: "shape", RESHAPE: "shape"}  # attributes that hold the result's sizes


class ByRows(NamedTuple):
    """How a node computes row by row.

    Attributes:
        operands: for each operand the axis that its rows lie along; None: each row takes all of
            it.
        axis: that of the result; None: the result is the sum of what each row gives.
        attrs: attributes to change for a part of the rows, but for sizes of the result.
    """

    operands: Axes
    axis: int | None
    attrs: Mapping[str, Any] = EMPTY


def by_rows(node: Node, axes: Sequence[int | None], rows: int) -> ByRows | None:
    """How `node` computes row by row where operands have `rows` rows along `axes` (None: it is
    not known yet whether the operand is needed whole); None where it does not.

    That an operator may be cut along an axis for any number of replicas, each of which does the
    same to its piece, means that each row of the result depends on that row of the operands
    alone, and not on its place: a replica might hold one row.
    """
    rule = node.op.layout
    if rule is None or len(node.outputs) != 1 or node.regions or not is_pure(node):
        return None
    given: list[Layout] = [REPLICATED if axis is None else Sharded(axis) for axis in axes]
    plan = rule(Pieces(CATALOGUE, rows), node, *given)
    operands = tuple(
        layout.axis if isinstance(layout, Sharded) else None for layout in plan.operands
    )
    if plan.fold_replica or plan.regions is not None:
        return None
    for asked, layout, wanted in zip(given, plan.operands, operands, strict=True):
        if wanted is None and not isinstance(layout, Replicated):
            return None
        if isinstance(asked, Sharded) and layout != asked:
            return None
    (result,) = plan.results
    attrs = plan.attrs or EMPTY
    if result == SUM:
        return ByRows(operands, None, attrs)
    if not isinstance(result, Sharded) or node.outputs[0].type.shape[result.axis] != rows:
        return None
    if node.op in _SIZED:
        attrs = EMPTY
    return None if attrs else ByRows(operands, result.axis)


def attrs_of(node: Node, how: ByRows, rows: Any) -> Mapping[str, Any]:
    """The attributes of `node` for so many rows in place of all."""
    name = _SIZED.get(node.op)
    if name is None or how.axis is None:
        return {**node.attrs, **how.attrs} if how.attrs else node.attrs
    return {**node.attrs, name: resized(node.attrs[name], how.axis, rows)}


def resized(shape: Sequence[Any], axis: int, rows: Any) -> tuple[Any, ...]:
    """`shape` with so many rows along `axis`."""
    return (*shape[:axis], rows, *shape[axis + 1 :])
