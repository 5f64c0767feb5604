"""Reads attribute values from the text form; `graphc.ir.values` writes them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from graphc.ir.dims import Dim
from graphc.ir.dtypes import BOOL, BY_SHORT, Array, is_complex
from graphc.ir.lexer import Cursor, Token
from graphc.ir.sharding import Spec, is_spec
from graphc.ir.types import TensorType
from graphc.ir.values import array_of, array_of_bytes

T = TypeVar("T")


def read_attr(cursor: Cursor, kind: str) -> Any:
    """A value of a declared kind (see `ir.opdef.Attr`), or `none`."""
    if cursor.at("none"):
        cursor.next()
        return None
    return _READERS[kind](cursor)


def read_value(cursor: Cursor) -> Any:
    """A value whose text includes its kind.

    Raises:
        TextError: it is not a value. The error names the line and what was expected.
    """
    token = cursor.peek()
    if token.kind == "string":
        return cursor.string()
    if token.kind == "number" or token.text == "-":
        return cursor.number()
    if token.text == "[":
        return _tuple(cursor, read_value)
    if token.text == "{":
        return _mapping(cursor)
    if token.text in _CONSTANTS:
        cursor.next()
        return _CONSTANTS[token.text]
    if token.kind == "name" and cursor.peek(1).text == "(":
        return _tagged(cursor)
    if token.text in BY_SHORT and cursor.peek(1).text == "[":
        return read_array(cursor)
    cursor.fail("a value: a number, a string, [..], {..}, dtype(f32), dim(n), f32[2] [..]")


_CONSTANTS = {"true": True, "false": False, "none": None}


def _tagged(cursor: Cursor) -> Any:
    """`dtype(f32)`, `dim(2*n)`, `float(nan)` or `complex(0.0, 1.0)`."""
    tag = cursor.known(cursor.next(), ("dtype", "dim", "float", "complex"), "kind of value")
    cursor.expect("(")
    value: Any
    if tag == "dtype":
        value = cursor.dtype()
    elif tag == "dim":
        value = cursor.dim(")")
    elif tag == "float":
        value = cursor.number()
    else:
        value = complex(*_pair(cursor))
    cursor.expect(")")
    return value


def _pair(cursor: Cursor) -> tuple[float, float]:
    real = float(cursor.number())
    cursor.expect(",")
    return real, float(cursor.number())


def _function(cursor: Cursor) -> Any:
    token = cursor.peek()
    cursor.fail_at(token, "a Python function cannot be read from a text", "build it in Python")


def _bool(cursor: Cursor) -> bool:
    if cursor.accept("true"):
        return True
    if not cursor.accept("false"):
        cursor.fail("true or false")
    return False


def _tuple(cursor: Cursor, read: Any) -> tuple[Any, ...]:
    cursor.enter()
    cursor.expect("[")
    items = cursor.items("]", lambda: read(cursor))
    cursor.leave()
    return tuple(items)


def _mapping(cursor: Cursor) -> dict[str, Any]:
    cursor.enter()
    cursor.expect("{")
    values: dict[str, Any] = {}

    def item() -> None:
        token = cursor.peek()
        name = cursor.name("the name of an attribute")
        if name in values:
            cursor.fail_at(token, f"{name!r} occurs twice")
        cursor.expect("=")
        values[name] = read_value(cursor)

    cursor.items("}", item)
    cursor.leave()
    return values


_READERS: dict[str, Any] = {
    "int": Cursor.integer,
    "float": Cursor.number,
    "bool": _bool,
    "str": Cursor.string,
    "dtype": Cursor.dtype,
    "dim": lambda cursor: cursor.dim(",", "}"),
    "ints": lambda cursor: _tuple(cursor, Cursor.integer),
    "dims": Cursor.dims,
    "pairs": lambda cursor: _tuple(cursor, Cursor.dims),
    "spec": lambda cursor: read_spec(cursor),
    "array": lambda cursor: read_array(cursor),
    "attrs": _mapping,
    "function": _function,
}


def read_spec(cursor: Cursor) -> Spec:
    """`["data", none]`: see `ir.sharding`."""
    token = cursor.peek()
    value = _tuple(cursor, read_value)
    if not is_spec(value):
        cursor.fail_at(token, 'expected a spec such as ["data", none, ["rows", "columns"]]')
    return value


def by_name(cursor: Cursor, what: str, read: Callable[[Cursor], T]) -> dict[str, T]:
    """`x=0, y=1`: values by name. `what` is the kind of the named objects, for errors."""
    values = {}
    while True:
        name = cursor.name(f"the name of {what}")
        cursor.expect("=")
        values[name] = read(cursor)
        if not cursor.accept(","):
            return values


def read_array(cursor: Cursor) -> Array:
    """`f32[2] [0.5, 1.0]`, or `f32[2] "..."` with the raw bytes in base64.

    Raises:
        TextError: the elements do not fit the type, or were left out (`...`).
    """
    token = cursor.peek()
    type = cursor.type()
    if not type.is_static:
        cursor.fail_at(token, "an array has no named sizes")
    if cursor.at("..."):
        cursor.fail_at(token, "the elements of the array were left out", "print without elide")
    if cursor.peek().kind == "string":
        return _from_base64(cursor, type)
    start = cursor.peek()
    numbers: list[Any] = []
    _elements(cursor, type, type.shape, numbers)
    try:
        return array_of(numbers, type.dtype, type.sizes)
    except ValueError as error:
        cursor.fail_at(start, f"an element of {type} is not {error}", cause=error)


def _from_base64(cursor: Cursor, type: TensorType) -> Array:
    token: Token = cursor.peek()
    try:
        data = base64.b64decode(cursor.string(), validate=True)
    except (binascii.Error, ValueError) as error:
        cursor.fail_at(token, "not base64", cause=error)
    try:
        return array_of_bytes(data, type.dtype, type.sizes)
    except ValueError as error:
        cursor.fail_at(token, f"{type} needs {error}", cause=error)


def _elements(cursor: Cursor, type: TensorType, shape: Sequence[Dim], numbers: list[Any]) -> None:
    """Appends the elements of a nested list of exactly this shape."""
    if not shape:
        numbers.append(_element(cursor, type))
        return
    cursor.enter()
    cursor.expect("[")
    count = 0
    if not cursor.accept("]"):
        while True:
            if count == shape[0]:
                cursor.fail(f"{shape[0]} elements, as {type} has here")
            _elements(cursor, type, shape[1:], numbers)
            count += 1
            if not cursor.more("]"):
                break
    if count != shape[0]:
        cursor.fail(f"{shape[0]} elements, as {type} has here")
    cursor.leave()


def _element(cursor: Cursor, type: TensorType) -> Any:
    if type.dtype == BOOL:
        return _bool(cursor)
    if not is_complex(type.dtype):
        return cursor.number()
    cursor.expect("(")
    pair = _pair(cursor)
    cursor.expect(")")
    return pair
