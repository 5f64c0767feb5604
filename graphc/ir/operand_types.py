"""Types for the arguments of operators and of the methods of tensors, for the lowest layers.

`graphc.typing`, a higher layer, has the public types.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from graphc.ir.dims import DimExpr
    from graphc.ir.operand import Operand

Axes = int | Sequence[int] | None


class SupportsArray(Protocol):
    """An object that NumPy can read: an array of NumPy, JAX, pandas or torch."""

    def __array__(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array."""


OperandLike: TypeAlias = "Operand | DimExpr | complex | SupportsArray | Sequence[Any]"
"""A value that an operator converts to a tensor: `graphc.typing.TensorLike` for this layer."""

DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any]
"""`graphc.typing.DTypeLike` for this layer."""

IndexLike: TypeAlias = "OperandLike | slice | EllipsisType | tuple[Any, ...] | None"
"""An index: the text between the brackets of `x[...]`."""
