"""Tokens of the text form, and a cursor over them whose errors show the line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, NoReturn, TypeVar

from graphc.errors import GraphcError, ShapeError, TextError, nearest
from graphc.ir.dim_parser import parse_dim
from graphc.ir.dims import Dim
from graphc.ir.dtypes import BY_SHORT, DType
from graphc.ir.source import Source
from graphc.ir.types import TensorType, split_dims

T = TypeVar("T")

# A name is written without quotes if it looks like `hidden/MatMul:0`. Any other name is quoted.
_NAME = r"[A-Za-z_][\w.\-]*(?:/[\w.\-]+)*(?::\d+)?"
_DEVICE = r"/[A-Za-z][\w:/*]*"
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|\#[^\n]*)"
    rf"|(?P<name>{_NAME})"
    r"|(?P<tensor>%\w+)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    rf"|(?P<device>{_DEVICE})"
    r"|(?P<sign>\.\.\.|==|[(){}\[\],:=+*\-])",
    re.ASCII,
)
_COMMENT = re.compile(r"#[^\n]*")
_BARE_NAME = re.compile(_NAME + r"\Z", re.ASCII)
_BARE_DEVICE = re.compile(_DEVICE + r"\Z", re.ASCII)
_OPENING, _CLOSING = "([{", ")]}"
_MAX_DEPTH = 50  # nesting of values and regions


def quote_name(name: str) -> str:
    """`name` as the text form writes it."""
    return name if _BARE_NAME.match(name) else json.dumps(name)


def quote_device(device: str) -> str:
    """A device as the text form writes it."""
    return device if _BARE_DEVICE.match(device) else json.dumps(device)


class Token(NamedTuple):
    """One token: `kind` is a group of the pattern above, or "end"."""

    kind: str
    text: str
    start: int
    line: int
    first: bool  # whether it is the first token on its line

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else repr(self.text)


class Cursor:
    """A position in a text, read token by token. Line breaks separate like blanks."""

    def __init__(self, text: str, source_file: str | None = None) -> None:
        self.text = text
        self.source_file = source_file
        self.lines = text.split("\n")
        self.depth = 0
        self._tokens = list(self._scan())
        self._position = 0

    def _scan(self) -> Iterator[Token]:
        position, line, first = 0, 1, True
        for match in _TOKEN.finditer(self.text):
            start = match.start()
            if start != position:
                break
            position = match.end()
            kind = match.lastgroup or ""
            if kind == "space":
                breaks = match.group().count("\n")
                line, first = line + breaks, first or breaks > 0
                continue
            yield Token(kind, match.group(), start, line, first)
            first = False
        if position < len(self.text):
            stray = Token("stray", self.text[position], position, line, first)
            self.fail("a token of the text form", stray)
        yield Token("end", "", position, line, True)

    # -- errors -----------------------------------------------------------------------------

    def fail(self, expected: str, token: Token | None = None, hint: str | None = None) -> NoReturn:
        """Raises `TextError`: the line, the expected and the actual text."""
        token = token or self.peek()
        self.fail_at(token, f"expected {expected}, got {token}", hint)

    def fail_at(
        self, token: Token, what: str, hint: str | None = None, cause: Exception | None = None
    ) -> NoReturn:
        """Raises `TextError` with `what`, at the line of `token`."""
        details = [f"{token.line:4} | {self.lines[token.line - 1].rstrip()}"]
        if isinstance(cause, GraphcError):
            details += [*([] if cause.what in what else [cause.what]), *cause.details]
            hint = hint or cause.hint
        raise TextError(
            f"line {token.line}: {what}", details=details, source=self.source(token), hint=hint
        ) from cause

    def source(self, token: Token) -> Source | None:
        """The line of `token` in the source file of the text, if one was given."""
        return None if self.source_file is None else Source(self.source_file, token.line)

    # -- tokens -----------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._position + ahead, len(self._tokens) - 1)]

    def next(self) -> Token:
        token = self.peek()
        self._position += token.kind != "end"
        return token

    def at(self, text: str) -> bool:
        """Whether the next token is the sign or the word `text`."""
        token = self._tokens[self._position]
        return token.text == text and token.kind != "string"

    def accept(self, text: str) -> bool:
        """Skips `text` if it is next."""
        found = self.at(text)
        self._position += found
        return found

    def expect(self, text: str) -> Token:
        if not self.at(text):
            self.fail(repr(text))
        return self.next()

    def expect_kind(self, kind: str, expected: str) -> Token:
        if self.peek().kind != kind:
            self.fail(expected)
        return self.next()

    def more(self, close: str) -> bool:
        """Between items of a list: True after a comma, False after `close`."""
        if self.accept(","):
            return True
        if not self.at(close):
            self.fail(f"',' or {close!r}")
        self.next()
        return False

    def items(self, close: str, read: Callable[[], T]) -> list[T]:
        """Calls `read` for each item up to `close`. Commas separate the items."""
        if self.accept(close):
            return []
        found = [read()]
        while self.more(close):
            found.append(read())
        return found

    def several(self, read: Callable[[], T]) -> list[T]:
        """One or more items, separated by commas."""
        found = [read()]
        while self.accept(","):
            found.append(read())
        return found

    def enter(self) -> None:
        """Counts a level of nesting; `leave` ends it."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail_at(self.peek(), f"nested more than {_MAX_DEPTH} levels deep")

    def leave(self) -> None:
        self.depth -= 1

    # -- words ------------------------------------------------------------------------------

    def name(self, expected: str) -> str:
        """A bare or quoted name."""
        token = self.peek()
        if token.kind == "string":
            return self.string()
        return self.expect_kind("name", expected).text

    def string(self) -> str:
        token = self.expect_kind("string", "a string in double quotes")
        try:
            return str(json.loads(token.text))
        except ValueError as error:
            self.fail_at(token, "not a string", "escapes are those of JSON", error)

    def known(self, token: Token, known: Collection[str], what: str) -> str:
        """The text of `token`, which must be one of `known`."""
        if token.text not in known:
            self.fail_at(token, f"no {what} {token.text!r}", nearest(token.text, known))
        return token.text

    def integer(self, expected: str = "an integer") -> int:
        sign = -1 if self.accept("-") else 1
        token = self.peek()
        if not token.text.isdigit() or token.kind != "number":
            self.fail(expected)
        return sign * self._int(self.next())

    def number(self) -> int | float:
        """An int; or a float if it has a point or an exponent, or is `inf` or `nan`."""
        sign = -1 if self.accept("-") else 1
        if self.at("inf") or self.at("nan"):
            return sign * float(self.next().text)
        token = self.expect_kind("number", "a number")
        return sign * (self._int(token) if token.text.isdigit() else float(token.text))

    def _int(self, token: Token) -> int:
        try:
            return int(token.text)
        except ValueError as error:  # thousands of digits
            self.fail_at(token, "the number is too long", cause=error)

    def raw(self, *stops: str) -> tuple[str, Token]:
        """The text up to one of `stops` outside all brackets (or the end of the line for "")."""
        begin = self.peek()
        depth = 0
        while True:
            token = self.peek()
            if depth == 0 and token is not begin and "" in stops and token.first:
                break
            if depth == 0 and token.text in stops and token.kind == "sign":
                break
            if token.kind == "end" or (depth == 0 and token.text in _CLOSING and token.text):
                self.fail(" or ".join(repr(stop) for stop in stops if stop) or "a dim")
            depth += token.kind == "sign" and token.text in _OPENING
            depth -= token.kind == "sign" and token.text in _CLOSING
            self.next()
        return _COMMENT.sub("", self.text[begin.start : token.start]).strip(), begin

    def dim(self, *stops: str) -> Dim:
        """A dim that ends before one of `stops`."""
        text, token = self.raw(*stops)
        try:
            return parse_dim(text)
        except (ShapeError, TextError, ValueError) as error:
            self.fail_at(token, f"{text!r} is not a dim", cause=error)

    def dims(self) -> tuple[Dim, ...]:
        """A list of dims in square brackets."""
        self.expect("[")
        if self.accept("]"):
            return ()
        text, token = self.raw("]")
        self.next()
        try:
            return tuple(split_dims(text))
        except (ShapeError, TextError, ValueError) as error:
            self.fail_at(token, f"{text!r} is not a list of dims", cause=error)

    def dtype(self) -> DType:
        """A dtype by its short name."""
        token = self.expect_kind("name", "a dtype")
        return BY_SHORT[self.known(token, BY_SHORT, "dtype")]

    def type(self) -> TensorType:
        """`f32[batch, 784]`."""
        token = self.peek()
        if token.kind != "name" or self.peek(1).text != "[":
            self.fail("a type such as f32[batch, 784]")
        dtype, shape = self.dtype(), self.dims()
        if any(isinstance(dim, int) and dim < 0 for dim in shape):
            self.fail_at(token, "a dim is negative")
        return TensorType(dtype, shape)
