"""The check that predictions and labels belong together."""

from __future__ import annotations

from graphc.errors import ShapeError
from graphc.ir.node import Tensor, describe_tensors
from graphc.ir.scopes import AMBIENT
from graphc.ir.source import current_source


def refuse_column(op: str, **pair: Tensor) -> None:
    """Raises `ShapeError` if one of two tensors is a column [..., n, 1] and the other a vector
    [..., n]: the loss would broadcast to all pairs, [..., n, n], which is hardly ever meant."""
    low, high = sorted(pair.values(), key=lambda each: each.ndim)
    if low.ndim == 0 or high.ndim != low.ndim + 1:
        return
    if high.shape[-1] == 1 and high.shape[-2] != 1 and low.shape[-1] != 1:
        column = next(label for label, each in pair.items() if each is high)
        raise ShapeError(
            f"{op}: {' and '.join(pair)} would give a loss for each pair of examples, because "
            f"{column} is a column and the other one is not",
            details=describe_tensors(pair),
            source=AMBIENT.source or current_source(),
            hint=f"gc.squeeze({column}, -1), or [..., None] for the other one",
        )
