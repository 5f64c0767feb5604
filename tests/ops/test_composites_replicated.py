"""Composite functions of a batch give the same on two devices as on one, also with named sizes."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.devices.strategy import DataParallel
from graphc.runtime.session import Session
from tests.near import assert_near

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 5)).astype(np.float32)
IDS = RNG.integers(0, 4, 8).astype(np.int32)
FEW = np.array([0, 2, 2], np.int32)

CALLS = {
    "median": lambda x, i: gc.median(x, 0),
    "quantile": lambda x, i: gc.quantile(x, 0.3),
    "std": lambda x, i: gc.std(x, 0, ddof=1),
    "nanmean": lambda x, i: gc.nanmean(gc.where(x > 1, np.nan, x), 0),
    "count_nonzero": lambda x, i: gc.count_nonzero(x > 0),
    "average": lambda x, i: gc.average(x, 0, gc.exp(x[:, 0])),
    "cov": lambda x, i: gc.cov(x, rowvar=False),
    "histogram": lambda x, i: gc.histogram(x, 4)[0],
    "bincount": lambda x, i: gc.bincount(i, 4),
    "digitize": lambda x, i: gc.digitize(x, [-1.0, 0.0, 1.0]),
    "isin": lambda x, i: gc.isin(i, [1, 3]),
    "unique": lambda x, i: gc.unique(i, 4, -1, return_inverse=True)[1],
    "nonzero": lambda x, i: gc.nonzero(i > 1, 8, -1)[0],
    "extract": lambda x, i: gc.extract(i > 1, x, 8),
    "segment_sum": lambda x, i: gc.segment_sum(x, i, 4),
    "segment_max": lambda x, i: gc.segment_max(x, i, 4),
    "segment_mean": lambda x, i: gc.segment_mean(x, i, 4),
    "roll": lambda x, i: gc.roll(x, 3, 0),
    "diff": lambda x, i: gc.diff(x, axis=0),
    "pairs": lambda x, i: x[gc.arange(x.shape[0]), i],
    "columns": lambda x, i: gc.expand_dims(x, 2)[:, FEW, 0],
    "of each row": lambda x, i: gc.gather_nd(x, gc.expand_dims(i, 1), 1),
    "set rows": lambda x, i: x.at[i].set(0),
    "set columns": lambda x, i: x.at[:, FEW].set(x[:, 1:4]),
    "add a window": lambda x, i: x.at[1:-1, 2:].add(1),
    "mul in pairs": lambda x, i: x.at[gc.arange(x.shape[0]), i].mul(2),
    "mask": lambda x, i: x.at[i > 1].max(0),
    "tril": lambda x, i: gc.tril(gc.matmul(x, gc.transpose(x))),
    "trapezoid": lambda x, i: gc.trapezoid(x, axis=0),
    "logsumexp": lambda x, i: gc.logaddexp(x, gc.mean(x, 0)),
}


@pytest.mark.parametrize("batch", [8, "batch"])
def test_two_devices_as_one(batch) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((batch, 5), "float32", name="x", batch_axis=0)
        i = gc.placeholder((batch,), "int32", name="i", batch_axis=0)
        fetches = [call(x, i) for call in CALLS.values()]
    feeds = {x: X, i: IDS}
    alone = Session(graph).run(fetches, feeds)
    together = Session(graph, strategy=DataParallel(2)).run(fetches, feeds)
    for name, a, b in zip(CALLS, alone, together, strict=True):
        assert_near(b, a, rtol=1e-5, atol=1e-6, err_msg=name)
