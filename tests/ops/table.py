"""Compares composite functions with NumPy: a table of rows, and one program for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.build.placeholders import placeholder
from graphc.ir.graph import Graph
from tests.laws.harness import as_list, evaluate, functional, widened
from tests.near import assert_near


class Row(NamedTuple):
    """`build(*tensors)` must equal `oracle(*arrays)`, which computes in float64."""

    name: str
    build: Callable[..., Any]
    oracle: Callable[..., Any]
    arrays: Sequence[Any]
    near: float = 2e-6


def check(rows: Sequence[Row]) -> None:
    """Builds, runs and compares every row."""
    graph = Graph(seed=1)
    feeds, arrays, made = [], [], []
    with graph:
        for i, row in enumerate(rows):
            own = [np.asarray(array) for array in row.arrays]
            tensors = [
                placeholder(a.shape, a.dtype, name=f"x{i}_{j}", batch_axis=None)
                for j, a in enumerate(own)
            ]
            feeds += tensors
            arrays += own
            made.append(as_list(row.build(*tensors)))
    fetches = list(dict.fromkeys(t for outputs in made for t in outputs))
    found = dict(zip(fetches, evaluate(functional(graph, fetches, feeds), arrays), strict=True))
    for row, outputs in zip(rows, made, strict=True):
        wanted = row.oracle(*[widened(np.asarray(a)) for a in row.arrays])
        wanted = wanted if isinstance(wanted, (tuple, list)) else (wanted,)
        assert len(wanted) == len(outputs), row.name
        for tensor, expected in zip(outputs, wanted, strict=True):
            value = found[tensor]
            assert value.dtype == tensor.dtype, row.name
            assert value.shape == np.shape(expected), (row.name, value.shape, np.shape(expected))
            assert_near(widened(value), expected, rtol=row.near, atol=row.near, err_msg=row.name)
