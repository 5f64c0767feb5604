"""Determines which operators compute each row of the result from the same row of the operands.

The layout rule of an operator determines this. If the operator may be split along an axis into any
number of pieces, each of which is computed in the same way, then it may be split into single rows.
So each row of the result depends only on the same row of the operands, and not on its position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graphc.ir.layouts import REPLICATED, LayoutRule, Partial, Pieces, Replicated, Sharded, axis_of
from graphc.ir.node import EMPTY

if TYPE_CHECKING:
    from graphc.ir.node import Node
    from graphc.ir.opdef import OpDef


class ByRows(NamedTuple):
    """How a node computes row by row.

    Attributes:
        operands: for each operand the axis of its rows; None if each row needs the whole operand.
        axis: the axis of the result's rows; None if the result is the sum over the rows.
        attrs: the attributes of the node for a single row that differ from those for all rows.
    """

    operands: tuple[int | None, ...]
    axis: int | None
    attrs: Mapping[str, Any] = EMPTY


def by_rows(
    rule: LayoutRule,
    catalogue: Mapping[str, OpDef],
    node: Node,
    axes: Sequence[int | None],
    rows: int,
) -> ByRows | None:
    """See `OpDef.by_rows`. `rule` is the layout rule of the node's operator."""
    if len(node.outputs) != 1:
        return None
    given = [REPLICATED if axis is None else Sharded(axis) for axis in axes]
    plan = rule(Pieces(catalogue, rows), node, *given)
    if plan.fold_replica or plan.regions is not None:
        return None
    for have, required in zip(given, plan.operands, strict=True):
        if not isinstance(required, Sharded | Replicated):
            return None
        if isinstance(have, Sharded) and required != have:
            return None
    operands = tuple(map(axis_of, plan.operands))
    (result,) = plan.results
    attrs = plan.attrs or EMPTY
    if result == Partial("sum"):
        return ByRows(operands, None, attrs)
    if not isinstance(result, Sharded) or node.outputs[0].type.shape[result.axis] != rows:
        return None
    return ByRows(operands, result.axis, attrs)
