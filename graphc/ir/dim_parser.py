"""Parses dims from their text form."""

from __future__ import annotations

import re

from graphc.errors import TextError
from graphc.ir.dims import Dim, floor_division, sum_of, symbol

_LONGEST_TEXT = 10_000  # characters of a dim
_DEEPEST = 50
_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][\w.]*)|(.))")


def parse_dim(text: str) -> Dim:
    """The dim that prints as `text`, with ints, names, `+`, `-`, `*` and `floordiv(a, b)`.

    Raises:
        TextError: `text` is not a dim, or has more than 10,000 characters, 50 open parentheses or
            50 signs in a row.
        ShapeError: the expression is longer than a `DimExpr` may be.

    >>> parse_dim("2*batch + floordiv(t - 1, 2)")
    2*batch + floordiv(t - 1, 2)
    """
    if len(text) > _LONGEST_TEXT:
        raise TextError(f"a dim has {len(text)} characters; the limit is {_LONGEST_TEXT}")
    return _Parser(text).dim()


class _Parser:
    """A recursive-descent parser for the tokens of one dim."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [m[1] or m[2] or m[3] for m in _TOKEN.finditer(text.strip())]
        self._position = self._depth = 0

    def dim(self) -> Dim:
        result = self._sum()
        if self._peek():
            raise self._error(self._peek())
        return result

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self, expected: str | None = None) -> str:
        token = self._peek()
        if not token or (expected is not None and token != expected):
            raise self._error(token)
        self._position += 1
        return token

    def _error(self, token: str) -> TextError:
        return TextError(f"{self._text!r} is not a dim", details=[f"at token {token!r}"])

    def _refuse(self, what: str) -> None:
        raise TextError(f"{self._text[:80]!r} is not a dim: it has more than {_DEEPEST} {what}")

    def _sum(self) -> Dim:
        value = self._product()
        terms = [value]
        while self._peek() in ("+", "-"):
            sign = -1 if self._take() == "-" else 1
            terms.append(self._product() * sign)
        return value if len(terms) == 1 else sum_of(terms)

    def _product(self) -> Dim:
        value = self._factor()
        while self._peek() == "*":
            self._take()
            value = value * self._factor()
        return value

    def _factor(self) -> Dim:
        token, signs = self._take(), 0
        while token == "-":
            token, signs = self._take(), signs + 1
            if signs > _DEEPEST:
                self._refuse("signs in a row")
        sign = -1 if signs % 2 else 1
        if token.isdecimal():
            return int(token) * sign
        if token == "(":
            return self._parenthesised(")")[0] * sign
        if token == "floordiv":
            self._take("(")
            numerator, denominator = self._parenthesised(",", ")")
            quotient = floor_division(numerator, denominator)
            return quotient if sign == 1 else -quotient
        return symbol(token) if sign == 1 else -symbol(token)

    def _parenthesised(self, *ends: str) -> list[Dim]:
        """The dims in parentheses. Each is followed by its token from `ends`."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse("open parentheses")
        dims = []
        for end in ends:
            dims.append(self._sum())
            self._take(end)
        self._depth -= 1
        return dims
