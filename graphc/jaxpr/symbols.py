"""Named sizes of a graph as JAX's symbolic dims, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax import export

from graphc.errors import JaxImportError, TextError
from graphc.ir.dim_parser import parse_dim
from graphc.ir.dims import Dim, Shape, substitute, symbol, symbols_of
from graphc.ir.dtypes import is_64bit
from graphc.ir.types import TensorType

_SYMBOL = re.compile(r"\bd\d+\b")
_POWER = re.compile(r"([A-Za-z_]\w*)\^(\d+)")


class Symbols:
    """The named sizes of some types, each with a JAX symbol of one scope.

    JAX prints its dims in graphc's notation, so graphc's own parser converts them back.
    """

    def __init__(self, types: Iterable[TensorType]) -> None:
        names = sorted({n for type in types for dim in type.shape for n in symbols_of(dim)})
        # graphc's names may contain dots, but JAX's may not.
        self._ours = {f"d{i}": symbol(name) for i, name in enumerate(names)}
        dims = export.symbolic_shape(", ".join(self._ours)) if names else ()
        self._theirs: dict[str, Any] = dict(zip(names, dims, strict=True))
        self._parsed: dict[str, Dim] = {}

    def struct(self, type: TensorType) -> jax.ShapeDtypeStruct:
        """`type` in the form for JAX's tracing."""
        shape = tuple(substitute(dim, self._theirs) for dim in type.shape)
        return jax.ShapeDtypeStruct(shape, type.dtype)

    def dim(self, dim: Any) -> Dim:
        """Converts a JAX dim to a graphc dim.

        Raises:
            JaxImportError: it is not a sum, product or floor division.
        """
        if type(dim) is int:
            return dim
        text = str(dim)
        if text not in self._parsed:
            self._parsed[text] = self._parse(text)
        return self._parsed[text]

    def dims(self, shape: Sequence[Any]) -> Shape:
        """Converts a JAX shape to a graphc shape."""
        return tuple([d if type(d) is int else self.dim(d) for d in shape])

    def named(self, text: str) -> str:
        """A JAX text with graphc's names."""
        return _SYMBOL.sub(lambda m: str(self._ours.get(m[0], m[0])), text)

    def _parse(self, text: str) -> Dim:
        written = _POWER.sub(lambda m: "*".join([m[1]] * int(m[2])), text)
        try:
            result: Dim = substitute(parse_dim(written), self._ours)
        except TextError as error:
            raise JaxImportError(
                f"the JAX function computes a size that graphc cannot express: {self.named(text)}",
                hint="fix that size: give the placeholder an int instead",
            ) from error
        return result


def x64_for(types: Any) -> AbstractContextManager[Any]:
    """JAX's 64-bit mode if one of `types` needs it; otherwise the current mode."""
    if any(is_64bit(type.dtype) for type in types):
        context: AbstractContextManager[Any] = jax.enable_x64(True)
        return context
    return nullcontext()
