"""The gradient of a convolution whose padding is wider than the reach of its window.

As one convolution it would have negative padding, for which XLA:CPU reads beyond its operand.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import graphc as gc
from tests.near import assert_near

RNG = np.random.default_rng(0)
SIZES = (2, 8, 7, 4)


def by_hand(dy: Any, w: Any, padding: Any, strides: Any) -> Any:
    """The gradient of x, position by position, in float64."""
    dx = np.zeros(SIZES)
    for i, j in product(range(dy.shape[1]), range(dy.shape[2])):
        for a, b in product(range(w.shape[0]), range(w.shape[1])):
            p = i * strides[0] + a - padding[0][0]
            q = j * strides[1] + b - padding[1][0]
            if 0 <= p < SIZES[1] and 0 <= q < SIZES[2]:
                dx[:, p, q] += dy[:, i, j].astype("d") @ w[a, b].T.astype("d")
    return dx


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize(
    ("window", "padding", "strides"),
    [
        ((3, 3), ((2, 2), (3, 1)), (1, 1)),
        ((1, 3), ((2, 0), (3, 1)), (1, 1)),
        ((3, 3), ((0, 4), (2, 2)), (1, 1)),
        ((2, 3), ((5, 5), (4, 0)), (2, 3)),
        ((3, 1), ((1, 1), (3, 3)), (1, 2)),
    ],
)
def test_the_gradient_of_the_images(window: Any, padding: Any, strides: Any, looped: bool) -> None:
    sizes = zip(SIZES[1:3], window, padding, strides, strict=True)
    places = [(n + low + high - k) // s + 1 for n, k, (low, high), s in sizes]
    kernel = RNG.normal(size=(*window, 4, 5)).astype("f")
    dy = RNG.normal(size=(2, *places, 5)).astype("f")
    with gc.Graph() as graph:
        x, w = gc.placeholder(SIZES, name="x"), gc.placeholder(kernel.shape, name="w")
        given = gc.placeholder(dy.shape, name="dy")

        def gradient(scale: Any) -> Any:
            y = gc.nn.conv2d(x, w, strides=strides, padding=padding)
            return gc.gradients(gc.reduce_sum(y * given * scale), [x])[0]

        dx = gc.map_fn(gradient, gc.constant([1.0, 1.0]))[1] if looped else gradient(1.0)
    want = by_hand(dy, kernel, padding, strides)
    session = gc.Session(graph, unused_feeds="ignore")
    for _ in range(20):  # what was read beyond the operand differed from run to run
        got = session.run(dx, {x: np.zeros(SIZES, "f"), w: kernel, given: dy})
        assert_near(got, want, rtol=1e-5)
