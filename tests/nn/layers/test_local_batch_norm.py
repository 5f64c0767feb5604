"""Batch norm with the statistics of each piece of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import DTypeError, GradientError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.nn.local_norm import LOCAL_BATCH_NORM, local_batch_norm
from tests.near import assert_near

X = np.random.default_rng(0).normal(2.0, 3.0, size=(8, 5, 3))
MAKE = {"momentum": 0.5, "name": "norm", "dtype": "float64"}


def network(local: bool, accumulate: int = 1) -> tuple[gc.Graph, Any, list[Any]]:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 5, 3), "float64", name="x")
        y = gc.nn.BatchNorm(**MAKE, local=local)(x, training=True)
        w = gc.variable(np.cos(np.arange(15.0)).reshape(5, 3), name="w")
        loss = gc.reduce_mean(gc.tanh(y * w))
        train = gc.minimize(loss, optax.sgd(1.0), accumulate=accumulate)
        (slope,) = gc.gradients(loss, [x])
    return graph, x, [train, y, slope]


def run(local: bool, data: Any = X, accumulate: int = 1, **options: Any) -> tuple[list, dict]:
    graph, x, fetches = network(local, accumulate)
    session = gc.Session(graph, **options)
    _, *values = session.run(fetches, {x: data})
    return [np.asarray(v) for v in values], {n: np.asarray(session.get(n)) for n in graph.variables}


def test_on_one_device_it_is_batch_norm() -> None:
    got, want = run(True), run(False)
    for a, b in zip(got[0], want[0], strict=True):
        assert_near(a, b, rtol=1e-9, atol=1e-12)
    for name, value in want[1].items():
        assert_near(got[1][name], value, rtol=1e-9, err_msg=name)


def pieces(rows: list[Any]) -> tuple[Any, dict[str, Any]]:
    """The results of the single pieces: concatenated outputs and averaged statistics."""
    runs = [run(False, piece) for piece in rows]
    return [r[0] for r in runs], {n: np.mean([r[1][n] for r in runs], axis=0) for n in runs[0][1]}


def test_each_device_has_its_own() -> None:
    (y, slope), state = run(True, strategy=gc.devices.DataParallel(2))
    found, averages = pieces([X[:4], X[4:]])
    assert_near(y, np.concatenate([f[0] for f in found]), rtol=1e-9)
    assert_near(slope, np.concatenate([f[1] for f in found]) / 2, rtol=1e-7, atol=1e-12)
    for name, value in averages.items():
        assert_near(state[name], value, rtol=1e-9, err_msg=name)
    assert not np.allclose(y, run(False)[0][0], rtol=1e-3)


@pytest.mark.parametrize("rows", [6, 7])
def test_a_batch_that_does_not_divide(rows: int) -> None:
    """With 6 rows the fourth device is empty and does not count in averages; with 7 it has one."""
    (y, slope), state = run(True, X[:rows], strategy=gc.devices.DataParallel(4))
    parts = [X[i : min(i + 2, rows)] for i in range(0, rows, 2)]
    found, averages = pieces(parts)
    assert_near(y, np.concatenate([f[0] for f in found]), rtol=1e-9)
    slopes = [f[1] * len(part) / rows for f, part in zip(found, parts, strict=True)]
    assert_near(slope, np.concatenate(slopes), rtol=1e-7, atol=1e-12)
    equal = rows == 6  # otherwise parameters follow the larger pieces
    for name in averages if equal else ("norm/mean", "norm/variance"):
        assert_near(state[name], averages[name], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("devices", [1, 2])
def test_so_has_each_micro_batch(devices: int) -> None:
    """A micro-batch consists of adjacent examples of each device's part of the batch."""
    strategy = gc.devices.DataParallel(2) if devices == 2 else None
    (y, _), state = run(True, accumulate=2, strategy=strategy)
    found, averages = pieces(np.split(X, 2 * devices))
    assert_near(y, np.concatenate([f[0] for f in found]), rtol=1e-9)
    for name, value in averages.items():
        assert_near(state[name], value, rtol=1e-9, err_msg=name)


def test_channels_may_be_cut() -> None:
    """Channels share no statistics, so the results equal those of one device."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((8, 4), "float64", name="x", batch_axis=1)
        parameters = [gc.variable(np.arange(1.0, 5.0), name=n) for n in ("scale", "offset")]
        results = local_batch_norm(x, *parameters, 1e-5)
    data = X.reshape(-1)[:32].reshape(8, 4)
    one = gc.Session(graph).run(results, {x: data})
    two = gc.Session(graph, strategy=gc.devices.DataParallel(2)).run(results, {x: data})
    for a, b in zip(one, two, strict=True):
        assert_near(np.asarray(a), np.asarray(b), rtol=1e-12)


def test_errors() -> None:
    with gc.Graph():
        x = gc.placeholder((4, 3), "float32", name="x")
        p = gc.constant(np.ones(3, "f4"))
        with pytest.raises(ShapeError, match="channels of x and scale differ, 3 and 2"):
            local_batch_norm(x, np.ones(2, "f4"), np.ones(2, "f4"), 1e-5)
        with pytest.raises(
            DTypeError, match="scale must be float32, as the other parameters, got float64"
        ):
            local_batch_norm(x, np.ones(3), np.ones(3), 1e-5)
        _, mean, _ = emit(LOCAL_BATCH_NORM, (x, p, p), epsilon=1e-5)
        with pytest.raises(GradientError, match="averages over pieces of the batch"):
            gc.gradients(mean, x)
