"""Winograd filtering: its matrices, and convolutions in tiles compared with JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from graphc.ops.nn.plain_conv import dimension_numbers
from graphc.ops.nn.winograd import MOST_PLACES, filtering, placed_tiles
from graphc.ops.nn.winograd_conv import (
    winograd_conv,
    winograd_input_gradient,
    winograd_kernel_gradient,
)
from tests.near import assert_near

ALL = [(m, a + 1 - m) for a in range(1, MOST_PLACES + 1) for m in range(1, a + 1)]


@pytest.mark.parametrize(("m", "r"), ALL)
def test_filtering_is_correlation(m: int, r: int) -> None:
    rng = np.random.default_rng(m * 10 + r)
    x, w = rng.integers(-9, 9, m + r - 1), rng.integers(-9, 9, r)
    made = filtering(m, r)
    got = made.results @ ((made.kernel @ w) * (made.tile @ x))
    assert_near(got, np.correlate(x, w, "valid"), rtol=0, atol=1e-11)


def test_the_smallest_is_winograds() -> None:
    made = filtering(2, 3)
    assert np.abs(made.tile).sum() == 8  # two terms for each element: only additions
    assert set(np.abs(made.kernel).ravel()) == {0, 0.5, 1}
    assert set(np.abs(made.results).ravel()) == {0, 1}


def test_tiles_are_placed_over_padding_and_end() -> None:
    m, r, size, low, results = 3, 2, 5, 2, 7
    placed = placed_tiles(m, r, size, low, results)
    assert placed.shape == (4, 3, 5)
    x = np.arange(1.0, 6.0)
    padded = np.concatenate([np.zeros(low), x, np.zeros(10)])
    for tile in range(3):
        begin = tile * m
        want = filtering(m, r).tile @ padded[begin : begin + 4]
        assert_near(placed[:, tile] @ x, want, rtol=1e-7)


def by_jax(x: Any, w: Any, padding: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=dimension_numbers(2))


def numbers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    """Sizes of a convolution, which need not be equal, with incomplete tiles at both ends."""
    window = [draw(st.integers(1, 5)) for _ in range(2)]
    padding = tuple(tuple(draw(st.integers(0, r)) for _ in range(2)) for r in window)
    tiles = tuple(draw(st.integers(1, min(4, MOST_PLACES + 1 - r))) for r in window)
    size = [draw(st.integers(r, 9)) for r in window]
    batch, channels, filters = (draw(st.integers(1, most)) for most in (6, 3, 3))
    images = draw(st.integers(0, batch))
    return dict(
        x=(batch, *size, channels),
        w=(*window, channels, filters),
        how=dict(padding=padding, tiles=tiles, images=images),
    )


@pytest.mark.slow
@pytest.mark.one_jax
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(convolutions())
def test_like_direct_convolutions(sizes: dict[str, Any]) -> None:
    how = sizes["how"]
    with jax.enable_x64(True):
        x, w = numbers(0, *sizes["x"]), numbers(1, *sizes["w"])
        y, pull = jax.vjp(lambda x, w: by_jax(x, w, how["padding"]), x, w)
        dy = numbers(2, *y.shape)
        dx, dw = pull(dy)
        size, window = x.shape[1:3], w.shape[:2]
        for got, want in (
            (winograd_conv(x, w, **how), y),
            (winograd_input_gradient(dy, w, size=size, **how), dx),
            (winograd_kernel_gradient(x, dy, size=window, **how), dw),
        ):
            assert got.shape == want.shape and got.dtype == want.dtype
            assert_near(got, want, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("m", "r", "most"), [(2, 3, 2e-6), (4, 3, 6e-6), (2, 5, 6e-6), (4, 5, 2e-5), (2, 7, 4e-5)]
)
def test_rounding_of_float32(m: int, r: int, most: float) -> None:
    """Relative to the largest result, which for direct sums is about 1e-6."""
    x, w = numbers(3, 2, 12, 12, 64), numbers(4, r, r, 64, 16)
    padding = ((r // 2, r // 2),) * 2
    with jax.enable_x64(True):
        exact = np.asarray(by_jax(x, w, padding))
    narrow = [np.float32(operand) for operand in (x, w)]
    got = winograd_conv(*narrow, padding=padding, tiles=(m, m), images=0)
    assert np.abs(got - exact).max() < most * np.abs(exact).max()


def test_what_is_not_finite_stays_in_its_image() -> None:
    x, w = np.float32(numbers(7, 4, 6, 6, 2)), np.float32(numbers(8, 3, 3, 2, 2))
    x[1, 2, 3, 0], x[3, 0, 0, 1] = np.inf, np.nan
    y = np.asarray(winograd_conv(x, w, padding=((1, 1),) * 2, tiles=(2, 2), images=2))
    wanted = np.asarray(by_jax(x, w, ((1, 1),) * 2))
    assert_near(y[[0, 2]], wanted[[0, 2]], rtol=1e-5)
    assert not np.isfinite(y[~np.isfinite(wanted)]).any()  # no NaN or infinity is lost


def test_each_iteration_takes_a_part_of_a_sharded_batch() -> None:
    """Each of two devices has half of the batch, and no data is transferred."""
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("data",))
    halves = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    how = dict(padding=((1, 1),) * 2, tiles=(2, 2), images=2)
    x = jax.device_put(np.float32(numbers(5, 8, 6, 6, 3)), halves)
    w = jax.device_put(np.float32(numbers(6, 3, 3, 3, 4)), whole)
    run = jax.jit(lambda x, w: winograd_conv(x, w, **how)).lower(x, w).compile()
    text = run.as_text()
    assert "while" in text
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in text
    assert_near(run(x, w), by_jax(x, w, how["padding"]), rtol=0, atol=1e-4)
