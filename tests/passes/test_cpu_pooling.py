"""What CpuPooling makes of max pooling and its gradient, and that these are the same."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

from graphc.ops.pool_taps import max_by_taps, max_gradient_by_taps
from graphc.passes.cpu_pooling import CpuPooling
from tests.passes.check import check_pair, check_stays, pair

ATTRS = "strides=[2, 2], padding=[[0, 0], [0, 0]], dilation=[1, 1]"


def test_small_windows_are_written_out() -> None:
    check_pair(
        CpuPooling(),
        f"""
        x: f32[2, 7, 7, 3], dy: f32[2, 3, 3, 3]
          %0 = MaxPool(x) {{window=[3, 3], {ATTRS}}} : f32[2, 3, 3, 3]
          %1 = MaxPoolGradient(x, dy) {{window=[3, 3], {ATTRS}}} : f32[2, 7, 7, 3]
          return y = %0, dx = %1
        =>
          %0 = MaxPool(x) {{window=[3, 3], {ATTRS}, by_taps=true}} : f32[2, 3, 3, 3]
          %1 = MaxPoolGradient(x, dy) {{window=[3, 3], {ATTRS}, by_taps=true}} : f32[2, 7, 7, 3]
          return y = %0, dx = %1
        """,
    )


def test_large_ones_and_those_that_are_stay() -> None:
    for attrs in (f"window=[5, 5], {ATTRS}", f"window=[5, 5], {ATTRS}, by_taps=true"):
        text = f"""
        x: f32[2, 9, 9, 3], dy: f32[2, 3, 3, 3]
          %0 = MaxPoolGradient(x, dy) {{{attrs}}} : f32[2, 9, 9, 3]
          return out = %0
        => stays
        """
        check_stays(CpuPooling(), pair(text)[0])


POOLINGS = {
    "apart": ((2, 2), (2, 2), ((0, 0), (0, 0))),
    "overlapping": ((3, 3), (2, 2), ((1, 1), (0, 1))),
    "each place": ((2, 3), (1, 1), ((1, 0), (1, 1))),
    "with gaps": ((1, 2), (3, 3), ((0, 0), (1, 0))),
}


@pytest.mark.parametrize(("window", "strides", "padding"), POOLINGS.values(), ids=POOLINGS)
def test_ties_go_to_the_first_as_in_select_and_scatter(
    window: tuple[int, ...], strides: tuple[int, ...], padding: tuple[tuple[int, int], ...]
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (2, 7, 8, 3)).astype(np.float32)
    x[0, 2:4, 3] = np.nan  # select-and-scatter takes what follows NaN for greater
    x[1, :4, :4] = -np.inf

    def pool(x: jax.Array) -> jax.Array:
        sides = ((0, 0), *padding, (0, 0))
        return lax.reduce_window(x, -np.inf, lax.max, (1, *window, 1), (1, *strides, 1), sides)

    y, pull = jax.vjp(pool, x)
    dy = rng.standard_normal(y.shape).astype(np.float32)
    attrs = {"window": window, "strides": strides, "padding": padding, "dilation": (1, 1)}
    np.testing.assert_array_equal(max_by_taps(x, attrs), y)
    got = max_gradient_by_taps(x, dy, attrs)
    np.testing.assert_allclose(got, pull(dy)[0], rtol=1e-6, atol=1e-6)
