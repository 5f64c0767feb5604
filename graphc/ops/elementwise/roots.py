"""Roots in composites: at 0, where a root has none, the gradient of a norm is 0."""

from __future__ import annotations

from collections.abc import Callable

from graphc.ir.node import Tensor
from graphc.ops.elementwise.comparison import not_equal, where


def flat_at_zero(function: Callable[[Tensor], Tensor], x: Tensor, name: str | None) -> Tensor:
    """A root of `x`, whose gradient where `x` is 0 is 0, and not infinite times 0.

    Args:
        function: the root.
        x: not negative.
        name: of the last node.
    """
    nonzero = not_equal(x, 0)
    return where(nonzero, function(where(nonzero, x, 1)), 0, name=name)
