"""Checked runs in which the limit of an index is a named size: the error shows the fed size."""

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


def cropped(x: Any, i: Any) -> Any:
    return nn.crop_and_resize(x, np.full((2, 4), 0.5, "f"), i, 1)


def distance(x: Any, n: Any) -> Any:
    return nn.edit_distance(gc.cast(x, "int32"), np.array([[1], [2]]), n)


def grouped(x: Any, n: Any) -> Any:
    return gc.ragged_dot(x, np.ones((2, 3, 1), "f"), n)


def unpooled(x: Any, i: Any) -> Any:
    return nn.max_unpool(gc.ones((1, 2, 1)), gc.reshape(i, (1, 2, 1)), x.shape[0]) * gc.sum(x)


def index(size: int) -> tuple[int, int]:
    """Returns the least and the greatest allowed index; negative indices count from the end."""
    return -size, size - 1


def number(size: int) -> tuple[int, int]:
    return 0, size - 1


def length(size: int) -> tuple[int, int]:
    return 0, size


# name, build, the shape of x, the axis that limits the index, the allowed values
WAYS: dict[str, tuple[Any, tuple[int | None, ...], int, Any]] = {
    "take": (gc.take, (None, 3), 0, index),
    "x[i]": (lambda x, i: x[i], (None, 3), 0, index),
    "x[i, j]": (lambda x, i: x[i, gc.zeros((2,), "int32")], (None, 3), 0, index),
    "x[rows, i]": (pairs, (2, None), 1, index),
    "take_along_axis": (along, (None, 3), 0, index),
    "gather_nd": (gathered, (None, 3), 0, index),
    "a loop": (looped, (None, 3), 0, index),
    "lengths": (lstm, (2, None, 3), 1, length),
    "crop_and_resize": (cropped, (None, 2, 2, 1), 0, number),
    "edit_distance": (distance, (2, None), 1, length),
    "ctc_beam_search": (lambda x, n: nn.ctc_beam_search(x, n, 2)[2], (2, None, 3), 1, length),
    "ragged_dot": (grouped, (None, 3), 0, length),
    "max_unpool": (unpooled, (None, 3), 0, number),
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
    low, high = WAYS[name][3](size)
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
