"""Space-to-depth and back, resizing compared with `jax.image`, and global pooling."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest

from graphc import nn
from graphc.autodiff import gradients
from graphc.build import placeholder
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops.reductions.reduction import reduce_sum
from graphc.runtime.session import Session
from tests.near import assert_near


def test_space_and_depth() -> None:
    value = np.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3).astype(np.int32)
    with Graph() as graph:
        x = placeholder(("n", 4, 6, 3), "int32")
        deep = nn.space_to_depth(x, 2)
        flat = nn.depth_to_space(deep, 2)
        line = nn.depth_to_space(nn.space_to_depth(x[:, 0], 3), 3)
    found = Session(graph).run([deep, flat, line], {x: value})
    wanted = np.zeros((2, 2, 3, 12), np.int32)
    for i, j in np.ndindex(2, 3):
        wanted[:, i, j] = value[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].reshape(2, 12)
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_array_equal(found[1], value)
    np.testing.assert_array_equal(found[2], value[:, 0])


METHODS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
SIZES = [(7, 5), (3, 9), (10, 6), (5, 6)]


@pytest.mark.slow
@pytest.mark.parametrize("antialias", [True, False])
def test_resize_is_that_of_jax(antialias: bool) -> None:
    value = np.random.default_rng(0).standard_normal((2, 5, 6, 3)).astype(np.float32)
    rows = [(method, size) for method in METHODS for size in SIZES]
    with Graph() as graph:
        x = placeholder(("n", 5, 6, 3))
        ys = [nn.resize(x, size, method, antialias=antialias) for method, size in rows]
        slopes = [gradients(reduce_sum(y * y), x) for y in ys]
    found = Session(graph).run([*ys, *slopes], {x: value})

    def theirs(x, method, size):
        jaxs = {"bilinear": "linear", "bicubic": "cubic"}.get(method, method)
        return jax.image.resize(x, (2, *size, 3), jaxs, antialias=antialias)

    @jax.jit
    def by_jax(x):
        pairs = [jax.vjp(partial(theirs, method=method, size=size), x) for method, size in rows]
        return [y for y, _ in pairs] + [pull(2 * y)[0] for y, pull in pairs]

    for (method, size), got, wanted in zip([*rows, *rows], found, by_jax(value), strict=True):
        near = dict(rtol=1e-4, atol=1e-5, err_msg=f"{method} to {size}")
        assert_near(got, wanted, **near)


def test_resize_of_other_ranks_and_dtypes() -> None:
    value = np.arange(12, dtype=np.uint8).reshape(1, 12, 1)
    with Graph() as graph:
        x = placeholder(value.shape, "uint8")
        ys = [
            nn.resize(x, 4, "nearest"),
            nn.resize(x, np.int64(4)),
            nn.resize(x, 12, "nearest", name="y"),
        ]
    assert [y.dtype.name for y in ys] == ["uint8", "float32", "uint8"] and ys[2].name == "y:0"
    found = Session(graph).run(ys, {x: value})
    np.testing.assert_array_equal(found[0][0, :, 0], [1, 4, 7, 10])
    assert_near(
        found[1], jax.image.resize(value.astype(np.float32), (1, 4, 1), "linear"), rtol=1e-5
    )


def test_global_pools() -> None:
    value = np.random.default_rng(0).standard_normal((2, 5, 6, 3)).astype(np.float32)
    with Graph() as graph:
        x = placeholder(("n", "h", "w", 3))
        pooled = [nn.global_avg_pool(x), nn.global_max_pool(x)]
    mean, largest = Session(graph).run(pooled, {x: value})
    assert_near(mean, value.mean((1, 2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(largest, value.max((1, 2)))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.space_to_depth(x, 3), ShapeError, "the size 4 does not divide by block=3"),
        (lambda x: nn.space_to_depth(x[0, 0], 2), ShapeError, "with spatial axes"),
        (lambda x: nn.depth_to_space(x, 2), ShapeError, "3 channels of x do not form blocks of 2"),
        (lambda x: nn.resize(x, (2,)), AttributeValueError, "a positive int or 2 of them"),
        (lambda x: nn.resize(x, 2, "cubic"), AttributeValueError, "(?s)'cubic'.*bicubic"),
        (
            lambda x: nn.resize(placeholder((1, "h", 4, 3)), 2),
            ShapeError,
            "spatial axes of known sizes",
        ),
    ],
)
def test_errors(call, error, match: str) -> None:
    with Graph():
        x = placeholder((2, 4, 4, 3))
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_images.py:" in str(info.value)


def crops(x, boxes, size):
    with Graph() as graph:
        feeds = [placeholder(a.shape, a.dtype) for a in (x, boxes)]
        y = nn.crop_and_resize(*feeds, np.zeros(len(boxes), np.int32), size)
        fetches = [y, gradients(reduce_sum(y * y), feeds[0])]
    found = Session(graph).run(fetches, dict(zip(feeds, (x, boxes), strict=True)))
    return [np.asarray(value) for value in found]


@pytest.mark.slow
@pytest.mark.parametrize("box", [(0, 0, 1, 1), (1, 0, 0, 1), (0.1, 0.3, 1, 1), (0.7, 1, 1, 0)])
def test_boxes_that_end_at_the_edge_lose_nothing_to_rounding(box) -> None:
    for size in (7, 11, 14, 29):
        x = np.ones((1, 8, 8, 1), np.float32)
        assert_near(crops(x, np.array([box], np.float32), size)[0], 1, rtol=1e-5)


def test_boxes_that_are_nowhere_give_no_gradient() -> None:
    x = np.ones((1, 3, 3, 1), np.float32)
    boxes = np.array([[np.nan] * 4, [0, 0, np.inf, 1], [0, 0, 1, 1]], np.float32)
    y, dx = crops(x, boxes, 2)
    assert (y[2] == 1).all() and (y[0] == 0).all()
    assert np.isfinite(dx).all()
