"""Checked runs where the limit of an index is a named size: errors show the size that was fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import NumericsError
from tests.near import assert_near

CHECK = gc.CompileOptions(check_numerics=True, cache=None)


def along(x: Any, i: Any) -> Any:
    return gc.take_along_axis(x, gc.reshape(i, (2, 1)), 0)


def pairs(x: Any, i: Any) -> Any:
    return x[gc.arange(2), i]


def gathered(x: Any, i: Any) -> Any:
    return gc.gather_nd(x, gc.reshape(i, (2, 1)))


def looped(x: Any, i: Any) -> Any:
    return gc.scan(lambda c, j: (c + gc.sum(gc.take(x, j)), None), 0.0, i)[0]


def lstm(x: Any, n: Any) -> Any:
    return nn.LSTM(3, name="lstm")(x, lengths=n)


# name -> the builder, the shape of x, the axis of the limit, whether negative indices are allowed
WAYS: dict[str, tuple[Any, tuple[int | None, ...], int, bool]] = {
    "take": (gc.take, (None, 3), 0, True),
    "x[i]": (lambda x, i: x[i], (None, 3), 0, True),
    "x[i, j]": (lambda x, i: x[i, gc.zeros((2,), "int32")], (None, 3), 0, True),
    "x[rows, i]": (pairs, (2, None), 1, True),
    "take_along_axis": (along, (None, 3), 0, True),
    "gather_nd": (gathered, (None, 3), 0, True),
    "a loop": (looped, (None, 3), 0, True),
    "lengths": (lstm, (2, None, 3), 1, False),
}


def graph_of(name: str) -> tuple[gc.Graph, Any, Any, Any]:
    build, shape, _, _ = WAYS[name]
    with gc.Graph(seed=0) as g:
        x = gc.placeholder(shape, name="x", batch_axis=0)
        i = gc.placeholder((2,), "int32", name="i")
        return g, x, i, build(x, i)


def feed_of(name: str, size: int) -> np.ndarray[Any, Any]:
    shape = [size if dim is None else dim for dim in WAYS[name][1]]
    return np.arange(np.prod(shape), dtype="f").reshape(shape) / 10


def text_of(name: str, size: int, value: int) -> str:
    low, high = (-size, size - 1) if WAYS[name][3] else (0, size)
    return f"out of range: {value} is not in {low} to {high}"


@pytest.mark.parametrize("strategy", [None, gc.devices.DataParallel(2)], ids=["one", "replicas"])
@pytest.mark.parametrize("name", WAYS)
def test_the_limit_is_the_size_that_was_fed(name: str, strategy: Any) -> None:
    g, x, i, y = graph_of(name)
    session = gc.Session(g, options=CHECK, strategy=strategy)
    plain = gc.Session(g, options=gc.CompileOptions(cache=None))
    for size in (4, 6):
        value, good = feed_of(name, size), np.array([0, size - 1], np.int32)
        found = session.run(y, {x: value, i: good})
        assert_near(found, plain.run(y, {x: value, i: good}), rtol=1e-6)
        with pytest.raises(NumericsError, match=text_of(name, size, 9)):
            session.run(y, {x: value, i: np.array([0, 9], np.int32)})


@pytest.mark.parametrize("name", ["take", "a loop", "lengths"])
def test_entries_of_the_cache_hold_the_limits_of_their_sizes(name: str, tmp_path: Any) -> None:
    options = gc.CompileOptions(check_numerics=True, cache=str(tmp_path))
    for cached in (False, True):
        g, x, i, y = graph_of(name)
        session = gc.Session(g, options=options)
        for size in (4, 6):
            step = session.compile(y, feeds={x: feed_of(name, size).shape, i: (2,)})
            assert step.cached is cached
            with pytest.raises(NumericsError, match=text_of(name, size, 9)):
                session.run(y, {x: feed_of(name, size), i: np.array([0, 9], np.int32)})
