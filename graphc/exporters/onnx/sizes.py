"""Sizes as values: named sizes are read from the inputs while the model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphc.exporters.onnx.refused import Refused
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import INT64, Writer
from graphc.ir.dims import Dim, as_symbol, substitute, symbols_of


@dataclass(frozen=True)
class _Scalar:
    """A size in the arithmetic of dims, which `substitute` does: each operation is a node.

    Attributes:
        is_signed: whether it may be negative.
    """

    writer: Writer
    value: Value
    is_signed: bool = False

    def _of(self, other: Any) -> _Scalar:
        if isinstance(other, _Scalar):
            return other
        return _Scalar(self.writer, self.writer.constant(other, INT64), other < 0)

    def _with(self, op: str, other: Any, is_signed: bool = False) -> _Scalar:
        right = self._of(other)
        value = self.writer.op(op, self.value, right.value)
        return _Scalar(self.writer, value, is_signed or self.is_signed or right.is_signed)

    def __add__(self, other: Any) -> _Scalar:
        return self._with("Add", other)

    def __mul__(self, other: Any) -> _Scalar:
        return self._with("Mul", other)

    def __floordiv__(self, other: Any) -> _Scalar:
        if not self.is_signed:
            return self._with("Div", other)
        # Div rounds towards zero. The remainder of Mod has the sign of the divisor.
        return (self - self._with("Mod", other))._with("Div", other)

    def __rfloordiv__(self, other: Any) -> _Scalar:
        return self._of(other) // self

    def __sub__(self, other: Any) -> _Scalar:
        return self._with("Sub", other, is_signed=True)

    __radd__ = __add__
    __rmul__ = __mul__


class Place(NamedTuple):
    """Where a named size is: `factor` times the size is the size of an axis of an input."""

    input: Value
    axis: int
    factor: int


class Sizes:
    """The sizes of a program. Their nodes are in the outermost graph, and each exists once.

    Args:
        root: the writer of the outermost graph.
        places: named size -> where inputs have it.
    """

    def __init__(self, root: Writer, places: Mapping[str, Place]) -> None:
        self._root = root
        self._places = places
        self._named: dict[str, _Scalar] = {}
        self._made: dict[Dim, Value] = {}

    def scalar(self, dim: Dim) -> Value:
        """The size as an int64 scalar.

        Raises:
            Refused: no input has the size.
        """
        if isinstance(dim, int):
            return self._root.constant(dim, INT64)
        found = self._made.get(dim)
        if found is None:
            prefix, self._root.prefix = self._root.prefix, f"size/{as_symbol(dim) or 'of'}"
            made = substitute(dim, {name: self._symbol(name) for name in symbols_of(dim)})
            found = self._made[dim] = made.value
            self._root.prefix = prefix
        return found

    def _symbol(self, name: str) -> _Scalar:
        if name not in self._named:
            if name not in self._places:
                raise Refused(f"needs the size {name}, which is not the size of an input")
            place = self._places[name]
            shape = self._root.op("Shape", place.input, dtype=INT64, rank=1)
            whole = self._root.gather(shape, self._root.constant(place.axis, INT64), 0)
            size = _Scalar(self._root, whole)
            self._named[name] = size if place.factor == 1 else size // place.factor
        return self._named[name]

    def vector(self, dims: Sequence[Dim]) -> Value:
        """The sizes as an int64 vector."""
        if all(isinstance(dim, int) for dim in dims):
            return self._root.ints(dims)  # type: ignore[arg-type]
        root = self._root
        parts = [root.unsqueeze(self.scalar(dim), [0]) for dim in dims]
        return root.concat(parts, 0)

    def target(self, dims: Sequence[Dim]) -> Value:
        """The sizes as the target of a reshape, in which one may be -1."""
        named = [i for i, dim in enumerate(dims) if not isinstance(dim, int)]
        if len(named) == 1 and 0 not in dims:
            return self._root.ints([-1 if i == named[0] else int(d) for i, d in enumerate(dims)])  # type: ignore[arg-type]
        return self.vector(dims)
