"""Functions with the gradients that PyTorch defines at ties and zeros."""

from __future__ import annotations

from typing import Any

from graphc import ops


def magnitude(x: Any) -> Any:
    """|x|, whose gradient is 0 at 0; elsewhere in graphc it is 1 there, as in JAX."""
    if x.dtype.kind not in "fV":
        return ops.abs(x)
    return ops.where(ops.equal(x, 0), ops.zeros_like(x), ops.abs(x))


def root(x: Any) -> Any:
    """The square root of a sum of squares: its gradient is 0 at 0, not infinite."""
    return power_at_zero(x, 0.5)


def power_at_zero(x: Any, exponent: float) -> Any:
    """x ** exponent for x >= 0 and a positive exponent, whose gradient is 0 at 0."""
    zero = ops.equal(x, 0)
    safe = ops.where(zero, ops.ones_like(x), x)
    found = ops.sqrt(safe) if exponent == 0.5 else ops.power(safe, exponent)
    return ops.where(zero, ops.zeros_like(x), found)


def at_least(x: Any, low: Any) -> Any:
    """max(x, low) for a number: at equality the gradient is 0, not half. NaN stays."""
    return ops.where(ops.less_equal(x, low), low, x)


def at_most(x: Any, high: Any) -> Any:
    """min(x, high) for a number: at equality the gradient is 0, not half. NaN stays."""
    return ops.where(ops.greater_equal(x, high), high, x)
