"""The effect of each operator on values that are computed from the weights of a softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE, TRANSPOSE
from graphc.ops.core.emit import CAST
from graphc.ops.elementwise.arithmetic import ABS, ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT
from graphc.ops.elementwise.comparison import GREATER_EQUAL, WHERE
from graphc.ops.elementwise.powers import INTEGER_POWER, RECIPROCAL, SQUARE
from graphc.ops.elementwise.transcendental import EXP, LOG
from graphc.ops.reductions.reduction import REDUCE_SUM
from graphc.ops.structure.state import IDENTITY
from graphc.passes.attention.attention_algebra import (
    LOG_TOTAL,
    TOTAL,
    Poly,
    Seen,
    as_logit_slope,
    constant,
    exponential,
    of_atom,
)
from graphc.passes.attention.attention_logits import broadcast_labels
from graphc.passes.attention.attention_terms import End, NoMatch, Term, Terms, float_cast
from graphc.passes.attention.attention_views import axis_map


def _moved(m: Terms, node: Node) -> Term:
    moved = axis_map(node)
    if moved is None:
        raise NoMatch
    labels, poly = m.terms[node.inputs[0]]
    return Term(tuple(None if axis is None else labels[axis] for axis in moved), poly)


def _binary(combine: Callable[[Poly, Poly], Poly]) -> Callable[[Terms, Node], Term]:
    def rule(m: Terms, node: Node) -> Term:
        labels, a, b = m.operands(node)
        return Term(labels, combine(a, b))

    return rule


def _divide(m: Terms, node: Node) -> Term:
    labels, a, b = m.operands(node)
    inverse = b.power(-1)
    if inverse is None:
        raise NoMatch
    return Term(labels, a * inverse)


def _unary(function: Callable[[Node, Poly], Poly | None]) -> Callable[[Terms, Node], Term]:
    def rule(m: Terms, node: Node) -> Term:
        labels, poly = m.terms[node.inputs[0]]
        found = function(node, poly)
        if found is None:
            raise NoMatch
        return Term(labels, found)

    return rule


def _same(m: Terms, node: Node) -> Term:
    if float_cast(node) is None:
        raise NoMatch
    return m.terms[node.inputs[0]]


def _broadcast(m: Terms, node: Node) -> Term:
    term = m.terms[node.inputs[0]]
    rank = len(node.outputs[0].type.shape)
    return Term((None,) * (rank - len(term.labels)) + term.labels, term.poly)


def _log(node: Node, poly: Poly) -> Poly | None:
    return of_atom(LOG_TOTAL) if poly == of_atom(TOTAL) else None


def _positive(node: Node, poly: Poly) -> Poly | None:
    """A sum of exponentials is its own absolute value."""
    return poly if poly == of_atom(TOTAL) else None


def _is_positive(m: Terms, node: Node) -> Term:
    """1 for true."""
    term, least = m.terms.get(node.inputs[0]), m.finder.scalar(node.inputs[1])
    if term is None or least != 0 or term.poly != of_atom(TOTAL):
        raise NoMatch
    return Term(term.labels, constant(1))


def _where(m: Terms, node: Node) -> Term:
    """Only masked elements may be set to 0."""
    condition, x, y = node.inputs
    rank = len(node.outputs[0].type.shape)
    if condition in m.terms:
        return _chosen(m, node, x)
    for kept, other in ((x, y), (y, x)):
        term = m.terms.get(kept)
        if term is not None and not term.poly.terms and m.finder.scalar(other) == 0:
            return Term((None,) * (rank - len(term.labels)) + term.labels, term.poly)
    for mask in m.logits.masks:
        kept, other = (y, x) if mask.inverted else (x, y)
        if mask.bias or kept not in m.terms or m.finder.scalar(other) != 0:
            continue
        labels, poly = m.terms[kept]
        if len(labels) != rank:
            raise NoMatch
        root = m.finder.plain(mask.tensor, mask.labels)
        if m.finder.plain(condition, broadcast_labels(condition, labels)) == root:
            return Term(labels, poly * of_atom(Seen(root.root)))
    raise NoMatch


def _chosen(m: Terms, node: Node, x: Tensor) -> Term:
    """The operand of a `where` whose condition is always true."""
    term, c = m.terms.get(x), m.finder.scalar(x)
    if m.terms[node.inputs[0]].poly != constant(1) or x.type != node.outputs[0].type:
        raise NoMatch
    if term is None and not isinstance(c, (int, float)):
        raise NoMatch
    return term or Term((None,) * x.type.rank, constant(c))


def _sum(m: Terms, node: Node) -> Term | None:
    labels, poly = m.terms[node.inputs[0]]
    axes = [axis for axis in node.attrs["axes"] if labels[axis] is not None]
    summed, keep = node.attrs["axes"], node.attrs["keepdims"]
    rest = tuple(
        None if axis in summed else label
        for axis, label in enumerate(labels)
        if keep or axis not in summed
    )
    of_bias = m.is_of_bias(rest) and as_logit_slope(poly) is not None
    if not of_bias and [labels[axis] for axis in axes] == [m.logits.source]:
        total = poly.summed()
        if total is not None:
            return Term(rest, total)
    slope, factor = m.logit_slope(poly, of_bias=True)
    m.ends.append(End("bias", node.outputs[0], rest, factor, slope))
    return None


# A rule that returns None marks the node as an end: nothing is derived from it.
RULES: Mapping[OpDef, Callable[[Terms, Node], Term | None]] = {
    TRANSPOSE: _moved,
    RESHAPE: _moved,
    ADD: _binary(lambda a, b: a + b),
    SUBTRACT: _binary(lambda a, b: a + constant(-1) * b),
    MULTIPLY: _binary(lambda a, b: a * b),
    DIVIDE: _divide,
    NEGATIVE: _unary(lambda node, poly: constant(-1) * poly),
    SQUARE: _unary(lambda node, poly: poly.power(2)),
    RECIPROCAL: _unary(lambda node, poly: poly.power(-1)),
    ABS: _unary(_positive),
    GREATER_EQUAL: _is_positive,
    LOG: _unary(_log),
    EXP: _unary(lambda node, poly: exponential(poly)),
    INTEGER_POWER: _unary(lambda node, poly: poly.power(int(node.attrs["exponent"]))),
    CAST: _same,
    IDENTITY: _same,
    BROADCAST_TO: _broadcast,
    WHERE: _where,
    REDUCE_SUM: _sum,
}
