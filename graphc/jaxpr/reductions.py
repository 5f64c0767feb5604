"""Rules of reductions, and of running ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Rule
from graphc.ops.arithmetic import maximum, minimum, multiply
from graphc.ops.axiswise import cumsum
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.emit import emit_one
from graphc.ops.slicing import pad_with


def _reduction(name: str) -> Rule:
    op = CATALOGUE[name]

    def rule(eqn: Equation, x: Tensor) -> Tensor:
        axes = tuple(sorted(eqn.ints("axes")))
        return emit_one(op, (x,), axes=axes, keepdims=False) if axes else x

    return rule


def _bool_reduction(name: str) -> Rule:
    reduce = _reduction(name)

    def rule(eqn: Equation, x: Tensor) -> Any:
        if x.dtype.kind != "b":
            eqn.refuse(f"of {x.dtype.name} (bit by bit) is not imported")
        return reduce(eqn, x)

    return rule


def _position(name: str) -> Rule:
    op = CATALOGUE[name]

    def rule(eqn: Equation, x: Tensor) -> Tensor:
        (axis,) = eqn.ints("axes")
        return emit_one(op, (x,), axis=axis, dtype=eqn.type.dtype)

    return rule


def _cumsum(eqn: Equation, x: Tensor) -> Tensor:
    return cumsum(x, int(eqn.params["axis"]), reverse=bool(eqn.params["reverse"]))


def _running(combine: Callable[[Tensor, Tensor], Tensor], start: Callable[[Any], Any]) -> Rule:
    """Running products and extremes in log2(n) steps, each over twice the distance.

    Source: Hillis & Steele, Data parallel algorithms, CACM 29, 1986. `start(dtype)` is what
    leaves an element as it is.
    """

    def rule(eqn: Equation, x: Tensor) -> Tensor:
        axis, reverse = int(eqn.params["axis"]), bool(eqn.params["reverse"])
        size = x.shape[axis]
        if not isinstance(size, int):
            eqn.refuse(f"along the named size {size} is not imported", "fix that size")
        distance = 1
        while distance < size:
            shift = (-distance, distance, 0) if reverse else (distance, -distance, 0)
            pads = [shift if i == axis else (0, 0, 0) for i in range(x.ndim)]
            x = combine(x, pad_with(x, np.asarray(start(x.dtype), x.dtype), pads))
            distance *= 2
        return x

    return rule


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if is_floating(dtype) else np.iinfo(dtype).min


def _greatest(dtype: np.dtype[Any]) -> Any:
    return np.inf if is_floating(dtype) else np.iinfo(dtype).max


RULES: dict[str, Rule] = {
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "cummax": _running(maximum, _lowest),
    "cummin": _running(minimum, _greatest),
    "cumprod": _running(multiply, lambda dtype: 1),
    "cumsum": _cumsum,
    "reduce_and": _bool_reduction("ReduceAll"),
    "reduce_max": _reduction("ReduceMax"),
    "reduce_min": _reduction("ReduceMin"),
    "reduce_or": _bool_reduction("ReduceAny"),
    "reduce_prod": _reduction("ReduceProd"),
    "reduce_sum": _reduction("ReduceSum"),
}
