"""Helpers for the tests in this folder."""

import numpy as np

import graphc as gc
from tests import near


def assert_near(got, want):
    """Compares float32 sums of a few dozen terms."""
    near.assert_near(np.asarray(got), np.asarray(want), 1e-5, 1e-6)


def run(make, *arrays, seed=0):
    """The result of `make` for tensors with the values of these arrays."""
    with gc.Graph(seed=seed) as graph:
        result = make(*map(gc.constant, arrays))
    return gc.Session(graph).run(result)
