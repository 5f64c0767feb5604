"""Symbolic sizes of PyTorch as named sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add, mul
from typing import Any

from graphc.importers.torch.call import Refused
from graphc.ir.dims import Dim, DimExpr, symbol


class Symbols:
    """Converts sizes.

    Args:
        names: symbol -> the name that the user gave it.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def dim(self, size: Any) -> Dim:
        """An int, a size of PyTorch that may have symbols, or one that is converted."""
        if isinstance(size, (int, DimExpr)):
            return size
        return self._of(size.node.expr)

    def _of(self, expression: Any) -> Dim:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            name = str(expression)
            return symbol(self._names.get(name, name))
        parts = [self._of(arg) for arg in expression.args]
        if expression.is_Add:
            return reduce(add, parts)
        if expression.is_Mul:
            return reduce(mul, parts)
        if type(expression).__name__ in ("FloorDiv", "CleanDiv"):
            return parts[0] // parts[1]
        raise Refused(f"has the size {expression}, which is not supported")
