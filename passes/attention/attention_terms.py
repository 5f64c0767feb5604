"""The known values around one softmax: see `attention_match`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node, Tensor, by_identity, is_among
from graphc.ops.core.emit import CAST
from graphc.ops.elementwise.arithmetic import DIVIDE, MULTIPLY
from graphc.ops.structure.state import IDENTITY
from graphc.passes.attention.attention_algebra import Poly, Slope, as_logit_slope, constant, of_atom
from graphc.passes.attention.attention_logits import Finder, Logits, View, broadcast_labels, view_of
from graphc.passes.attention.attention_views import Label, Labels, Product, peel, product_of


@by_identity
class Term(NamedTuple):
    """A value computed from the weights: the labels of its axes, and its polynomial."""

    labels: Labels
    poly: Poly


class End(NamedTuple):
    """A value that leaves the attention.

    Attributes:
        kind: "result", "value", "query", "key" (the adjoints of these) or "bias".
        tensor: the value.
        labels: the labels of its axes.
        factor: its multiple of the result or of the adjoint.
        slope: the adjoint of the weights that it derives from; None for the result.
    """

    kind: str
    tensor: Tensor
    labels: Labels
    factor: float
    slope: Slope | None = None


class NoMatch(Exception):
    """Raised if the nodes are not an attention."""


@dataclass
class Terms:
    """Values computed from the weights of one softmax, and the ends.

    Attributes:
        nodes: the nodes of the program, in order.
        users: tensor -> the indices in `nodes` of its users; `len(nodes)` for an output of the
            program.
        finder: for that program.
        logits: the operand of the softmax.
        terms: the values.
        ends: the values that leave the attention.
        value: the tensor that the weights are multiplied with, once known.
        slopes: the adjoints of the result, by the adjoints of the weights that they cause.
        inside: tensors that no other node may need.
        done: the indices of nodes that are explained.
        waiting: the indices of nodes to process.
    """

    nodes: Sequence[Node]
    users: Mapping[Tensor, list[int]]
    finder: Finder
    logits: Logits
    terms: dict[Tensor, Term] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    value: View | None = None
    slopes: dict[Slope, View] = field(default_factory=dict)
    inside: set[Tensor] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)
    _slope_labels: dict[Tensor, tuple[Labels, Slope, float]] = field(default_factory=dict)

    def learn(self, tensor: Tensor, term: Term) -> None:
        """Records `tensor` as `term`, and schedules its users."""
        self.terms[tensor] = term
        self.inside.add(tensor)
        for place in self.users.get(tensor, ()):
            if place not in self.done:
                heapq.heappush(self.waiting, place)

    def leads_nowhere(self, tensor: Tensor) -> bool:
        """Whether only replaced nodes need `tensor`, directly or indirectly."""
        waiting, seen = [tensor], {tensor}
        while waiting:
            for place in self.users.get(waiting.pop(), ()):
                if place in self.done:
                    continue
                if place == len(self.nodes):
                    return False
                more = [t for t in self.nodes[place].outputs if t not in seen]
                seen.update(more)
                waiting += more
        return True

    def is_of_bias(self, labels: Labels) -> bool:
        """Whether a bias has exactly these axes."""
        return any(
            mask.bias and set(mask.labels) - {None} == set(labels) - {None}
            for mask in self.logits.masks
        )

    def logit_slope(self, poly: Poly, *, of_bias: bool = False) -> tuple[Slope, float]:
        """The adjoint of the weights, and the factor, in an adjoint of the logits with the same
        masks.

        The adjoint of a bias that was added after a mask lacks the mask. If the weights of masked
        keys are 0, this makes no difference.
        """
        found = as_logit_slope(poly)
        masks = {
            self.finder.plain(mask.tensor, mask.labels).root: mask
            for mask in self.logits.masks
            if not mask.bias
        }
        if found is None or not found.masks <= masks.keys():
            raise NoMatch
        for root in masks.keys() - found.masks:
            mask = masks[root]
            vanishes = mask.fill == -math.inf or self.finder.is_causal(mask, self.logits)
            if not of_bias or not vanishes:
                raise NoMatch
        return found.slope, found.factor

    def operands(self, node: Node) -> tuple[Labels, Poly, Poly]:
        """Both operands of an elementwise node, and the labels of the result's axes.

        If one operand is 0, an unknown factor or divisor does not matter.
        """
        rank = len(node.outputs[0].type.shape)
        known = [self.terms.get(tensor) for tensor in node.inputs]
        labels = _merged([term.labels for term in known if term is not None], rank)
        polys: list[Poly] = []
        vanishes = any(term is not None and not term.poly.terms for term in known)
        for tensor, term in zip(node.inputs, known, strict=True):
            if term is None and vanishes and node.op in (MULTIPLY, DIVIDE):
                polys.append(constant(1))
                continue
            if term is None:
                c = self.finder.scalar(tensor)
                if isinstance(c, (int, float)):
                    polys.append(constant(c))
                    continue
                term = self._slope(tensor, labels)
                labels = _merged([labels, term.labels], rank)
            polys.append(term.poly)
        return labels, polys[0], polys[1]

    def _slope(self, tensor: Tensor, labels: Labels) -> Term:
        """An operand from outside that is combined with the weights: it must be their adjoint."""
        own = list(broadcast_labels(tensor, labels))
        unknown = [i for i, dim in enumerate(tensor.type.shape) if dim != 1 and own[i] is None]
        if unknown:
            if len(unknown) > 1 or self.logits.source in own:
                raise NoMatch
            own[unknown[0]] = self.logits.source
        peeled = peel(tensor, self.finder.made, self.finder.scalar, float_cast)
        found = peeled.labels(own)
        slope, factor = self._adjoint_of_weights(peeled.root, found)
        self.inside.update((peeled.root, *peeled.through))
        for between in (tensor, peeled.root, *peeled.through):
            for place in self.users.get(between, ()):
                if is_among(self.nodes[place].outputs[0], peeled.through):
                    self.done.add(place)
        term = Term(tuple(own), constant(factor * peeled.factor) * of_atom(slope))
        self.learn(tensor, term)
        return term

    def _adjoint_of_weights(self, tensor: Tensor, labels: Labels) -> tuple[Slope, float]:
        """The adjoint of the weights as a product of the result's adjoint and the values, and its
        factor."""
        known = self._slope_labels.get(tensor)
        if known is not None:
            if known[0] != labels:
                raise NoMatch
            return known[1], known[2]
        node = self.finder.made.get(tensor)
        product = None if node is None else product_of(node)
        logits = self.logits
        everything = {*logits.batch, *logits.queries, logits.source}
        if product is None or set(labels) - {None} != everything:
            raise NoMatch
        sides = [{labels[p] for p in parts if p is not None and p >= 0} for parts in product.parts]
        v = 0 if self.logits.source in sides[0] else 1
        value, of_value = self._operand(product, v, labels)
        adjoint, of_adjoint = self._operand(product, 1 - v, labels)
        if self.logits.source in adjoint.labels:
            raise NoMatch
        # Contracted axes are labelled by the axes of the values' root.
        names: dict[Label | None, Label] = {
            label: ("value", i) for i, label in enumerate(value.labels) if isinstance(label, tuple)
        }
        value = View(value.root, tuple(names.get(label, label) for label in value.labels))
        adjoint = View(adjoint.root, tuple(names.get(label, label) for label in adjoint.labels))
        self.is_value(value)
        slope = Slope(adjoint.root)
        if self.slopes.setdefault(slope, adjoint) != adjoint:
            raise NoMatch
        self._slope_labels[tensor] = labels, slope, of_value * of_adjoint
        return slope, of_value * of_adjoint

    def is_value(self, view: View) -> None:
        """Records `view` as the values, which must be the same everywhere."""
        if self.value is None:
            own = [label for label in view.labels if not isinstance(label, tuple)]
            if set(own) - {None} != {*self.logits.batch, self.logits.source}:
                raise NoMatch
            self.value = view
        elif view != self.value:
            raise NoMatch

    def _operand(self, product: Product, i: int, labels: Labels) -> tuple[View, float]:
        peeled = peel(product.operands[i], self.finder.made, self.finder.scalar)
        return view_of(peeled, product.parts[i], labels, "value"), peeled.factor


def _merged(all_labels: Sequence[Labels], rank: int) -> Labels:
    """The labels of the axes of a result, from those of its operands."""
    merged: list[Any] = [None] * rank
    for labels in all_labels:
        for i, label in enumerate(labels, rank - len(labels)):
            if label is not None:
                if merged[i] not in (None, label):
                    raise NoMatch
                merged[i] = label
    return tuple(merged)


def float_cast(node: Node) -> Tensor | None:
    """The operand of a cast between floating dtypes, which only rounds."""
    if node.op is IDENTITY:
        return node.inputs[0]
    rounds = node.op is CAST and all(
        is_floating(t.type.dtype) for t in (node.inputs[0], node.outputs[0])
    )
    return node.inputs[0] if rounds else None
