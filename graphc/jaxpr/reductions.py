"""Rules of reductions, of running ones, and of windows that slide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.dims import product
from graphc.ir.dtypes import is_floating
from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Rule
from graphc.jaxpr.shapes import inverse, reshaped, transposed
from graphc.ops.arithmetic import maximum, minimum, multiply
from graphc.ops.axiswise import cumsum
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.emit import emit_one
from graphc.ops.pooling import avg_pool, max_pool
from graphc.ops.slicing import pad_with

Ints = tuple[int, int]


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


# -- windows that slide ------------------------------------------------------------------------


def _pooling(pool: Callable[..., Tensor]) -> Rule:
    """`reduce_window` over one or two axes, brought to [batch, height, width, channels]."""

    def rule(eqn: Equation, x: Tensor) -> Tensor:
        if any(d != 1 for d in eqn.ints("base_dilation")):
            eqn.refuse("with base_dilation is not imported")
        window, strides = eqn.ints("window_dimensions"), eqn.ints("window_strides")
        taps = eqn.ints("window_dilation")
        pads = [(int(low), int(high)) for low, high in eqn.params["padding"]]
        plain = [
            (w, s, t, p) == (1, 1, 1, (0, 0))
            for w, s, t, p in zip(window, strides, taps, pads, strict=True)
        ]
        sliding = [i for i in range(x.ndim) if not plain[i]]
        if len(sliding) > 2:
            eqn.refuse(f"over {len(sliding)} axes is not imported: 2 at most")
        rest = [i for i in range(x.ndim) if plain[i]]
        order = (*rest[:1], *sliding, *rest[1:])  # the batch, space, and the others as channels
        moved = transposed(x, order)
        batch = moved.shape[: len(rest[:1])] or (1,)
        space = moved.shape[len(rest[:1]) :][: len(sliding)]
        channels = product(moved.shape[len(rest[:1]) + len(sliding) :])
        pooled = pool(
            eqn,
            reshaped(moved, (*batch, *_pair(space, 1), channels)),
            _pair([window[i] for i in sliding], 1),
            _pair([strides[i] for i in sliding], 1),
            _pair([pads[i] for i in sliding], (0, 0)),
            _pair([taps[i] for i in sliding], 1),
        )
        back = reshaped(pooled, tuple([eqn.type.shape[i] for i in order]))
        return transposed(back, inverse(order))

    return rule


def _pair(items: Sequence[Any], one: Any) -> tuple[Any, Any]:
    """`items` for two axes, the first of which may be missing."""
    first, second = [*([one] * (2 - len(items))), *items]
    return first, second


def _max_pool(
    eqn: Equation, x: Tensor, window: Ints, strides: Ints, pads: Any, taps: Ints
) -> Tensor:
    return max_pool(x, window, strides, pads, taps)


def _min_pool(
    eqn: Equation, x: Tensor, window: Ints, strides: Ints, pads: Any, taps: Ints
) -> Tensor:
    return -max_pool(-x, window, strides, pads, taps)


def _sum_pool(
    eqn: Equation, x: Tensor, window: Ints, strides: Ints, pads: Any, taps: Ints
) -> Tensor:
    if taps != (1, 1):
        eqn.refuse("with window_dilation is not imported")
    mean = avg_pool(x, window, strides, pads, count_include_pad=True)
    return mean * (window[0] * window[1])


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
    "reduce_window_max": _pooling(_max_pool),
    "reduce_window_min": _pooling(_min_pool),
    "reduce_window_sum": _pooling(_sum_pool),
}
