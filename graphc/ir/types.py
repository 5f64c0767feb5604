"""`TensorType`: the dtype and shape of a tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from graphc.errors import TextError
from graphc.ir.dim_parser import parse_dim
from graphc.ir.dims import Dim, DimExpr, Shape, substitute, symbol
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


def shown_types(
    types: Mapping[str, TensorType], inputs: Mapping[str, TensorType] | None = None
) -> dict[str, str]:
    """The types of named inputs or outputs as messages show them.

    `?` also stands for a size that got its name from an input and the number of its axis, because
    the user wrote None.

    Args:
        inputs: the inputs, if `types` are outputs.

    >>> shown_types({"x": parse_type("f32[x_0, 4]"), "n": parse_type("i32[batch]")})
    {'x': 'f32[?, 4]', 'n': 'i32[batch]'}
    """
    pattern = re.compile(
        "|".join([_UNNAMED.pattern, *(rf"\b{name}\b" for name in _own_names(inputs or types))])
    )
    return {name: pattern.sub("?", str(type)) for name, type in types.items()}


def shown_size(size: str, inputs: Mapping[str, TensorType]) -> str:
    """An open size of these inputs in words: with its name, or the axis that has it.

    >>> shown_size("x_0", {"x": parse_type("f32[x_0, 4]")})
    "the size of axis 0 of 'x'"
    >>> shown_size("batch", {"x": parse_type("f32[batch, 4]")})
    "size 'batch'"
    """
    if _UNNAMED.fullmatch(size) or size in _own_names(inputs):
        for name, type in inputs.items():
            if symbol(size) in type.shape:
                return f"the size of axis {type.shape.index(symbol(size))} of {name!r}"
    return f"size {size!r}"


def _own_names(inputs: Mapping[str, TensorType]) -> list[str]:
    """The names of sizes that consist of an input and the number of its axis."""
    return [
        f"{name}_{axis}"
        for name, type in inputs.items()
        for axis, dim in enumerate(type.shape)
        if str(dim) == f"{name}_{axis}"
    ]


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
