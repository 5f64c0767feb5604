"""Greatest common divisors and remainders of the least and greatest integers, and of 0."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import graphc as gc

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


@pytest.mark.parametrize("pipeline", ["O0", "O2"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "uint16"])
def test_remainders_of_constants_by_zero(dtype: str, pipeline: Any) -> None:
    """XLA's own remainder of two constants would end the process."""
    least = np.iinfo(dtype).min
    x = np.array([7, 0, 5, least, least], dtype)
    y = np.array([0, 0, 3, -1 if least else 1, 0], dtype)
    with gc.Graph() as graph:
        found = [gc.fmod(x, y), gc.fmod(x, np.zeros_like(y)), *gc.from_jax(divided)(x, y)]
    session = gc.Session(graph, options=gc.CompileOptions(pipeline=pipeline))
    rest, by_zero, quotient, rest_of_jax = session.run(found)
    np.testing.assert_array_equal(by_zero, x)
    np.testing.assert_array_equal(rest, [7, 0, 2, 0, least])
    np.testing.assert_array_equal(rest_of_jax, rest)
    want = jax.jit(lax.div)(x, y)  # arguments, which XLA divides on the device
    np.testing.assert_array_equal(quotient, want)


def test_remainders_broadcast() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None, 3), "int32", name="x")
        columns = gc.constant(np.array([[5], [7]], "int32"))
        found = [gc.fmod(columns, np.array([[2, 3]], "int32")), gc.fmod(7, x), gc.fmod(x, x[0])]
    given = np.array([[1, 0, 4], [9, 2, 3]], "int32")
    rows, scalar, own = gc.Session(graph).run(found, {x: given})
    assert rows.tolist() == [[1, 2], [1, 1]]
    assert scalar.tolist() == [[0, 7, 3], [7, 1, 1]]
    assert own.tolist() == [[0, 0, 0], [0, 2, 3]]


def divided(x: Any, y: Any) -> Any:
    return lax.div(x, y), lax.rem(x, y)
