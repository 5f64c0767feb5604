"""Recurrent networks in NumPy, one sequence and one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def simple(p: dict[str, Array], x: Array, h: Array) -> Array:
    return np.tanh(x @ p["kernel"] + h @ p["recurrent_kernel"] + p["bias"])


def gru(p: dict[str, Array], x: Array, h: Array) -> Array:
    a = np.split(x @ p["kernel"] + p["bias"], 3)
    b = np.split(h @ p["recurrent_kernel"], 3)
    r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
    n = np.tanh(a[2] + r * (b[2] + p["recurrent_bias"]))
    return (1 - z) * n + z * h


def lstm(p: dict[str, Array], x: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
    h, c = state
    i, f, g, o = np.split(x @ p["kernel"] + h @ p["recurrent_kernel"] + p["bias"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def run(
    step: Callable[..., Any], p: dict[str, Array], xs: Array, state: Any, reverse: bool = False
) -> tuple[Array, Any]:
    """The outputs [time, units] of one sequence [time, features], and its last state."""
    units = p["recurrent_kernel"].shape[0]
    outputs = np.zeros((len(xs), units))
    for t in reversed(range(len(xs))) if reverse else range(len(xs)):
        state = step(p, xs[t], state)
        outputs[t] = state[0] if isinstance(state, tuple) else state
    return outputs, state


def zeros(step: Callable[..., Any], units: int) -> Any:
    """The initial state."""
    return (np.zeros(units), np.zeros(units)) if step is lstm else np.zeros(units)
