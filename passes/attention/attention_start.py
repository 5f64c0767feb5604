"""Finds where an attention may begin: at a softmax in one of its forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphc.ir.node import Node, Tensor, is_among
from graphc.ops.elementwise.activation import LOG_SOFTMAX, SOFTMAX
from graphc.ops.elementwise.arithmetic import MAXIMUM, SUBTRACT
from graphc.ops.elementwise.comparison import IS_FINITE, WHERE
from graphc.ops.elementwise.transcendental import EXP
from graphc.ops.reductions.reduction import LOG_SUM_EXP, REDUCE_MAX
from graphc.passes.attention.attention_algebra import (
    EXPONENTIAL,
    GREATEST,
    LOGIT,
    SHIFTED,
    WEIGHTS,
    of_atom,
)
from graphc.passes.attention.attention_logits import Finder, broadcast_labels, seen_through
from graphc.passes.attention.attention_terms import Term
from graphc.passes.attention.attention_views import Labels, own_axes


class Start(NamedTuple):
    """The first values of an attention.

    Attributes:
        logits, axis: the operand of the softmax, and the axis of its keys.
        known: values computed from the logits; the last is the start itself.
        helpers: the nodes between the logits and these values.
    """

    logits: Tensor
    axis: int
    known: dict[Tensor, Term]
    helpers: Sequence[Node]


def start_of(node: Node, finder: Finder) -> Start | None:
    """The start at a softmax or an exponential; None if the node is not one."""
    if node.op is SOFTMAX:
        return _weights(node, node.inputs[0], node.attrs["axis"], [])
    below = finder.made.get(node.inputs[0]) if node.op is EXP else None
    if below is None:
        return None
    if below.op is LOG_SOFTMAX:
        return _weights(node, below.inputs[0], below.attrs["axis"], [below])
    return _of_difference(node, below, finder) if below.op is SUBTRACT else None


def _weights(node: Node, logits: Tensor, axis: int, helpers: list[Node]) -> Start:
    return Start(logits, axis, {node.outputs[0]: Term(own_axes(logits), WEIGHTS)}, helpers)


def _of_difference(node: Node, shifted: Node, finder: Finder) -> Start | None:
    """An exponential of logits minus their maximum, or minus the logarithm of their sum."""
    logits, tensor = shifted.inputs
    own = own_axes(logits)
    labels = broadcast_labels(tensor, own)
    helpers, greatest = [shifted], dict[Tensor, Term]()
    while (below := finder.made.get(tensor)) is not None:
        helpers.append(below)
        greatest[tensor] = Term(labels, of_atom(GREATEST))
        if below.op is REDUCE_MAX or below.op is LOG_SUM_EXP:
            axis = _axis_of(below, logits, labels)
            if axis is None:
                return None
            if below.op is LOG_SUM_EXP:
                return _weights(node, logits, axis, helpers)
            known = {
                logits: Term(own, of_atom(LOGIT)),
                **greatest,
                shifted.outputs[0]: Term(own, SHIFTED),
                node.outputs[0]: Term(own, of_atom(EXPONENTIAL)),
            }
            return Start(logits, axis, known, helpers)
        if below.op is MAXIMUM:  # with minus infinity
            least = [t for t in below.inputs if finder.scalar(t) == -float("inf")]
            tensor = next((t for t in below.inputs if not is_among(t, least)), tensor)
            labels = broadcast_labels(tensor, labels)
            if not least:
                return None
        elif (finite := _if_finite(below, finder)) is not None:
            tensor = below.inputs[1]
            helpers.append(finite)
        elif (seen := seen_through(below, labels)) is not None:
            tensor, labels = seen
        else:
            return None
    return None


def _if_finite(node: Node, finder: Finder) -> Node | None:
    """The test in `where(isfinite(x), x, 0)`, which JAX subtracts from logits."""
    if node.op is not WHERE:
        return None
    condition, x, other = node.inputs
    test = finder.made.get(condition)
    if test is None or test.op is not IS_FINITE or test.inputs[0] is not x:
        return None
    whole = x.type.shape == node.outputs[0].type.shape
    return test if whole and finder.scalar(other) == 0 else None


def _axis_of(node: Node, logits: Tensor, labels: Labels) -> int | None:
    """The axis along which `node` reduces `logits`; None if there are several, or if the result,
    whose axes are `labels`, is combined with other rows."""
    axes = node.attrs["axes"]
    if node.inputs[0] is not logits or len(axes) != 1:
        return None
    own = [i for i, dim in enumerate(logits.type.shape) if dim != 1 and i not in axes]
    axis: int = axes[0]
    return axis if [label for label in labels if label is not None] == own else None
