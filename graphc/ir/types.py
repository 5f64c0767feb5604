"""`TensorType`: the dtype and shape of a tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from graphc.errors import TextError
from graphc.ir.dim_parser import parse_dim
from graphc.ir.dims import Dim, DimExpr, Shape, substitute
from graphc.ir.dtypes import BY_SHORT, DType, as_dtype, short_name


class TensorType(NamedTuple):
    """`dtype` and `shape`; a dim is an int or a `DimExpr`. Prints as `f32[batch, 784]`."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dim is an int."""
        return not any(isinstance(dim, DimExpr) for dim in self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, for a type whose dims are all ints."""
        return tuple([dim for dim in self.shape if isinstance(dim, int)])

    def bind(self, bindings: Mapping[str, Any]) -> TensorType:
        """The type with named sizes replaced by the values in `bindings`."""
        if self.is_static:
            return self
        return TensorType(self.dtype, tuple(substitute(d, bindings) for d in self.shape))

    def map_dims(self, function: Callable[[Dim], Dim]) -> TensorType:
        """The type with `function` applied to every dim."""
        return TensorType(self.dtype, tuple(function(d) for d in self.shape))

    def shown(self) -> str:
        """The type as messages show it: `?` stands for sizes of placeholders without a name.

        >>> parse_type("f32[Placeholder_0, 4]").shown()
        'f32[?, 4]'
        """
        return _UNNAMED.sub("?", str(self))

    def __str__(self) -> str:
        return f"{short_name(self.dtype)}[{', '.join(map(str, self.shape))}]"


_UNNAMED = re.compile(r"\bPlaceholder(_\d+)?_\d+\b")
"""The names of the sizes of placeholders without a name; see `graphc.build.specs`."""


def parse_type(text: str) -> TensorType:
    """The type that prints as `text`.

    >>> str(parse_type("f32[batch, 784]"))
    'f32[batch, 784]'
    """
    name, _, rest = text.strip().partition("[")
    inner = rest.rstrip()
    if not inner.endswith("]"):
        raise TextError(f"{text!r} is not a type", hint="write it as f32[batch, 784]")
    short = name.strip()
    return TensorType(BY_SHORT.get(short) or as_dtype(short), tuple(split_dims(inner[:-1])))


def split_dims(text: str) -> list[Dim]:
    """The dims of a comma-separated list; commas inside brackets do not separate."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current)
    return [parse_dim(part) for part in parts]
