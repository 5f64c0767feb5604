"""Dims: an int, or a small expression over named sizes. For equalities see `dim_constraints`.

A `DimExpr` is a polynomial in normal form over atoms (a named size, or a floor division with a
remainder), so `==` compares tuples. JAX's own symbolic dims are used only for symbolic export:
their `==` takes microseconds, and two new ones are never equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np

from graphc.errors import ArgumentError, ShapeError, UnknownAttributeError


class FloorDiv(NamedTuple):
    """The atom `numerator // denominator` of a division with a remainder."""

    numerator: DimExpr
    denominator: Dim

    def __str__(self) -> str:
        return f"floordiv({self.numerator}, {self.denominator})"


Atom = str | FloorDiv
Monomial = tuple[Atom, ...]  # a product of atoms, sorted; an atom occurs once per power
Terms = tuple[tuple[Monomial, int], ...]


# The methods for NumPy's operators with a number on the left.
_REFLECTED: Final = {
    "add": "__radd__",
    "divide": "__rtruediv__",
    "equal": "__eq__",
    "floor_divide": "__rfloordiv__",
    "multiply": "__rmul__",
    "not_equal": "__ne__",
    "power": "__rpow__",
    "remainder": "__rmod__",
    "subtract": "__rsub__",
}


def _of_tensors(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """The methods of an operator of tensors: of a size on its left, and of one on its right."""
    return (
        lambda size, other: _with_number(name, size, other),
        lambda size, other: _with_number(name, other, size),
    )


class DimExpr:
    """A sum of products of named sizes with integer coefficients; immutable and hashable.

    Built by `symbol(name)` and arithmetic with ints and other dims. Arithmetic with a constant
    result gives an `int`. An expression has at most 1,000 names and terms, counted after it is
    multiplied out; a longer one raises ShapeError.

    Attributes:
        terms: the products, each with its coefficient.
        weight: the number of its names and terms, including those inside floor divisions.

    >>> n = symbol("n")
    >>> (n + n) // 2 == n, (n + 1) // 2
    (True, floordiv(n + 1, 2))
    >>> n - n
    0
    """

    __slots__ = ("_hash", "terms", "weight")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.weight = sum([_weight(monomial) for monomial, _ in terms])
        if self.weight > _HEAVIEST:
            raise _too_long()
        self._hash = hash(terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, DimExpr) and self._hash == other._hash and self.terms == other.terms
        )

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, (int, DimExpr)):
            return _with_number("add", self, other)
        return _from_terms(self.terms + _terms(other))

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int):  # by far the most frequent case; it needs no sorting
            if other == 1:
                return self
            return DimExpr(tuple((m, c * other) for m, c in self.terms)) if other else 0
        if not isinstance(other, DimExpr):
            return _with_number("multiply", self, other)
        right = _terms(other)
        if self.weight * len(right) + other.weight * len(self.terms) > 2 * _HEAVIEST:
            raise _too_long()  # before the product is multiplied out
        return _from_terms(
            tuple((tuple(sorted(a + b, key=str)), p * q) for a, p in self.terms for b, q in right)
        )

    def __sub__(self, other: Any) -> Any:
        if not isinstance(other, (int, DimExpr)):
            return _with_number("subtract", self, other)
        return _from_terms(self.terms + _terms(-other))

    def __neg__(self) -> DimExpr:
        return DimExpr(tuple((m, -c) for m, c in self.terms))

    def __floordiv__(self, other: Any) -> Any:
        if not isinstance(other, (int, DimExpr)):
            return _with_number("floor_divide", self, other)
        return floor_division(self, other)

    def __rsub__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return _with_number("subtract", other, self)
        return -self + other

    # The result of these is not a size, but a scalar tensor.

    __truediv__, __rtruediv__ = _of_tensors("divide")
    __pow__, __rpow__ = _of_tensors("power")
    __mod__, __rmod__ = _of_tensors("remainder")

    def __rfloordiv__(self, other: int) -> Dim:
        raise ShapeError(
            f"a size may not divide an int: {other} // ({self})",
            hint="divide a named size by an int, or bind the size",
        )

    __radd__ = __add__
    __rmul__ = __mul__

    def _refuse_number(self, *_: object) -> NoReturn:
        raise ArgumentError.here(
            f"the size {self} is a number only when values are fed",
            hint="use it in shapes and in arithmetic with tensors, gc.cond(n > 2, ...) with "
            "n = gc.size(x, axis), or fix it: gc.placeholder((32, 4))",
        )

    if not TYPE_CHECKING:  # type checkers reject such uses of a size
        __int__ = __float__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_number

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name, name=name, obj=self)
            raise UnknownAttributeError.here(
                f"the size {self} has no attribute {name!r}",
                hint="a size is used as it is: x.shape[0] + 1, gc.zeros((x.shape[0], 4))",
            )

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """With a NumPy number on the left, NumPy's arithmetic calls the methods here."""
        name = _REFLECTED.get(function.__name__)
        if name and method == "__call__" and not kwargs and args[1] is self is not args[0]:
            result = getattr(self, name)(args[0])
            if result is not NotImplemented:  # as for arrays
                return result
        raise ArgumentError.here(
            f"numpy.{function.__name__} of the size {self}, which is a number only when values "
            "are fed",
            hint=f"the functions of gc take sizes, as gc.{function.__name__} does",
        )

    def __repr__(self) -> str:
        parts = []
        for monomial, coefficient in self.terms:
            factors = [str(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append("*".join(factors))
        return " + ".join(parts).replace("+ -", "- ").replace("- 1*", "- ")

    __str__ = __repr__


# The functions of tensors for arithmetic of a size with a number or an array.
_ON_TENSORS: dict[str, Callable[[Any, Any], Any]] = {}


def bind_arithmetic(table: Mapping[str, Callable[[Any, Any], Any]]) -> None:
    """Defines arithmetic of sizes with numbers: `1 / x.shape[0]`. `graphc.ops` calls it once."""
    _ON_TENSORS.update(table)


def _with_number(name: str, left: Any, right: Any) -> Any:
    """A scalar tensor in the graph that is being built. If one side is a tensor, the operators of
    the tensor are used instead."""
    other = right if isinstance(left, DimExpr) else left
    if not isinstance(other, (int, float, complex, np.number, DimExpr)):
        return NotImplemented
    return _ON_TENSORS[name](left, right)


Dim = int | DimExpr
Shape = tuple[Dim, ...]

_HEAVIEST = 1000


def _too_long() -> ShapeError:
    return ShapeError(
        f"an expression of named sizes has more than {_HEAVIEST} names and terms",
        hint="give the size a name of its own: None, or a string such as 'batch'",
    )


def _weight(monomial: Monomial) -> int:
    weight = 1
    for atom in monomial:
        weight += 1
        if isinstance(atom, FloorDiv):
            for part in atom:
                weight += part.weight if isinstance(part, DimExpr) else 1
    return weight


_NAME = re.compile(r"[A-Za-z_][\w.]*\Z")


@cache
def symbol(name: str) -> DimExpr:
    """The named size `name` (letters, digits, `_` and `.`)."""
    if not _NAME.match(name) or name == "floordiv":
        raise ShapeError(
            f"{name!r} is not a name for a size",
            hint='use an identifier such as "batch"',
        )
    return DimExpr((((name,), 1),))


def _terms(dim: Dim) -> Terms:
    if isinstance(dim, DimExpr):
        return dim.terms
    return (((), int(dim)),)


def _from_terms(terms: Terms) -> Dim:
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    kept = [(monomial, c) for monomial, c in sums.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    # Symbols come before constants, as in usual notation.
    kept.sort(key=lambda term: (not term[0], [str(atom) for atom in term[0]]))
    return DimExpr(tuple(kept))


def differ_if_positive(a: Dim, b: Dim) -> bool:
    """Whether two sizes differ for all values of their names from 1 on, as n and 2 * n do. False if
    that is not certain."""
    terms = [(atoms, coefficient) for atoms, coefficient in _terms(a - b) if coefficient]
    names_alone = all(isinstance(atom, str) for atoms, _ in terms for atom in atoms)
    return names_alone and len({coefficient > 0 for _, coefficient in terms}) == 1


def sum_of(dims: Iterable[Dim]) -> Dim:
    """The sum of dims. Adding them one by one would sort each partial sum."""
    return _from_terms(tuple(term for dim in dims for term in _terms(dim)))


def divide_term(
    term: tuple[Monomial, int], by: tuple[Monomial, int]
) -> tuple[Monomial, int] | None:
    """The quotient of two products, or None if it has a remainder."""
    (monomial, coefficient), (divisor, q) = term, by
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return None if coefficient % q else (tuple(rest), coefficient // q)


def floor_division(numerator: Dim, denominator: Dim) -> Dim:
    """`numerator // denominator`.

    Raises:
        ShapeError: the denominator is an int that is not positive.
    """
    if isinstance(denominator, int) and denominator <= 0:
        raise ShapeError(f"({numerator}) // {denominator}: the divisor must be positive")
    if denominator == 1:
        return numerator
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if numerator == denominator:
        return 1
    by = _terms(denominator)
    if len(by) == 1:
        # (k*d*a + r) // d = k*a + r // d: extract the terms that divide evenly, and keep the others
        # together.
        divided = [(term, divide_term(term, by[0])) for term in _terms(numerator)]
        whole = _from_terms(tuple(d for _, d in divided if d is not None))
        rest = _from_terms(tuple(t for t, d in divided if d is None))
        if rest == 0:
            return whole
        if isinstance(rest, int) and isinstance(denominator, int):
            return whole + rest // denominator
        numerator_rest: Dim = rest
    else:
        whole, numerator_rest = 0, numerator
    if isinstance(numerator_rest, int):
        numerator_rest = DimExpr((((), numerator_rest),))
    atom = FloorDiv(numerator_rest, denominator)
    return sum_of((whole, DimExpr((((atom,), 1),))))


def substitute(dim: Dim, bindings: Mapping[str, Any]) -> Any:
    """`dim` with named sizes replaced. Names that are not in `bindings` do not change.

    The values may be ints, dims, or anything with `+`, `*` and `//` (JAX's symbolic dims).
    """
    if not isinstance(dim, DimExpr):
        return dim
    total: Any = 0
    for monomial, coefficient in dim.terms:
        product: Any = coefficient
        for atom in monomial:
            if isinstance(atom, FloorDiv):
                above, below = (substitute(part, bindings) for part in atom)
                named = isinstance(below, DimExpr)  # then `//` does not take an int
                factor = floor_division(above, below) if named else above // below
            else:
                factor = bindings[atom] if atom in bindings else symbol(atom)
            product = factor if isinstance(product, int) and product == 1 else product * factor
        total = product if isinstance(total, int) and total == 0 else total + product
    return total


def symbols_of(dim: Dim) -> frozenset[str]:
    """The named sizes in `dim`."""
    if not isinstance(dim, DimExpr):
        return frozenset()
    names: set[str] = set()
    for monomial, _ in dim.terms:
        for atom in monomial:
            if isinstance(atom, FloorDiv):
                names |= symbols_of(atom.numerator) | symbols_of(atom.denominator)
            else:
                names.add(atom)
    return frozenset(names)


def has_names(value: object) -> bool:
    """Whether an attribute's value is a named size, or a tuple that contains one."""
    if isinstance(value, tuple):
        return any(map(has_names, value))
    return isinstance(value, DimExpr)


def as_symbol(dim: Dim) -> str | None:
    """The name if `dim` is a single named size; otherwise None."""
    found = as_multiple(dim)
    return found[0] if found is not None and found[1] == 1 else None


def as_multiple(dim: Dim) -> tuple[str, int] | None:
    """The name and the factor if `dim` is a multiple of one named size; otherwise None.

    Examples:
        >>> as_multiple(32 * symbol("h")), as_multiple(symbol("h") + 1)
        (('h', 32), None)
    """
    if isinstance(dim, DimExpr) and len(dim.terms) == 1:
        monomial, coefficient = dim.terms[0]
        if len(monomial) == 1 and isinstance(monomial[0], str):
            return monomial[0], coefficient
    return None


def product(dims: Iterable[Dim]) -> Dim:
    """The product of `dims`; 1 if there are no dims."""
    result: Dim = math.prod(dims)
    return result
