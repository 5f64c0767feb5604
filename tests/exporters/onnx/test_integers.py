"""Integers of each width as ONNX: onnxruntime has a kernel for each operator that is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime

import graphc as gc

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x // (y // 2 + 1),
    "remainder": lambda x, y: x % (y // 2 + 1),
    "power": lambda x, y: gc.power(x % 4, y % 3),
    "maximum": gc.maximum,
    "minimum": gc.minimum,
    "clip": lambda x, y: gc.clip(x, 1, 2),
    "negative": lambda x, y: -x,
    "absolute": lambda x, y: abs(x),
    "sign": lambda x, y: gc.sign(x),
    "relu": lambda x, y: gc.nn.relu(x),
    "less": lambda x, y: x < y,
    "equal": gc.equal,
    "where": lambda x, y: gc.where(x < y, x, y),
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "invert": lambda x, y: ~x,
    "shift": lambda x, y: x << y % 5,
    "matmul": lambda x, y: gc.matmul(x, gc.transpose(y)),
    "einsum": lambda x, y: gc.einsum("ij,kj->ikj", x, y),
    # Where they exceed the dtype, onnxruntime does not wrap around.
    "sum": lambda x, y: gc.sum(x % 4, axis=1),
    "prod": lambda x, y: gc.prod(x % 4, axis=1),
    "max": lambda x, y: gc.max(x, axis=1),
    "min": lambda x, y: gc.min(x, axis=1),
    "any": lambda x, y: gc.any(x > 1, axis=1),
    "argmax": lambda x, y: gc.argmax(x, axis=1),
    "argmin": lambda x, y: gc.argmin(x, axis=1),
    "cumsum": lambda x, y: gc.cumsum(x, axis=1),
    "cumprod": lambda x, y: gc.cumprod(x, axis=1),
    "cummax": lambda x, y: gc.cummax(x, axis=1),
    "sort": lambda x, y: gc.sort(x, axis=1),
    "top_k": lambda x, y: gc.top_k(x, 2)[0],
    "pad": lambda x, y: gc.pad(x, [(1, 1), (0, 2)]),
    "reflect": lambda x, y: gc.pad(x, [(1, 1), (0, 2)], mode="reflect"),
    "concatenate": lambda x, y: gc.concatenate([x, y], axis=1),
    "take": lambda x, y: gc.take(x, [2, 0], axis=1),
    "take_along": lambda x, y: gc.take_along_axis(x, gc.cast(y, "int32") % 3, axis=1),
    "one_hot": lambda x, y: gc.one_hot(gc.cast(x, "int32"), 4, dtype=x.dtype),
    "scatter": lambda x, y: x.at[0].set(y[1]),
    "scatter_add": lambda x, y: x.at[gc.constant([0, 0])].add(y),
    "tile": lambda x, y: gc.tile(x, (2, 1)),
    "flip": lambda x, y: gc.flip(x, axis=1),
    "roll": lambda x, y: gc.roll(x, 1, axis=1),
    "tril": lambda x, y: gc.tril(x),
    "trace": lambda x, y: gc.linalg.trace(x),
    "unique": lambda x, y: gc.unique(x, size=4),
    "segment_sum": lambda x, y: gc.segment_sum(x, [0, 1], 3),
    "searchsorted": lambda x, y: gc.searchsorted(gc.sort(x[0]), y[0]),
}
# An order of uint64, which nothing wider holds, and what ONNX allows for no unsigned dtype.
NOT_UINT64 = set(
    [
        "power",
        "max",
        "min",
        "argmax",
        "argmin",
        "cummax",
        "sort",
        "top_k",
        "unique",
        "searchsorted",
        "negative",
    ]
)
BOOLS = set(
    [
        "maximum",
        "minimum",
        "less",
        "equal",
        "where",
        "and",
        "or",
        "invert",
        "max",
        "min",
        "argmax",
        "argmin",
        "any",
        "sort",
        "pad",
        "concatenate",
        "take",
        "take_along",
        "scatter",
        "tile",
        "flip",
        "roll",
        "tril",
    ]
)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
)
def test_each_operator_has_a_kernel(dtype: str, tmp_path: Path) -> None:
    names = set(FUNCTIONS) - (NOT_UINT64 if dtype == "uint64" else set())
    names &= BOOLS if dtype == "bool" else names
    top = 1 if dtype == "bool" else np.iinfo(dtype).max
    low = 0 if dtype == "bool" else np.iinfo(dtype).min
    feeds = [np.array([[3, top, 2], [low, 2, 3]], dtype), np.array([[1, 2, 2], [top, 0, 1]], dtype)]
    with gc.Graph() as graph:
        x, y = [gc.placeholder((2, 3), dtype, name=name) for name in "xy"]
        results = {name: FUNCTIONS[name](x, y) for name in sorted(names)}
    session = gc.Session(graph)
    gc.to_onnx(session, tmp_path / "m.onnx", gc.Signature({"x": x, "y": y}, results))
    runtime = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    found = runtime.run(list(results), dict(zip("xy", feeds, strict=True)))
    for name, got, want in zip(
        results, found, session.run(list(results.values()), {x: feeds[0], y: feeds[1]}), strict=True
    ):
        assert got.dtype == want.dtype, name
        assert np.array_equal(got, want), name


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint32", "float32"])
def test_divisions_by_zero_and_of_the_smallest_integer(dtype: str, tmp_path: Path) -> None:
    low = -np.inf if dtype == "float32" else np.iinfo(dtype).min
    top = -1 if low else 1
    feeds = [np.array([7, 0, low, 5, low], dtype), np.array([0, 0, top, top, 2], dtype)]
    with gc.Graph() as graph:
        x, y = [gc.placeholder((5,), dtype, name=name) for name in "xy"]
        z = {"down": x // y, "rest": x % y, "fmod": gc.fmod(x, y), "by_0": x // gc.zeros_like(x)}
    session = gc.Session(graph)
    gc.to_onnx(session, tmp_path / "m.onnx", gc.Signature({"x": x, "y": y}, z))
    runtime = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    found = runtime.run(list(z), dict(zip("xy", feeds, strict=True)))
    wanted = session.run(list(z.values()), dict(zip((x, y), feeds, strict=True)))
    for name, got, want in zip(z, found, wanted, strict=True):
        assert np.array_equal(got, want, equal_nan=dtype == "float32"), name
