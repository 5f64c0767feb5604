"""Erosion and dilation with flat kernels compared with SciPy, and coordinates as a list."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

import graphc as gc
from graphc import nn
from tests.near import assert_near


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_flat_kernels(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 255, (6, 7)).astype(dtype)
    flat = np.zeros((3, 3, 1), dtype)
    with gc.Graph() as graph:
        image = gc.placeholder((1, "h", "w", 1), dtype)
        functions = nn.erosion2d, nn.dilation2d
        fetches = [function(image, flat, padding="same") for function in functions]
    found = gc.Session(graph).run(fetches, {image: x[None, ..., None]})
    for got, wanted in zip(found, (ndimage.grey_erosion, ndimage.grey_dilation), strict=True):
        np.testing.assert_array_equal(got[0, ..., 0], wanted(x, (3, 3), mode="nearest"))


def test_coordinates_in_a_list() -> None:
    x = np.arange(12.0).reshape(3, 4)
    with gc.Graph() as graph:
        row = gc.placeholder((2,), "float64")
        y = nn.map_coordinates(x, [row, row + 1])
    found = gc.Session(graph).run(y, {row: np.array([0.0, 1.5])})
    assert_near(found, [1.0, 8.5], rtol=1e-7)
