"""Sums and statistics of 16-bit floats: partial sums must not round or overflow."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.graph import Graph
from tests.ops.table import Row, check

BF16 = ml_dtypes.bfloat16
ONES = np.ones((1, 32, 32, 1), BF16)
MANY = np.ones(1024, BF16)
PLACES = np.zeros(1024, np.int32)
LARGE = np.array([300, -300, 200, np.nan], np.float16)
TALL = np.array([[40000.0, 40000.0, 1.0], [1.0, 2.0, 300.0]], np.float16)
INF = np.array([1.0, np.inf, np.inf, np.inf])
SPREAD = np.array([0.0] * 127 + [1000.0], np.float16)


def test_sums_of_many_ones_are_exact() -> None:
    def of_pool(x):
        (dx,) = gc.gradients(gc.reduce_sum(gc.nn.avg_pool(x, 4, 1) * 256), [x])
        return dx[0, 16, 16, 0]

    def of_take(x):
        return gc.gradients(gc.reduce_sum(gc.take(x, PLACES)), [x])[0]

    def of_take_along(x):
        return gc.gradients(gc.reduce_sum(gc.take_along_axis(x, PLACES, 0)), [x])[0]

    rows = [
        Row("avg_pool", lambda x: gc.nn.avg_pool(x, 32), lambda x: np.ones((1, 1, 1, 1)), [ONES]),
        Row("avg_pool's gradient", of_pool, lambda x: 256.0, [ONES]),
        Row("segment_sum", lambda x: gc.segment_sum(x, PLACES, 1), lambda x: [1024.0], [MANY]),
        Row("segment_mean", lambda x: gc.segment_mean(x, PLACES, 1), lambda x: [1.0], [MANY]),
        Row("bincount", lambda x: gc.bincount(PLACES, 1, x), lambda x: [1024.0], [MANY]),
        Row("take's gradient", of_take, lambda x: [1024.0], [MANY[:1]]),
        Row("along's gradient", of_take_along, lambda x: [1024.0, 0.0], [MANY[:2]]),
        Row("cumsum", lambda x: gc.cumsum(x)[-1], lambda x: 1024.0, [MANY]),
        Row(
            "scatter_nd",
            lambda x: gc.scatter_nd(np.zeros(1, BF16), PLACES[:, None], x, op="add"),
            lambda x: [1024.0],
            [MANY],
        ),
    ]
    check([row._replace(oracle=lambda x, o=row.oracle: np.asarray(o(x))) for row in rows])


def test_no_overflow_on_the_way() -> None:
    rows = [
        Row("std", lambda x: gc.std(x), lambda x: np.std(x), [SPREAD], 1e-3),
        Row("var", lambda x: gc.reduce_variance(x), lambda x: np.var(x), [SPREAD], 1e-3),
        Row("norm", lambda x: gc.linalg.norm(x), lambda x: np.linalg.norm(x), [SPREAD], 1e-3),
        Row(
            "norm of order 3",
            lambda x: gc.linalg.norm(x, 3),
            lambda x: np.linalg.norm(x, 3),
            [SPREAD],
            1e-3,
        ),
        Row("nanmean", lambda x: gc.nanmean(x), lambda x: np.nanmean(x), [TALL], 1e-3),
        Row("nanvar", lambda x: gc.nanvar(x), lambda x: np.nanvar(x), [SPREAD], 1e-3),
        Row("nanstd", lambda x: gc.nanstd(x), lambda x: np.nanstd(x), [LARGE], 1e-3),
        Row("cov", lambda x: gc.cov(x), lambda x: np.cov(x), [SPREAD], 1e-3),
        Row(
            "masked_mean",
            lambda x: gc.nn.masked_mean(x, np.ones((2, 3), bool)),
            lambda x: np.mean(x),
            [TALL],
            1e-3,
        ),
        Row(
            "cosine_similarity",
            lambda x, y: gc.nn.cosine_similarity(x, y),
            lambda x, y: (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1)),
            [TALL, TALL[::-1].copy()],
            1e-3,
        ),
        Row(
            "cosine_distance",
            lambda x: gc.nn.cosine_distance(predictions=x, labels=x),
            lambda x: np.zeros(()),
            [SPREAD],
            1e-3,
        ),
    ]
    check(rows)


def test_places_of_quantiles_are_exact() -> None:
    steps = np.arange(1001).astype(BF16)
    half = np.float16
    check(
        [
            Row("median", lambda x: gc.median(x), lambda x: np.median(x), [steps]),
            Row(
                "percentile",
                lambda x: gc.percentile(x, 99),
                lambda x: np.percentile(x, 99),
                [steps],
            ),
            Row(
                "linspace",
                lambda x, y: gc.linspace(x, y, 4097),
                lambda x, y: np.linspace(x, y, 4097).astype(half),
                [half(0), half(1)],
                5e-4,
            ),
        ]
    )


def test_quantiles_between_infinities() -> None:
    check(
        [
            Row("median", lambda x: gc.median(x), lambda x: np.inf, [INF]),
            Row("of -inf", lambda x: gc.median(-x), lambda x: -np.inf, [INF]),
            Row("nanmedian", lambda x: gc.nanmedian(x), lambda x: np.inf, [INF]),
        ]
    )


def test_quantiles_that_are_refused() -> None:
    with Graph():
        for call in (
            lambda: gc.quantile([1.0, 2.0], 1.5),
            lambda: gc.nanquantile([1.0, 2.0], [0.5, -0.1]),
            lambda: gc.percentile([1.0, 2.0], 101),
        ):
            with pytest.raises(AttributeValueError, match="q must be from 0 to"):
                call()
        with pytest.raises(ShapeError, match="there are no elements"):
            gc.median(np.zeros((2, 0), np.float32), axis=1)


def test_linspace_and_geomspace() -> None:
    rows = [
        Row(
            f"int {n}",
            lambda n=n: gc.linspace(-n, n, 2 * n + 1, dtype="int32"),
            lambda n=n: np.arange(-n, n + 1),
            [],
        )
        for n in (3, 49, 1000)
    ]
    rows += [
        Row(
            "floors",
            lambda: gc.linspace(-1, 1, 4, dtype="int32"),
            lambda: np.array([-1, -1, 0, 1]),
            [],
        ),
        Row(
            "negative",
            lambda: gc.geomspace(-1.0, -1000.0, 4),
            lambda: np.geomspace(-1.0, -1000.0, 4),
            [],
            1e-5,
        ),
        Row(
            "complex",
            lambda: gc.geomspace(1j, 1000j, 4),
            lambda: np.geomspace(1j, 1000j, 4),
            [],
            1e-4,
        ),
    ]
    check(rows)


def test_histogram_of_nothing() -> None:
    check(
        [
            Row(
                "empty",
                lambda x: gc.histogram(x, 4),
                lambda x: np.histogram(x, 4),
                [np.zeros(0, np.float32)],
            )
        ]
    )


def test_array_split_at_places() -> None:
    v, m = np.arange(5), np.arange(12).reshape(2, 6)
    check(
        [
            Row(
                "places",
                lambda x: gc.array_split(x, [1, 3]),
                lambda x: np.array_split(x, [1, 3]),
                [v],
            ),
            Row(
                "of an axis",
                lambda x: gc.array_split(x, (2, -1, 9), 1),
                lambda x: np.array_split(x, (2, -1, 9), 1),
                [m],
            ),
        ]
    )


def test_fft_norm_and_axes() -> None:
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    check(
        [
            Row("fft", lambda x: gc.fft.fft(x, norm=None), lambda x: np.fft.fft(x), [x]),
            Row("hfft", lambda x: gc.fft.hfft(x, norm=None), lambda x: np.fft.hfft(x), [x], 1e-5),
        ]
    )
    with Graph(), pytest.raises(AttributeValueError, match="name an axis twice"):
        gc.fft.fftn(x, axes=(1, -1))


def test_trace_of_a_tensor_is_refused() -> None:
    with Graph(), pytest.raises(AttributeValueError, match=r"gc.linalg.trace\(x\)"):
        gc.trace(gc.ones((2, 2)))
