"""Rules of sliding windows and of their gradients by `jax.grad`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from graphc.ir.dims import Shape, product
from graphc.ir.dtypes import is_floating
from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Results, Rule
from graphc.jaxpr.primitives import primitive
from graphc.jaxpr.shapes import inverse, transposed
from graphc.ops.arrays.shape import reshaped
from graphc.ops.arrays.slicing import pad_with
from graphc.ops.core.emit import constant, emit_one
from graphc.ops.nn.pooling import MAX_POOL_GRADIENT, avg_pool, max_pool

Ints = tuple[int, ...]


class _Windows(NamedTuple):
    """The windows of one equation, along the axes in which they have more than one element."""

    extent: Ints
    strides: Ints
    pads: tuple[Ints, ...]
    taps: Ints


class _Form(NamedTuple):
    """How an operand becomes [batch, ..., channels]: the order of its axes, the number of batch
    axes (0 or 1), and the number of axes along which windows slide."""

    order: tuple[int, ...]
    batch: int
    sliding: int

    def bring(self, x: Tensor) -> Tensor:
        moved = transposed(x, self.order)
        batch, space = moved.shape[: self.batch], moved.shape[self.batch :][: self.sliding]
        channels = product(moved.shape[self.batch + self.sliding :])
        return reshaped(moved, (*(batch or (1,)), *space, channels))

    def back(self, y: Tensor, shape: Shape) -> Tensor:
        moved = reshaped(y, tuple([shape[i] for i in self.order]))
        return transposed(moved, inverse(self.order))


def _pads(eqn: Equation) -> list[tuple[int, int]]:
    return [(int(low), int(high)) for low, high in eqn.params["padding"]]


def _read(eqn: Equation, pads: Sequence[Ints]) -> tuple[_Form, _Windows]:
    window, strides = eqn.ints("window_dimensions"), eqn.ints("window_strides")
    taps = eqn.ints("window_dilation") if "window_dilation" in eqn.params else (1,) * len(window)
    plain = [
        (w, s, t, p) == (1, 1, 1, (0, 0))
        for w, s, t, p in zip(window, strides, taps, pads, strict=True)
    ]
    sliding = [i for i in range(len(window)) if not plain[i]] or [len(window) - 1]
    rest = [i for i in range(len(window)) if i not in sliding]
    order = (*rest[:1], *sliding, *rest[1:])  # the batch, the spatial axes, the rest as channels
    windows = _Windows(
        tuple(window[i] for i in sliding),
        tuple(strides[i] for i in sliding),
        tuple(pads[i] for i in sliding),
        tuple(taps[i] for i in sliding),
    )
    return _Form(order, len(rest[:1]), len(sliding)), windows


def _pooling(pool: Callable[[Tensor, _Windows], Tensor]) -> Rule:
    def rule(eqn: Equation, x: Tensor) -> Results:
        if any(d != 1 for d in eqn.ints("base_dilation")):
            return primitive(eqn, x)
        form, windows = _read(eqn, _pads(eqn))
        return form.back(pool(form.bring(x), windows), eqn.type.shape)

    return rule


def _sum_pool(eqn: Equation, x: Tensor) -> Results:
    if any(d != 1 for d in eqn.ints("window_dilation")) or not is_floating(x.dtype):
        return primitive(eqn, x)
    # Zeros between the elements, and padding that graphc's windows do not support.
    pads, spread = [], []
    window, gaps = eqn.ints("window_dimensions"), eqn.ints("base_dilation")
    for (low, high), size, gap in zip(_pads(eqn), window, gaps, strict=True):
        inside = tuple(min(max(pad, 0), size - 1) for pad in (low, high))
        pads.append((inside[0], inside[1]))
        spread.append((low - inside[0], high - inside[1], gap - 1))
    if any(row != (0, 0, 0) for row in spread):
        x = pad_with(x, constant(0, x.dtype), spread)
    form, at = _read(eqn, pads)
    mean = avg_pool(form.bring(x), at.extent, at.strides, at.pads, count_include_pad=True)
    return form.back(mean * math.prod(at.extent), eqn.type.shape)


def _select_and_scatter(eqn: Equation, dy: Tensor, x: Tensor) -> Results:
    name = eqn.params["select_prim"].name
    if name not in ("ge", "le"):
        return primitive(eqn, dy, x)
    form, at = _read(eqn, _pads(eqn))
    operand = form.bring(x if name == "ge" else -x)
    dx = emit_one(
        MAX_POOL_GRADIENT,
        (operand, form.bring(dy)),
        window=at.extent,
        strides=at.strides,
        padding=at.pads,
        dilation=at.taps,
    )
    return form.back(dx, eqn.type.shape)


RULES: dict[str, Rule] = {
    "reduce_window_max": _pooling(lambda x, at: max_pool(x, *at)),
    "reduce_window_min": _pooling(lambda x, at: -max_pool(-x, *at)),
    "reduce_window_sum": _sum_pool,
    "select_and_scatter_add": _select_and_scatter,
}
