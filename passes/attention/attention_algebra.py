"""Polynomials over the values that make up a softmax and its derivative.

The derivative of a softmax can be written in many ways, and each differentiator has its own. As
polynomials in the exponentials, their sum over a row, and the adjoint of the weights, they are all
equal, so `FuseAttention` compares polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from graphc.ir.node import Tensor, by_identity

Atom: TypeAlias = Hashable
Monomial: TypeAlias = frozenset[tuple[Atom, int]]  # atoms with their powers

EXPONENTIAL: Final = "exponential"  # of a logit minus a value that its row shares
TOTAL: Final = "total"  # of a row's exponentials
LOGIT: Final = "logit"
GREATEST: Final = "greatest"  # the maximum of a row's logits
LOG_TOTAL: Final = "log total"  # the logarithm of a row's total


@by_identity
class Seen(NamedTuple):
    """1 where a bool mask is true, else 0."""

    mask: Tensor


@by_identity
class Slope(NamedTuple):
    """The adjoint of the weights: the product of the result's adjoint, its root, and the values."""

    root: Tensor


class RowSum(NamedTuple):
    """A monomial summed over a row."""

    of: Monomial


@dataclass(frozen=True)
class Poly:
    """A sum of monomials, each with its coefficient."""

    terms: Mapping[Monomial, float]

    def __add__(self, other: Poly) -> Poly:
        total = dict(self.terms)
        for monomial, c in other.terms.items():
            before = total.get(monomial, 0.0)
            if math.isclose(before, -c, rel_tol=1e-9):
                del total[monomial]
            else:
                total[monomial] = before + c
        return Poly(total)

    def __mul__(self, other: Poly) -> Poly:
        total = Poly({})
        for a, ca in self.terms.items():
            for b, cb in other.terms.items():
                total = total + Poly({_times(a, b): ca * cb})
        return total

    def power(self, exponent: int) -> Poly | None:
        """None unless it is a single monomial."""
        if len(self.terms) != 1:
            return None
        ((monomial, c),) = self.terms.items()
        powers = {atom: power * exponent for atom, power in monomial}
        return Poly({_monomial(powers): float(c) ** exponent})

    def summed(self) -> Poly | None:
        """The sum over a row. None if a monomial is constant in a row: its sum depends on the
        length."""
        total = Poly({})
        for monomial, c in self.terms.items():
            own = frozenset(pair for pair in monomial if not _of_row(pair[0]))
            if not own:
                return None
            found: Atom = TOTAL if own == _EXPONENTIALS else RowSum(own)
            total = total + Poly({_times(monomial - own, frozenset({(found, 1)})): c})
        return total


def constant(value: float) -> Poly:
    """The number as a polynomial."""
    return Poly({frozenset(): float(value)} if value else {})


def of_atom(atom: Atom, power: int = 1) -> Poly:
    """A power of one atom as a polynomial."""
    return Poly({frozenset({(atom, power)}): 1.0})


WEIGHTS: Final = Poly({frozenset({(EXPONENTIAL, 1), (TOTAL, -1)}): 1.0})
SHIFTED: Final = Poly({frozenset({(LOGIT, 1)}): 1.0, frozenset({(GREATEST, 1)}): -1.0})
_EXPONENTIALS: Final[Monomial] = frozenset({(EXPONENTIAL, 1)})


def exponential(poly: Poly) -> Poly | None:
    """The exponential of logits minus their maximum, or minus the logarithm of their sum."""
    if poly == SHIFTED:
        return of_atom(EXPONENTIAL)
    return WEIGHTS if poly == SHIFTED + constant(-1) * of_atom(LOG_TOTAL) else None


def as_weights(poly: Poly) -> float | None:
    """c if `poly` is c times the weights; otherwise None."""
    return _multiple(poly, WEIGHTS)


class LogitSlope(NamedTuple):
    """A multiple of the adjoint of the logits.

    Attributes:
        slope: the adjoint of the weights in it.
        masks: where any of them is false, the adjoint is 0.
        factor: the multiple.
    """

    slope: Slope
    masks: frozenset[Tensor]
    factor: float


def as_logit_slope(poly: Poly) -> LogitSlope | None:
    """`poly` as a multiple of weights * (slope - row sum of weights * slope); None if it has
    another form."""
    atoms = {atom for monomial in poly.terms for atom, _ in monomial}
    slopes = [atom for atom in atoms if isinstance(atom, Slope)]
    masks = frozenset(atom.mask for atom in atoms if isinstance(atom, Seen))
    if len(slopes) != 1:
        return None
    slope = of_atom(slopes[0])
    mean = (WEIGHTS * slope).summed()
    if mean is None:
        return None
    wanted = WEIGHTS * (slope + constant(-1) * mean)
    for mask in masks:
        wanted = wanted * of_atom(Seen(mask))
    factor = _multiple(poly, wanted)
    return None if factor is None else LogitSlope(slopes[0], masks, factor)


def _multiple(poly: Poly, of: Poly) -> float | None:
    if not poly.terms or poly.terms.keys() != of.terms.keys():
        return None
    ratios = [c / of.terms[monomial] for monomial, c in poly.terms.items()]
    alike = all(math.isclose(ratio, ratios[0], rel_tol=1e-5) for ratio in ratios)
    return ratios[0] if alike else None


def _times(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return _monomial(powers)


def _monomial(powers: Mapping[Atom, int]) -> Monomial:
    return frozenset(
        (atom, 1 if isinstance(atom, Seen) else power) for atom, power in powers.items() if power
    )


def _of_row(atom: Atom) -> bool:
    return atom in (TOTAL, GREATEST, LOG_TOTAL) or isinstance(atom, RowSum)
