"""Symbolic sizes of PyTorch as named sizes."""

from __future__ import annotations

from collections.abc import Mapping
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
            total: Any = parts[0]
            for part in parts[1:]:
                total = total + part
            return total  # type: ignore[no-any-return]
        if expression.is_Mul:
            product: Any = parts[0]
            for part in parts[1:]:
                product = product * part
            return product  # type: ignore[no-any-return]
        if type(expression).__name__ in ("FloorDiv", "CleanDiv"):
            return parts[0] // parts[1]
        raise Refused(f"has the size {expression}, which is not supported")
