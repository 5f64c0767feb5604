"""Convolutions that cut off elements of their input: XLA:CPU reads beyond the operand for some."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax import lax

import graphc as gc
from tests.near import assert_near

RNG = np.random.default_rng(0)


def reference(x: Any, w: Any, stride: int, pads: tuple[int, int], taps: int, gaps: int) -> Any:
    """The convolution of x [batch, space, channels] with w [space, channels, filters], in NumPy."""
    spread = np.zeros((x.shape[0], (x.shape[1] - 1) * gaps + 1, x.shape[2]))
    spread[:, ::gaps] = x
    low, high = pads
    kept = spread[:, max(-low, 0) : spread.shape[1] - max(-high, 0)]
    kept = np.pad(kept, ((0, 0), (max(low, 0), max(high, 0)), (0, 0)))
    count = (kept.shape[1] - (taps * (w.shape[0] - 1) + 1)) // stride + 1
    parts = [
        kept[:, tap * taps : tap * taps + (count - 1) * stride + 1 : stride] @ w[tap]
        for tap in range(w.shape[0])
    ]
    return sum(parts)


@pytest.mark.parametrize("pads", [(-2, 2), (-1, 1), (1, -2), (-1, -1), (2, -1), (-2, 1)])
@pytest.mark.parametrize(("stride", "taps", "gaps"), [(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 1, 2)])
def test_results_and_gradients(pads: tuple[int, int], stride: int, taps: int, gaps: int) -> None:
    x, w = (RNG.normal(size=shape).astype(np.float32) for shape in ((2, 6, 2), (3, 2, 3)))

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride,), (pads,), (gaps,), (taps,), dimension_numbers=("NWC", "WIO", "NWC")
        )

    want = reference(x, w, stride, pads, taps, gaps)
    weights = RNG.normal(size=want.shape).astype(np.float32)
    with gc.Graph() as graph:
        given = [gc.placeholder(value.shape, name=name) for name, value in (("x", x), ("w", w))]
        y = gc.from_jax(convolve)(*given)
        slopes = gc.gradients(gc.reduce_sum(y * weights), given)
    with gc.Session(graph) as session:
        got, dx, dw = session.run([y, *slopes], dict(zip(given, (x, w), strict=True)))
    assert_near(got, want, rtol=1e-5, atol=1e-5)
    # The result is linear in each operand: the gradient is the result of unit vectors.
    for place in np.ndindex(x.shape):
        unit = np.zeros_like(x)
        unit[place] = 1
        slope = (reference(unit, w, stride, pads, taps, gaps) * weights).sum()
        assert_near(dx[place], slope, rtol=1e-4, atol=1e-5)
    for place in np.ndindex(w.shape):
        unit = np.zeros_like(w)
        unit[place] = 1
        slope = (reference(x, unit, stride, pads, taps, gaps) * weights).sum()
        assert_near(dw[place], slope, rtol=1e-4, atol=1e-5)
