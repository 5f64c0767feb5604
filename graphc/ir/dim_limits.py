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
    if not _has_sign(dim) or _is_positive(dim):
        return dim
    more = sum_of([_term(m, c) for m, c in dim.terms if c > 0])
    less = sum_of([_term(m, -c) for m, c in dim.terms if c < 0])
    enough = floor_division(more + 1, less + 1)  # 0 if the size is negative, otherwise more
    # Not `1 // (enough + 1)`: onnxruntime 1.32 takes `1 // a * b` of an exported model for
    # `b // a`.
    limited: Dim = dim * (1 - floor_division(2, enough + 2))
    return limited


def divided(a: Dim, b: Dim) -> Dim | None:
    """`a / b` without the part behind the point, as languages other than Python divide integers.
    None if that cannot be said as a size.

    Examples:
        >>> from graphc.ir.dims import substitute, symbol
        >>> half = divided(symbol("n") - 4, 3)
        >>> [substitute(half, {"n": n}) for n in (0, 1, 2, 3, 6, 7)]
        [-1, -1, 0, 0, 0, 1]
    """
    if isinstance(b, int) and b < 0:
        a, b = -a, -b
    if b == 0 or not _is_positive(b) or not _has_sign(a):
        return None
    if _is_positive(a):
        return floor_division(a, b)
    found: Dim = -floor_division(at_least_zero(-a), b)
    return found if _is_positive(-a) else floor_division(at_least_zero(a), b) + found


def _has_sign(dim: Dim) -> bool:
    """Whether the sign follows from the sizes."""
    if not isinstance(dim, DimExpr):
        return True
    return all(_grows(atom) for monomial, _ in dim.terms for atom in monomial)


def _is_positive(dim: Dim) -> bool:
    """Whether it is not negative if all named sizes are at least 1."""
    if not isinstance(dim, DimExpr):
        return dim >= 0
    falls = any(monomial and c < 0 for monomial, c in dim.terms)
    least: int = substitute(dim, dict.fromkeys(symbols_of(dim), 1))
    return _has_sign(dim) and not falls and least >= 0


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
