"""Arithmetic of element counts for reshapes, with named sizes."""

from __future__ import annotations

from collections import Counter
from math import gcd
from typing import Any

from graphc.ir.dims import Dim, DimExpr, Monomial, Shape, Terms, product
from graphc.ir.node import Tensor
from graphc.ops.core.checks import refuse


def _terms(dim: Dim) -> Terms:
    return dim.terms if isinstance(dim, DimExpr) else (((), dim),)


def never_equal(a: Dim, b: Dim) -> bool:
    """Whether one is an int, and the other is a multiple of a number that does not divide it."""
    if isinstance(a, DimExpr):
        a, b = b, a
    factor = gcd(*[coefficient for _, coefficient in _terms(b)])
    return isinstance(a, int) and factor != 0 and a % factor != 0


def common_factor(a: Dim, b: Dim) -> Dim:
    """A common divisor: that of all coefficients, times the named sizes that all terms contain."""
    terms = [*_terms(a), *_terms(b)]
    shared: Counter[Any] = Counter(terms[0][0])
    for monomial, _ in terms[1:]:
        shared &= Counter(monomial)
    common: Monomial = tuple(sorted(shared.elements(), key=str))
    whole = gcd(*[coefficient for _, coefficient in terms]) or 1
    return DimExpr(((common, 1),)) * whole if common else whole


def text_of(shape: Shape) -> str:
    """The shape as Python prints a tuple."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def remaining_size(x: Tensor, known: Shape, shape: Shape) -> Dim:
    """The size that -1 represents in `shape`, whose other sizes are `known`."""
    total, divisor = product(x.type.shape), product(known)
    if x.graph is not None:
        find = x.graph.constraints.find
        total, divisor = find(total), find(divisor)
    if isinstance(divisor, int):
        fits = divisor > 0 and not (isinstance(total, int) and total % divisor)
    else:
        fits = isinstance(total, DimExpr)
    if not fits:
        refuse(
            f"Reshape: {total} elements do not divide into {text_of(shape)}",
            x=x,
            hint="the known sizes must divide the number of elements",
        )
    common = common_factor(total, divisor)
    return (total // common) // (divisor // common)
