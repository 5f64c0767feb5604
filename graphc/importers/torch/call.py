"""`Call`: what the rule of an operator gets besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from graphc import ops
from graphc.ir.dims import DimExpr
from graphc.ir.node import Tensor
from graphc.ops.core.emit import dim_value


class Refused(Exception):
    """A node cannot be imported; the text completes a sentence that starts with its operator."""


@dataclass(frozen=True)
class Call:
    """A node of an exported program while its nodes of the graph are made.

    Attributes:
        dtypes: the dtype of each result in PyTorch; None for a result that is not a tensor.
        body: `(module, values) -> results` adds the nodes of a nested graph.
        node: the node of PyTorch, whose operands have strides; None outside of a program.
    """

    dtypes: tuple[np.dtype[Any] | None, ...]
    body: Callable[[Any, Sequence[Any]], list[Any]]
    node: Any = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the first result."""
        if not self.dtypes or self.dtypes[0] is None:
            raise Refused("has no tensor as its result")
        return self.dtypes[0]

    def tensor(self, value: Any, dtype: Any = None) -> Any:
        """A tensor, number or size as a tensor, in a dtype if one is given."""
        if isinstance(value, DimExpr):
            value = dim_value(value, np.dtype(np.int64))
        elif not isinstance(value, Tensor):
            return ops.constant(np.asarray(value, dtype))
        return value if dtype is None or value.dtype == dtype else ops.cast(value, dtype)

    def own(self, value: Any) -> Any:
        """A value in the dtype of the first result."""
        return self.tensor(value, self.dtype)


Rule: TypeAlias = Callable[..., Any]
"""`(call, *args, **kwargs) -> results`: the arguments of the operator, with tensors of graphc."""


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; PyTorch lets a scalar have one."""
    return axis % rank if rank else 0


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; None or none means all."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return tuple(range(rank))
    given = axes if isinstance(axes, (list, tuple)) else [axes]
    return tuple(axis_of(axis, rank) for axis in given) if rank else ()


ELEMENTS: Final = 1 << 24  # of a constant that is made at import
PARTS: Final = 1 << 14  # for each of which nodes are made


def within_reason(count: Any, what: str, most: int = ELEMENTS) -> None:
    """Refuses what would take all memory or time at import, which a damaged file may ask for.

    Raises:
        Refused: there are too many.
    """
    if isinstance(count, int) and count > most:
        raise Refused(f"makes {count} {what}, which are too many")
