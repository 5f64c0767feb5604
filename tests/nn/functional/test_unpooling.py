"""Unpooling, the inverse of max pooling."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import DTypeError, ShapeError
from tests.near import assert_near


def run(build, x, shape):
    with gc.Graph() as graph:
        feed = gc.placeholder(shape, x.dtype)
        fetches = build(feed)
    return jax.tree.map(np.asarray, gc.Session(graph).run(fetches, {feed: x}))


@pytest.mark.parametrize(
    ("size", "shape", "attrs"),
    [
        ((2, 4, 6, 3), (2, 4, 6, 3), dict(window=2)),
        ((2, 5, 4, 3), ("n", "h", 4, 3), dict(window=3, strides=1, padding="same")),
        ((2, 6, 3), ("n", "t", "c"), dict(window=2)),
    ],
)
def test_maxima_go_back(size, shape, attrs) -> None:
    x = np.random.default_rng(0).permutation(np.prod(size)).reshape(size).astype(np.float64) + 1

    def build(x):
        y, places = nn.max_pool_with_argmax(x, **attrs)
        back = nn.max_unpool(y, places, x.shape[1:-1])
        return y, places, back, gc.gradients([gc.reduce_sum(back * back)], [y])[0]

    y, places, back, dy = run(build, x, shape)
    wanted = np.zeros((size[0], int(np.prod(size[1:-1])), size[-1]))
    flat = places.reshape(size[0], -1, size[-1])
    np.put_along_axis(wanted, flat, y.reshape(flat.shape), 1)
    np.testing.assert_array_equal(back, wanted.reshape(size))
    if "strides" not in attrs:  # no index occurs twice
        assert_near(dy, 2 * y, rtol=1e-7)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.max_unpool(x, gc.cast(x, "int32"), (4, 4, 4)), ShapeError, "a size for each"),
        (lambda x: nn.max_unpool(x, x, 4), DTypeError, "places must be integers"),
        (lambda x: nn.max_unpool(x, gc.cast(x[:1], "int32"), 4), ShapeError, "differ in shape"),
    ],
)
def test_errors(call, error, match: str) -> None:
    with gc.Graph():
        x = gc.placeholder((2, 2, 2, 3))
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_unpooling.py:" in str(info.value)


def test_places_below_0_are_left_out() -> None:
    y = np.array([[[[1.0], [2.0]]]])
    places = np.array([[[[-1], [0]]]], np.int8)
    back = run(lambda y: nn.max_unpool(y, places, (2, 2)), y, y.shape)
    np.testing.assert_array_equal(back.ravel(), [2, 0, 0, 0])


def test_an_empty_batch() -> None:
    places = np.zeros((0, 2, 2, 3), np.int32)
    y = np.zeros((0, 2, 2, 3))
    assert run(lambda y: nn.max_unpool(y, places, 4), y, y.shape).shape == (0, 4, 4, 3)
