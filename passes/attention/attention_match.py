"""Finds an attention around one softmax: the values computed from its weights and their adjoints.

It follows all uses of the softmax in program order, and records the labels of the axes of each
value and its polynomial (`attention_algebra`). Products with other tensors are the ends: the
result, and the adjoints of values, queries and keys. If another node needs one of these values,
there is no match.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphc.ir.node import Node, Tensor
from graphc.passes.attention.attention_algebra import Slope, as_weights, constant
from graphc.passes.attention.attention_logits import Finder, Logits, View
from graphc.passes.attention.attention_rules import RULES
from graphc.passes.attention.attention_start import start_of
from graphc.passes.attention.attention_terms import End, NoMatch, Term, Terms
from graphc.passes.attention.attention_views import Labels, Product, peel, product_of


@dataclass
class Found:
    """An attention.

    Attributes:
        logits: the operand of the softmax.
        value: the tensor that the weights are multiplied with.
        ends: the values that leave the attention.
        slopes: the adjoints of the result, by the adjoints of the weights that they cause.
    """

    logits: Logits
    value: View
    ends: list[End]
    slopes: dict[Slope, View]


class _Product(NamedTuple):
    """A product of a term and another tensor, which may be an end.

    Attributes:
        result: its tensor.
        term: the term, times the constant factor of the other operand.
        labels: the labels of the result's axes; ("free", i) for axis i of the other operand's root.
        view: the other operand.
        over_keys: whether it contracts the keys; otherwise it contracts the queries.
    """

    result: Tensor
    term: Term
    labels: Labels
    view: View
    over_keys: bool


class _Matcher:
    """Follows the values of `terms` to their ends."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._products: list[_Product] = []

    def run(self) -> None:
        """Processes all users."""
        terms = self._terms
        while terms.waiting:
            place = heapq.heappop(terms.waiting)
            if place in terms.done or place == len(terms.nodes):
                continue
            try:
                self._look_at(terms.nodes[place])
            except NoMatch:
                continue  # a use that is not explained: see `_escaped`
            terms.done.add(place)

    def _look_at(self, node: Node) -> None:
        terms = self._terms
        product, rule = product_of(node), RULES.get(node.op)
        if product is not None:
            self._products.append(self._product(node, product))
        elif rule is None:
            raise NoMatch
        elif (term := rule(terms, node)) is not None:
            terms.learn(node.outputs[0], term)

    def _product(self, node: Node, product: Product) -> _Product:
        terms = self._terms
        mine = [i for i, tensor in enumerate(node.inputs) if tensor in terms.terms]
        if len(mine) != 1:
            raise NoMatch
        i = mine[0]
        term = terms.terms[node.inputs[i]]
        result: list[Any] = [None] * len(node.outputs[0].type.shape)
        summed: dict[int, Any] = {}
        for part, label in zip(product.parts[i], term.labels, strict=True):
            if part is not None and part >= 0:
                result[part] = label
            elif part is not None:
                summed[part] = label
        peeled = peel(product.operands[1 - i], terms.finder.made, terms.finder.scalar)
        own: list[Any] = []
        for axis, part in enumerate(product.parts[1 - i]):
            if part is None or peeled.axes[axis] is None:
                own.append(None)
            elif part < 0:
                own.append(summed[part])
            else:
                if result[part] is None:
                    result[part] = ("free", peeled.axes[axis])
                own.append(result[part])
        over = {label for label in summed.values() if label is not None}
        if over not in ({terms.logits.source}, set(terms.logits.queries)):
            raise NoMatch
        scaled = Term(term.labels, term.poly * constant(peeled.factor))
        view = View(peeled.root, peeled.labels(own))
        over_keys = over == {terms.logits.source}
        return _Product(node.outputs[0], scaled, tuple(result), view, over_keys)

    def finish(self) -> Found:
        """The attention, if it is one and nothing else needs the values inside."""
        terms = self._terms
        for product in self._products:
            if product.over_keys and as_weights(product.term.poly) is not None:
                terms.is_value(_named(product.view))
        if terms.value is None:
            raise NoMatch
        ends = [*terms.ends, *map(self._end, self._products)]
        ends += [self._escaped(t) for t in terms.inside if not terms.leads_nowhere(t)]
        return Found(terms.logits, terms.value, ends, terms.slopes)

    def _escaped(self, tensor: Tensor) -> End:
        """A value with users outside: it may be the adjoint of a bias."""
        term = self._terms.terms.get(tensor)
        if term is None or not self._terms.is_of_bias(term.labels):
            raise NoMatch
        slope, factor = self._terms.logit_slope(term.poly, of_bias=True)
        return End("bias", tensor, term.labels, factor, slope)

    def _end(self, product: _Product) -> End:
        """The end that a product represents, with labels that all views share."""
        terms, poly, over_keys = self._terms, product.term.poly, product.over_keys
        factor, slope = as_weights(poly), None
        wanted: View | None
        if factor is None:
            slope, factor = terms.logit_slope(poly)
            kind = "query" if over_keys else "key"
            wanted = terms.logits.key if over_keys else terms.logits.query
        elif over_keys:
            kind, wanted = "result", terms.value
        else:
            slope = Slope(product.view.root)
            kind, wanted = "value", terms.slopes.get(slope)
        if wanted is None or not _agree(product.view, wanted):
            raise NoMatch
        labels = tuple(
            wanted.labels[label[1]] if isinstance(label, tuple) else label
            for label in product.labels
        )
        return End(kind, product.result, labels, factor, slope)


def _named(view: View) -> View:
    """The values, with the axes that a product leaves free labelled by their positions."""
    pairs = enumerate(view.labels)
    return View(
        view.root,
        tuple(("value", i) if isinstance(label, tuple) else label for i, label in pairs),
    )


def _agree(view: View, wanted: View) -> bool:
    """Whether both views have the same root and labels, except for axes that a product leaves
    free."""
    return view.root is wanted.root and all(
        a == b or (isinstance(a, tuple) and isinstance(b, tuple))
        for a, b in zip(view.labels, wanted.labels, strict=True)
    )


# -- where to begin -------------------------------------------------------------------------


def match(
    node: Node, nodes: Sequence[Node], users: Mapping[Tensor, list[int]], finder: Finder
) -> Found | None:
    """The attention whose weights come from `node`, a softmax or an exponential; None if there is
    none.

    Args:
        node: one of `nodes`.
        nodes: the nodes of a program, in order.
        users: tensor -> the indices in `nodes` of its users; `len(nodes)` for an output of the
            program.
        finder: for that program.
    """
    start = start_of(node, finder)
    if start is None:
        return None
    logits = finder.logits(start.logits, start.axis)
    if logits is None:
        return None
    terms = Terms(nodes, users, finder, logits)
    terms.inside.update(logits.inside, *(helper.outputs for helper in start.helpers))
    terms.done.update(
        place
        for tensor in terms.inside
        for place in users.get(tensor, ())
        if place < len(nodes)
        and (nodes[place] is node or not terms.inside.isdisjoint(nodes[place].outputs))
    )
    matcher = _Matcher(terms)
    try:
        for tensor, term in start.known.items():
            terms.learn(tensor, term)
        matcher.run()
        return matcher.finish()
    except NoMatch:
        return None
