"""Sizes that do not fall below zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphc.ir.dims import (
    Atom,
    Dim,
    DimExpr,
    FloorDiv,
    Monomial,
    divide_term,
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


def substitute_limited(
    dim: Dim, bindings: Mapping[str, Any], at_least_zero: Callable[[Any], Any]
) -> Any:
    """`substitute`, with another function for `at_least_zero`, such as JAX's maximum.

    Examples:
        >>> from graphc.ir.dims import symbol
        >>> twice = 2 * at_least_zero(symbol("n") - 5)
        >>> substitute_limited(twice, {"n": 4}, lambda size: max(size, 0))
        0
    """
    if not is_limited(dim):
        return substitute(dim, bindings)
    named, limited = limits_named(dim)
    values = {name: at_least_zero(substitute(x, bindings)) for name, x in limited.items()}
    return substitute(named, {**bindings, **values})


def limits_named(dim: Dim) -> tuple[Dim, dict[str, Dim]]:
    """The size with a new name in place of each `at_least_zero(x)` that is found in it, and each
    `x` by that name.

    `at_least_zero(x)` is `x * (1 - sign)`, where the atom `sign` is 1 if x is negative, otherwise
    0; the product is multiplied out and merged with other terms.
    """
    names: dict[Dim, str] = {}
    named = _named(dim, names)
    return named, {name: x for x, name in names.items()}


def _named(dim: Dim, names: dict[Dim, str]) -> Dim:
    if not isinstance(dim, DimExpr):
        return dim
    for monomial, c in dim.terms:
        division = monomial[0] if len(monomial) == c == 1 else ""
        if isinstance(division, FloorDiv) and not set(_signs(division.numerator)).isdisjoint(
            _atoms(dim)
        ):
            return _named_division(dim, division, names)
    return _named_terms(dim, names)


def _named_division(dim: DimExpr, division: FloorDiv, names: dict[Dim, str]) -> Dim:
    """A size with a division that was simplified: `(a + 2 * b) // 2` became `a // 2 + b`, so that
    a part of the limited size stands outside."""
    signs = _signs(division.numerator)
    outside = sum_of([_term(m, c) for m, c in dim.terms if not signs.keys().isdisjoint(m)])
    whole = division.numerator + outside * division.denominator
    divided = floor_division(_named(whole, names), division.denominator)
    return _named(dim - outside - _term((division,), 1), names) + divided


def _named_terms(dim: DimExpr, names: dict[Dim, str]) -> Dim:
    found: Dim = sum_of([_inside_named(monomial, c, names) for monomial, c in dim.terms])
    for atom, x in _signs(found).items():
        terms = found.terms if isinstance(found, DimExpr) else ()
        slope = sum_of([_term(_without(m, atom), c) for m, c in terms if atom in m])
        times = _quotient(-slope, x)  # found = rest + times * x * (1 - atom)
        if times is None or atom in _atoms(slope):
            continue
        rest = sum_of([_term(m, c) for m, c in terms if atom not in m]) + slope
        name = names.setdefault(x, f"limited {len(names)}")  # no user's name has a space
        found = rest + times * _term((name,), 1)
    return found


def _inside_named(monomial: Monomial, coefficient: int, names: dict[Dim, str]) -> Dim:
    """A term with names for what its divisions contain."""
    product: Dim = coefficient
    for atom in monomial:
        if isinstance(atom, FloorDiv) and _sign_of(atom) is None:
            above, below = (_named(part, names) for part in atom)
            product = product * floor_division(above, below)
        else:
            product = product * _term((atom,), 1)
    return product


def _signs(dim: Dim) -> dict[FloorDiv, Dim]:
    """The atoms in `dim` that are 1 where a size is negative and otherwise 0, and the sizes."""
    signs = {a: _sign_of(a) for a in _atoms(dim) if isinstance(a, FloorDiv)}
    return {atom: x for atom, x in signs.items() if x is not None}


def _sign_of(atom: FloorDiv) -> Dim | None:
    """The size of `at_least_zero` that an atom belongs to."""
    if atom.numerator.terms != (((), 2),):
        return None
    enough = atom.denominator - 2
    divisions = [a for a in _atoms(enough) if isinstance(a, FloorDiv)]
    if len(divisions) != 1:
        return None
    (division,) = divisions
    whole = enough - _term((division,), 1)
    # `enough` is (more + 1) // (less + 1), and the size is more - less.
    x: Dim = whole * division.denominator + division.numerator - division.denominator
    return None if x == 0 else x


def _quotient(dim: Dim, by: Dim) -> Dim | None:
    """`dim / by`, or None if it has a remainder: a long division, greatest terms first."""
    found: Dim = 0
    while dim != 0:
        part = divide_term(_greatest(dim), _greatest(by))
        if part is None:
            return None
        found, dim = found + _term(*part), dim - _term(*part) * by
    return found


def _greatest(dim: Dim) -> tuple[Monomial, int]:
    if not isinstance(dim, DimExpr):
        return (), dim
    return max(dim.terms, key=lambda term: (len(term[0]), [str(atom) for atom in term[0]]))


def _atoms(dim: Dim) -> dict[Atom, None]:
    terms = dim.terms if isinstance(dim, DimExpr) else ()
    return {atom: None for monomial, _ in terms for atom in monomial}


def _without(monomial: Monomial, atom: Atom) -> Monomial:
    rest = list(monomial)
    rest.remove(atom)
    return tuple(rest)
