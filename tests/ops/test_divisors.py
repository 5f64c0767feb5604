"""Greatest common divisors of the least and greatest integers."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTREMES = """
import sys
import numpy as np
import graphc as gc
dtype = np.dtype(sys.argv[1])
low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
values = np.array([low, low + 1, high - 1, high, 0, 1, 2, 3, 6], dtype)
a, b = (side.ravel() for side in np.meshgrid(values, values))
with gc.Graph() as graph:
    x, y = gc.placeholder((None,), dtype), gc.placeholder((None,), dtype)
    found = [gc.gcd(x, y), gc.lcm(x, y)]
divisors, multiples = gc.Session(graph).run(found, {x: a, y: b})
assert np.array_equal(divisors, np.gcd(a, b)), (a, b, divisors)
assert np.array_equal(multiples, np.lcm(a, b)), (a, b, multiples)
"""


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64"])
def test_extremes_are_those_of_numpy(dtype: str) -> None:
    """NumPy runs in another process, because JAX's own gcd of two least integers never ends."""
    subprocess.run([sys.executable, "-c", EXTREMES, dtype], check=True, timeout=300)
