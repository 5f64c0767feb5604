"""Operators that can compute with the axes of their operands in another order.

An order of the axes of a tensor `t` is a permutation `order`: the tensor is stored as
`transpose(t, order)`. A rule says what a node becomes if its result is stored in an order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from graphc.ir.node import Node
from graphc.ir.opdef import OpDef
from graphc.ir.program import is_pure
from graphc.ir.types import TensorType
from graphc.ops.arrays.joining import CONCATENATE, SPLIT
from graphc.ops.arrays.shape import BROADCAST_TO
from graphc.ops.arrays.slicing import PAD, REVERSE, SLICE
from graphc.ops.elementwise.activation import LOG_SOFTMAX, SOFTMAX
from graphc.ops.nn.normalization import VARIANCE
from graphc.ops.reductions.reduction_rules import PLAIN_REDUCTIONS

Order: TypeAlias = tuple[int, ...]
Attrs: TypeAlias = dict[str, Any]


class Reordered(NamedTuple):
    """A node that computes with reordered axes.

    Attributes:
        operands: the order of each operand; `()` for a scalar. An order may be longer than the rank
            of its operand: the operand then first gets leading axes of size 1.
        results: the order of each result.
        attrs: the attributes of the node.
    """

    operands: tuple[Order, ...]
    results: tuple[Order, ...]
    attrs: Attrs


def inverse(order: Order) -> Order:
    """The order that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def compose(first: Order, then: Order) -> Order:
    """The order of `transpose(transpose(t, first), then)`."""
    return tuple([first[axis] for axis in then])


def lengthened(order: Order, rank: int) -> Order:
    """The order of a tensor that first gets leading axes of size 1, up to `rank` axes."""
    added = rank - len(order)
    return (*range(added), *(axis + added for axis in order))


def is_identity(order: Order) -> bool:
    """Whether all axes stay where they are."""
    return order == tuple(range(len(order)))


def is_free(type: TensorType, order: Order) -> bool:
    """Whether no element moves: the axes with more than one element stay in their order."""
    moved = [axis for axis in order if type.shape[axis] != 1]
    return moved == sorted(moved)


def reordered_type(type: TensorType, order: Order) -> TensorType:
    """The type of `transpose(t, order)` for a tensor `t` of this type."""
    return TensorType(type.dtype, tuple([type.shape[axis] for axis in order]))


def by_operand(node: Node, position: int, order: Order) -> Reordered | None:
    """The node if the operand at `position` is stored in `order`; None if it has no such form."""
    operand = node.inputs[position]
    rule = _RULES.get(node.op)
    result = node.outputs[0].type if len(node.outputs) == 1 else operand.type
    if rule is None:
        return _elementwise(node, order) if operand.type.shape == result.shape else None
    if node.op is BROADCAST_TO and operand.type.rank != result.rank:
        return None
    return rule(node, order) if position == 0 or node.op is CONCATENATE else None


def by_result(node: Node, order: Order) -> Reordered | None:
    """The node if its first result is stored in `order`; None if it has no such form."""
    if node.op in PLAIN_REDUCTIONS or (node.op not in _RULES and len(node.outputs) != 1):
        return None
    return _RULES.get(node.op, _elementwise)(node, order)


def _elementwise(node: Node, order: Order) -> Reordered | None:
    named = not node.attrs.keys().isdisjoint(("axis", "axes"))
    if named or not node.op.is_elementwise or node.regions or not is_pure(node):
        return None
    return _alike(node, order)


def _alike(node: Node, order: Order, **attrs: Any) -> Reordered:
    """A node whose operands, except scalars, and results all have the same axes."""
    operands = tuple([order if t.type.shape else () for t in node.inputs])
    return Reordered(operands, (order,) * len(node.outputs), dict(node.attrs) | attrs)


def _axes(node: Node, order: Order) -> tuple[int, ...]:
    return tuple(sorted(order.index(axis) for axis in node.attrs["axes"]))


def _reduction(node: Node, order: Order) -> Reordered:
    axes = node.attrs["axes"]
    kept = [axis for axis in range(len(order)) if axis not in axes]
    left = tuple([kept.index(axis) for axis in order if axis in kept])
    result = order if node.attrs["keepdims"] else left
    return Reordered((order,), (result,), dict(node.attrs) | {"axes": _axes(node, order)})


def _softmax(node: Node, order: Order) -> Reordered | None:
    """Not along the last axis: that is how the weights of attention are recognised."""
    return None if node.attrs["axis"] == len(order) - 1 else _along_axis(node, order)


def _along_axis(node: Node, order: Order) -> Reordered:
    return _alike(node, order, axis=order.index(node.attrs["axis"]))


def _by_axis(*names: str) -> Callable[[Node, Order], Reordered]:
    """A rule for an operator whose attributes `names` have an item for each axis."""

    def rule(node: Node, order: Order) -> Reordered:
        return _alike(node, order, **{name: compose(node.attrs[name], order) for name in names})

    return rule


def _broadcast_to(node: Node, order: Order) -> Reordered:
    operand = order if node.inputs[0].type.shape else ()
    shape = tuple([node.attrs["shape"][axis] for axis in order])
    return Reordered((operand,), (order,), {"shape": shape})


_RULES: Final[Mapping[OpDef, Callable[[Node, Order], Reordered | None]]] = {
    **dict.fromkeys(PLAIN_REDUCTIONS, _reduction),
    VARIANCE: lambda node, order: _alike(node, order, axes=_axes(node, order)),
    SOFTMAX: _softmax,
    LOG_SOFTMAX: _softmax,
    CONCATENATE: _along_axis,
    SPLIT: _along_axis,
    PAD: _by_axis("pads"),
    SLICE: _by_axis("starts", "limits", "strides"),
    REVERSE: lambda node, order: _alike(node, order, axes=_axes(node, order)),
    BROADCAST_TO: _broadcast_to,
}
