"""Counts, indices and sets with a given size, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.build.placeholders import placeholder
from graphc.errors import ShapeError
from graphc.ir.graph import Graph
from tests.ops.table import Row, check

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5)).astype(np.float32)
N = RNG.integers(0, 7, (4, 5)).astype(np.int32)
M = RNG.integers(3, 11, 8).astype(np.int32)
EDGES = np.array([-1.0, -0.3, 0.0, 0.9, 2.0], np.float32)
HOLES = np.array([2.0, np.nan, 1.0, np.nan, 2.0, -np.inf], np.float32)


def padded(found, size, fill=0):
    """The values, cut or padded to `size`."""
    found = np.asarray(found)[:size]
    return np.concatenate([found, np.full((size - len(found), *found.shape[1:]), fill)])


def test_searching() -> None:
    check(
        [
            Row("digitize", gc.digitize, np.digitize, (X, EDGES)),
            Row("digitize down", gc.digitize, np.digitize, (X, EDGES[::-1])),
            Row("digitize right", lambda x, e: gc.digitize(x, e, right=True),
                lambda x, e: np.digitize(x, e, right=True), (N, np.array([1, 3, 5]))),
            Row("digitize down right", lambda x, e: gc.digitize(x, e, right=True),
                lambda x, e: np.digitize(x, e, right=True), (N, np.array([5, 3, 1]))),
            Row("bincount", lambda x: gc.bincount(x, 9),
                lambda x: np.bincount(x.ravel(), minlength=9), (N,)),
            Row("bincount, fewer", lambda x: gc.bincount(x - 1, 3),
                lambda x: np.bincount(x.ravel())[1:4], (N,)),
            Row("bincount of weights", lambda x, w: gc.bincount(x, 7, w),
                lambda x, w: np.bincount(x.ravel(), w.ravel(), 7), (N, X)),
            Row("histogram", gc.histogram, np.histogram, (X,)),
            Row("histogram in a range", lambda x: gc.histogram(x, 5, (-1.0, 1.0)),
                lambda x: np.histogram(x, 5, (-1.0, 1.0)), (X,)),
            Row("histogram of edges", lambda x, e: gc.histogram(x, e),
                lambda x, e: np.histogram(x, e), (X, EDGES)),
            Row("histogram of the edges themselves", gc.histogram, np.histogram, (EDGES, EDGES)),
            Row("histogram of weights", lambda x, w: gc.histogram(x, 4, weights=w),
                lambda x, w: np.histogram(x, 4, weights=w), (X, X**2)),
            Row("density", lambda x: gc.histogram(x, 4, density=True),
                lambda x: np.histogram(x, 4, density=True), (X,)),
            Row("histogram of one value", lambda x: gc.histogram(x, 3),
                lambda x: np.histogram(x, 3), (np.float32([2, 2]),)),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("size", [3, 30])
def test_masks(size: int) -> None:
    check(
        [
            Row("flatnonzero", lambda x: gc.flatnonzero(x, size, 99),
                lambda x: padded(np.flatnonzero(x), size, 99), (N,)),
            Row("nonzero", lambda x: gc.nonzero(x > 0, size),
                lambda x: tuple(padded(i, size) for i in np.nonzero(x > 0)), (X,)),
            Row("nonzero filled", lambda x: gc.nonzero(x, size, -1),
                lambda x: tuple(padded(i, size, -1) for i in np.nonzero(x)), (N,)),
            Row("argwhere", lambda x: gc.argwhere(x, size, 7),
                lambda x: padded(np.argwhere(x), size, 7), (N,)),
            Row("extract", lambda m, x: gc.extract(m, x, size, -1),
                lambda m, x: padded(x[m > 0], size, -1), (N, X)),
            Row("extract rows", lambda x: gc.extract(x[:, 0] > 0, x, size),
                lambda x: padded(x[x[:, 0] > 0], size), (X,)),
            Row("nothing", lambda x: gc.extract(x > 99, x, size, 5),
                lambda x: np.full(size, 5.0), (X,)),
        ]
    )  # fmt: skip


def unique(size, fill=None):
    def oracle(x):
        values, index, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True
        )
        least = values[0] if fill is None else fill
        return (
            padded(values, size, least),
            padded(index, size, index[0]),
            inverse.reshape(x.shape),
            padded(counts, size),
        )

    return oracle


@pytest.mark.parametrize("size", [3, 12])
def test_sets(size: int) -> None:
    every = {"return_index": True, "return_inverse": True, "return_counts": True}
    check(
        [
            Row("unique", lambda x: gc.unique(x, size, **every), unique(size), (N,)),
            Row("unique filled", lambda x: gc.unique(x, size, -5, **every), unique(size, -5), (N,)),
            Row("unique alone", lambda x: gc.unique(x, size),
                lambda x: padded(np.unique(x), size, x.min()), (N,)),
            Row("unique with NaN", lambda x: gc.unique(x, size, **every), unique(size), (HOLES,)),
            Row("isin", gc.isin, np.isin, (N, M)),
            Row("isin, not", lambda x, y: gc.isin(x, y, invert=True),
                lambda x, y: np.isin(x, y, invert=True), (N, M)),
            Row("isin with NaN", gc.isin, np.isin, (HOLES, HOLES)),
            Row("isin nothing", gc.isin, np.isin, (N, M[:0])),
            Row("intersect1d", lambda x, y: gc.intersect1d(x, y, size),
                lambda x, y: padded(np.intersect1d(x, y), size), (N, M)),
            Row("setdiff1d", lambda x, y: gc.setdiff1d(x, y, size, -1),
                lambda x, y: padded(np.setdiff1d(x, y), size, -1), (N, M)),
            Row("union1d", lambda x, y: gc.union1d(x, y, size),
                lambda x, y: padded(np.union1d(x, y), size), (N, M)),
            Row("setxor1d", lambda x, y: gc.setxor1d(x, y, size),
                lambda x, y: padded(np.setxor1d(x, y), size), (N, M)),
        ]
    )  # fmt: skip


def test_named_sizes() -> None:
    graph = Graph()
    with graph:
        x = placeholder(("n",), "int32", name="x")
        fetches = [gc.flatnonzero(x, x.shape[0], -1), gc.unique(x, x.shape[0], -1)]
    value = np.array([3, 0, 3, 5], np.int32)
    places, values = gc.Session(graph).run(fetches, {"x": value})
    np.testing.assert_array_equal(places, [0, 2, 3, -1])
    np.testing.assert_array_equal(values, [0, 3, 5, -1])


def test_what_they_refuse() -> None:
    with Graph():
        x = placeholder((4,), "float32", name="x")
        with pytest.raises(ShapeError, match="more axes than x"):
            gc.extract(np.ones((4, 2), bool), x, 3)
        with pytest.raises(ShapeError, match="a scalar has no axes"):
            gc.nonzero(3.0, 3)
        with pytest.raises(ShapeError, match="a number or a vector of edges"):
            gc.histogram(x, np.ones((2, 2), np.float32))
