"""Roots whose gradient at 0 is 0, for norms."""

from __future__ import annotations

from collections.abc import Callable

from graphc.ir.node import Tensor
from graphc.ops.elementwise.comparison import not_equal, where


def flat_at_zero(function: Callable[[Tensor], Tensor], x: Tensor, name: str | None) -> Tensor:
    """`function` of `x`, with gradient 0 instead of infinity times 0 where `x` is 0.

    Args:
        function: the root.
        x: no element is negative.
        name: the name of the last node.
    """
    nonzero = not_equal(x, 0)
    return where(nonzero, function(where(nonzero, x, 1)), 0, name=name)
