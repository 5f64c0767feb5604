"""Follows the operand of a softmax back to the product of queries and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node, Tensor, by_identity
from graphc.ops.arrays.creation import IOTA
from graphc.ops.arrays.shape import BROADCAST_TO
from graphc.ops.core.emit import CAST, CONSTANT
from graphc.ops.elementwise.arithmetic import ADD, SUBTRACT
from graphc.ops.elementwise.comparison import GREATER_EQUAL, LESS_EQUAL, WHERE
from graphc.passes.attention.attention_views import (
    Axes,
    Label,
    Labels,
    Peeled,
    Product,
    axis_map,
    own_axes,
    peel,
    product_of,
    renamed,
    scaling,
)
from graphc.passes.core.rules import Rewriter

_NOTHING = -1e4  # a key with a logit of at most this value counts as masked


@by_identity
class Mask(NamedTuple):
    """A tensor that is added to the logits, or that selects logits.

    Attributes:
        tensor: broadcast to the logits.
        labels: the labels of its axes.
        bias: whether it is added.
        inverted: a bool mask is true for masked keys; a bias is subtracted.
        fill: the value that replaces masked logits.
    """

    tensor: Tensor
    labels: Labels
    bias: bool
    inverted: bool = False
    fill: float = 0.0


@by_identity
class View(NamedTuple):
    """A tensor with a label for each axis that is not of size 1."""

    root: Tensor
    labels: Labels


@dataclass(frozen=True)
class Logits:
    """Scaled products of queries and keys, with masks.

    Attributes:
        query, key: the tensors multiplied.
        batch, queries, source: the labels of the axes that both have, of those that only the
            queries have, and of the axis that only the keys have.
        scale: the factor of the products.
        masks: in the order in which they are applied.
        inside: all tensors from the product on.
    """

    query: View
    key: View
    batch: tuple[Label, ...]
    queries: tuple[Label, ...]
    source: Label
    scale: float
    masks: tuple[Mask, ...]
    inside: tuple[Tensor, ...]

    @property
    def time(self) -> Label:
        """The label of the query axis. Other axes that only the queries have are heads."""
        return self.queries[-1]


@dataclass
class _Chain:
    """The scale, masks and tensors found so far."""

    scale: float = 1.0
    masks: list[Mask] = field(default_factory=list)
    inside: list[Tensor] = field(default_factory=list)


class Finder:
    """Finds logits in one program.

    Args:
        made: tensor -> its producer.
    """

    def __init__(self, made: Mapping[Tensor, Node]) -> None:
        self.made = made
        constants = Rewriter()
        constants.made = dict(made)
        self.scalar = constants.scalar

    def logits(self, tensor: Tensor, axis: int) -> Logits | None:
        """`tensor` as logits with keys along `axis`; None if it is not. Axes are labelled by their
        numbers."""
        names = own_axes(tensor)
        if names[axis] is None:
            return None
        found = self._down(tensor, names, _Chain())
        if found is None:
            return None
        node, axes, chain = found
        product = product_of(node)
        return None if product is None else self._named(product, axes, axis, chain)

    def _down(self, tensor: Tensor, names: Axes, chain: _Chain) -> tuple[Node, Axes, _Chain] | None:
        """The product, the labels of its axes, and what is applied to it; None if there is no
        product."""
        while (node := self.made.get(tensor)) is not None:
            chain.inside.append(tensor)
            if product_of(node) is not None:
                return node, names, chain
            below: Tensor | None = None
            if (moved := axis_map(node)) is not None:
                below = node.inputs[0]
                names = renamed(moved, names, len(below.type.shape))
            elif (scaled := scaling(node, self.scalar)) is not None:
                below, c = scaled
                chain.scale *= c
            elif node.op is CAST and is_floating(node.inputs[0].type.dtype):
                below = node.inputs[0]
            elif node.op is WHERE:
                below = self._where(node, names, chain)
            elif node.op in (ADD, SUBTRACT) and chain.scale == 1:  # else the bias is scaled too
                return self._sum(node, names, chain)
            if below is None:
                return None
            tensor = below
        return None

    def _where(self, node: Node, names: Axes, chain: _Chain) -> Tensor | None:
        condition, x, y = node.inputs
        for below, other, inverted in ((x, y, False), (y, x, True)):
            fill = self.scalar(other)
            if not isinstance(fill, float):
                continue
            fill *= chain.scale  # its value at the softmax
            if fill <= _NOTHING:
                if below.type.shape != node.outputs[0].type.shape:
                    return None
                labels = broadcast_labels(condition, names)
                chain.masks.append(Mask(condition, labels, False, inverted, fill))
                return below
        return None

    def _sum(self, node: Node, names: Axes, chain: _Chain) -> tuple[Node, Axes, _Chain] | None:
        a, b = node.inputs
        shape = node.outputs[0].type.shape
        taken_off = node.op is SUBTRACT
        for below, bias in ((a, b),) if taken_off else ((a, b), (b, a)):
            if below.type.shape != shape or not is_floating(bias.type.dtype):
                continue
            mask = Mask(bias, broadcast_labels(bias, names), True, taken_off)
            tried = _Chain(chain.scale, [*chain.masks, mask], list(chain.inside))
            found = self._down(below, names, tried)
            if found is not None:
                return found
        return None

    def _named(self, product: Product, names: Axes, axis: int, chain: _Chain) -> Logits | None:
        owners = [
            {names[part] for part in parts if part is not None and part >= 0} - {None}
            for parts in product.parts
        ]
        if axis not in owners[0] ^ owners[1]:
            return None
        q, k = (1, 0) if axis in owners[0] else (0, 1)
        order = sorted(name for name in names if name is not None)  # the order before the softmax
        batch = tuple(n for n in order if n in owners[q] and n in owners[k])
        queries = tuple(n for n in order if n in owners[q] and n not in owners[k])
        if owners[k] - owners[q] != {axis} or not queries:
            return None
        views, scale = [], chain.scale
        for i in (q, k):
            peeled = peel(product.operands[i], self.made, self.scalar)
            views.append(view_of(peeled, product.parts[i], names, "depth"))
            scale *= peeled.factor
        return Logits(
            views[0], views[1], batch, queries, axis, scale, tuple(chain.masks[::-1]),
            tuple(chain.inside),
        )  # fmt: skip

    def is_causal(self, mask: Mask, logits: Logits) -> bool:
        """Whether query i sees exactly the keys 0 to i."""
        if mask.inverted:
            return False
        tensor, labels = mask.tensor, mask.labels
        node = self.made.get(tensor)
        if mask.bias:  # 0 where a key is seen
            if node is not None and node.op is WHERE:
                if not self._adds_nothing_or_all(node):
                    return False
                tensor = node.inputs[0]
                labels = _last(labels, tensor)
            elif node is not None and node.op is CONSTANT:
                value = node.attrs["value"]
                if np.any((value != 0) & ~(value <= _NOTHING)):
                    return False
                return _is_lower(value == 0, labels, logits)
        return self._is_lower(tensor, labels, logits)

    def _adds_nothing_or_all(self, node: Node) -> bool:
        zero, fill = (self.scalar(t) for t in node.inputs[1:])
        return zero == 0 and isinstance(fill, float) and fill <= _NOTHING

    def _is_lower(self, tensor: Tensor, labels: Labels, logits: Logits) -> bool:
        """Whether it is true exactly where the index of the query is at least that of the key."""
        node = self.made.get(tensor)
        if node is None:
            return False
        if node.op is CONSTANT:
            return _is_lower(node.attrs["value"], labels, logits)
        if node.op in (GREATER_EQUAL, LESS_EQUAL):
            rows, columns = node.inputs if node.op is GREATER_EQUAL else node.inputs[::-1]
            return self._counts(rows, labels, logits.time) and self._counts(
                columns, labels, logits.source
            )
        if node.op is WHERE and [self.scalar(t) for t in node.inputs[1:]] == [True, False]:
            return self._is_lower(node.inputs[0], _last(labels, node.inputs[0]), logits)
        below = seen_through(node, labels)
        return below is not None and self._is_lower(*below, logits)

    def _counts(self, tensor: Tensor, labels: Labels, along: Label) -> bool:
        """Whether each element equals its index along the axis with that label."""
        labels, node = _last(labels, tensor), self.made.get(tensor)
        if node is None or node.op is IOTA:
            return node is not None and labels[node.attrs["axis"]] == along
        below = seen_through(node, labels)
        return below is not None and self._counts(*below, along)

    def plain(self, tensor: Tensor, labels: Labels) -> View:
        """`tensor` before it was broadcast."""
        node = self.made.get(tensor)
        below = None if node is None else seen_through(node, labels)
        return View(tensor, labels) if below is None else self.plain(*below)


def seen_through(node: Node, labels: Labels) -> tuple[Tensor, Labels] | None:
    """The operand of a node that only moves axes or broadcasts, and the labels of its axes."""
    moved = axis_map(node)
    if moved is not None:
        return node.inputs[0], renamed(moved, labels, len(node.inputs[0].type.shape))
    if node.op is BROADCAST_TO:
        return node.inputs[0], broadcast_labels(node.inputs[0], labels)
    return None


def _last(labels: Labels, tensor: Tensor) -> Labels:
    return labels[len(labels) - len(tensor.type.shape) :]


def _is_lower(value: np.ndarray[Any, Any], labels: Labels, logits: Logits) -> bool:
    if [label for label in labels if label is not None] != [logits.time, logits.source]:
        return False
    matrix = value.reshape([dim for dim in value.shape if dim != 1])
    return bool(np.array_equal(matrix, np.tri(*matrix.shape, dtype=bool)))


def broadcast_labels(tensor: Tensor, names: Labels) -> Labels:
    """The labels of the axes of a tensor that is broadcast to axes labelled `names`."""
    pairs = zip(tensor.type.shape, _last(names, tensor), strict=True)
    return tuple(None if dim == 1 else name for dim, name in pairs)


def view_of(peeled: Peeled, parts: Axes, names: Labels, summed: str) -> View:
    """The root of an operand of a product, whose result has axes labelled `names`. Contracted axes
    are labelled (summed, 0), (summed, 1), ..."""
    own: list[Label | None] = []
    for part in parts:
        if part is None:
            own.append(None)
        else:
            own.append(names[part] if part >= 0 else (summed, -1 - part))
    return View(peeled.root, peeled.labels(own))
