"""Sizes that do not fall below zero."""

from __future__ import annotations

from graphc.ir.dims import (
    Atom,
    Dim,
    DimExpr,
    FloorDiv,
    Monomial,
    floor_division,
    substitute,
    sum_of,
    symbols_of,
)


def at_least_zero(dim: Dim) -> Dim:
    """The size, or 0 where it would be negative.

    A size such as `n - 1`, which is not negative if all named sizes are at least 1, stays as it is,
    so that it equals the same size of another tensor. A size with divisions whose sign is not known
    stays, too.

    Examples:
        >>> from graphc.ir.dims import substitute, symbol
        >>> rest = at_least_zero(symbol("n") - 5)
        >>> [substitute(rest, {"n": n}) for n in (0, 4, 5, 7)]
        [0, 0, 0, 2]
    """
    if not isinstance(dim, DimExpr):
        return max(dim, 0)
    if not all(_grows(atom) for monomial, _ in dim.terms for atom in monomial):
        return dim
    more = sum_of([_term(m, c) for m, c in dim.terms if c > 0])
    less = sum_of([_term(m, -c) for m, c in dim.terms if c < 0])
    ones = dict.fromkeys(symbols_of(dim), 1)
    if isinstance(less, int) and substitute(dim, ones) >= 0:
        return dim
    enough = floor_division(more + 1, less + 1)  # 0 if the size is negative, otherwise more
    # Not `1 // (enough + 1)`: onnxruntime 1.32 takes `1 // a * b` of an exported model for
    # `b // a`.
    limited: Dim = dim * (1 - floor_division(2, enough + 2))
    return limited


def _term(monomial: Monomial, coefficient: int) -> Dim:
    return DimExpr(((monomial, coefficient),)) if monomial else coefficient


def _grows(atom: Atom) -> bool:
    """Whether it is not negative, and does not fall where sizes grow."""
    if not isinstance(atom, FloorDiv):
        return True
    terms = atom.numerator.terms
    inner = [part for monomial, _ in terms for part in monomial]
    rises = all(c > 0 for _, c in terms) and all(map(_grows, inner))
    return rises and isinstance(atom.denominator, int)


def is_limited(dim: Dim) -> bool:
    """Whether a size contains a result of `at_least_zero`: a number that a size divides."""
    if not isinstance(dim, DimExpr):
        return False
    divisions = [atom for m, _ in dim.terms for atom in m if isinstance(atom, FloorDiv)]
    return any(not symbols_of(d.numerator) or is_limited(d.numerator) for d in divisions)
