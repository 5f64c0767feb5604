"""`Operation`: an operation of StableHLO as rules see it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.ir.dtypes import BY_SHORT, Array, DType
from graphc.untrusted.rules import mlir_name

Run = Callable[[Any, Sequence[Any]], "list[Any]"]
"""Evaluates a block: (block, its arguments) -> the values that it returns."""

_DTYPES = {mlir_name(short): dtype for short, dtype in BY_SHORT.items()}
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([^<>x][^>]*>?)>")
_BLOB = re.compile(r'dense<"0x([0-9A-Fa-f]*)">')
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)|true|false")


class NotKnownError(Exception):
    """No rule covers an operation. The text states what it is."""


@dataclass(frozen=True)
class Operation:
    """An operation.

    Attributes:
        raw: of MLIR's bindings.
        run: evaluates a block of one of its regions.
        call: evaluates a function of the module: (name, arguments) -> results.
    """

    raw: Any
    run: Run
    call: Callable[[str, Sequence[Any]], list[Any]]

    @property
    def name(self) -> str:
        return str(self.raw.name)

    def has(self, name: str) -> bool:
        """Whether it has an attribute."""
        return name in self.raw.attributes

    def attribute(self, name: str) -> Any:
        """An attribute."""
        return self.raw.attributes[name]

    def number(self, name: str, default: int = 0) -> int:
        """An integer or bool."""
        return int(self.attribute(name).value) if self.has(name) else default

    def text(self, name: str) -> str:
        """A string, or the name of a function."""
        return str(self.attribute(name).value)

    def word(self, name: str) -> str:
        """An enumeration, such as LT in `#stablehlo<comparison_direction LT>`."""
        words = re.findall(r"\w+", str(self.attribute(name)))
        return words[-1] if words else ""

    def ints(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """Integers in an array or in elements of rank 1."""
        return tuple(map(int, self.array(name).reshape(-1))) if self.has(name) else tuple(default)

    def array(self, name: str) -> Array:
        """Integers as an array."""
        attribute = self.attribute(name)
        try:
            return np.array(attribute, np.int64)
        except (TypeError, ValueError):
            return np.array(list(attribute), np.int64)

    def type(self, number: int = 0) -> tuple[tuple[int, ...], DType]:
        """The shape and dtype of a result."""
        return parse_type(str(self.raw.results[number].type))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type()[0]

    @property
    def dtype(self) -> DType:
        return self.type()[1]

    def block(self, region: int = 0) -> Any:
        """The only block of a region."""
        blocks = list(self.raw.regions[region].blocks)
        if len(blocks) != 1:
            raise NotKnownError(f"{self.name} with {len(blocks)} blocks in a region")
        return blocks[0]

    def function(self, region: int = 0) -> Callable[..., list[Any]]:
        """A region as a function."""
        block = self.block(region)
        return lambda *values: self.run(block, values)


def parse_type(text: str) -> tuple[tuple[int, ...], DType]:
    """The shape and dtype of a type as MLIR prints it.

    Raises:
        NotKnownError: it is no tensor with known sizes, or graphc lacks its dtype.
    """
    found = _TENSOR.fullmatch(text)
    dtype = None if found is None else _DTYPES.get(found[2])
    if found is None or dtype is None:
        raise NotKnownError(f"a value of type {text}")
    return tuple(int(n) for n in found[1].split("x")[:-1]), dtype


def constant(operation: Any) -> Array:
    """The value of a stablehlo.constant."""
    shape, dtype = parse_type(str(operation.results[0].type))
    if dtype.kind == "c":  # the bindings raise an error for the attribute
        return _from_text(str(operation.get_asm()), shape, dtype)
    attribute = operation.attributes["value"]
    try:
        value = np.array(attribute)
        if value.shape == shape and value.dtype == dtype:
            return value
    except (TypeError, ValueError):
        pass
    return _from_text(str(attribute), shape, dtype)


def _from_text(text: str, shape: tuple[int, ...], dtype: DType) -> Array:
    """Elements of a dtype that the bindings do not read, such as bfloat16 and complex64."""
    blob = _BLOB.search(text)
    if blob is not None:
        return np.frombuffer(bytes.fromhex(blob[1]), dtype).reshape(shape).copy()
    body = text[text.index("dense<") + len("dense<") : text.rindex("> :")]
    words = _NUMBER.findall(body)
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        flat = np.array([_scalar(word, part) for word in words], part).view(dtype)
    else:
        flat = np.array([_scalar(word, dtype) for word in words], dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if flat.size not in (1, count):
        raise NotKnownError(f"the constant {text[:60]}")
    return np.ascontiguousarray(
        np.broadcast_to(flat, (count,)) if flat.size == 1 else flat
    ).reshape(shape)


def _scalar(word: str, dtype: DType) -> Any:
    if word.startswith("0x"):
        return np.frombuffer(bytes.fromhex(word[2:].zfill(2 * dtype.itemsize))[::-1], dtype)[0]
    if word in ("true", "false"):
        return dtype.type(word == "true")
    return dtype.type(float(word)) if dtype.kind in "fcV" else dtype.type(int(word))
