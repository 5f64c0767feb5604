"""Group, instance and RMS normalization compared with NumPy; gradients compared with JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphc import nn
from graphc.autodiff import gradients
from graphc.build import placeholder
from graphc.errors import DTypeError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops.core.emit import cast
from graphc.ops.reductions.reduction import reduce_sum
from graphc.runtime.session import Session
from tests.near import assert_near


def normalized(x, axes):
    return (x - x.mean(axes, keepdims=True)) / jnp.sqrt(x.var(axes, keepdims=True) + 1e-3)


def group_norm(x, scale, offset):
    rows = x.reshape(*x.shape[:-1], 3, 2)
    return normalized(rows, (*range(1, x.ndim - 1), -1)).reshape(x.shape) * scale + offset


def instance_norm(x, scale, offset):
    return normalized(x, tuple(range(1, x.ndim - 1))) * scale + offset


def rms_norm(x, scale, offset):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * scale


def local_response_norm(x, scale, offset):
    sums = [(x[..., max(c - 2, 0) : c + 3] ** 2).sum(-1) for c in range(x.shape[-1])]
    return x / (0.5 + 0.3 * jnp.stack(sums, -1)) ** 0.7 * scale + offset


CASES = {
    "local": (
        lambda x, s, o: (
            nn.local_response_norm(x, 2, 0.5, 0.3, 0.7) * cast(s, x.dtype) + cast(o, x.dtype)
        ),
        local_response_norm,
    ),
    "group": (lambda x, s, o: nn.group_norm(x, np.int64(3), s, o, 1e-3), group_norm),
    "instance": (lambda x, s, o: nn.instance_norm(x, s, o, 1e-3), instance_norm),
    "rms": (lambda x, s, o: nn.rms_norm(x, s, 1e-3) + 0 * cast(o, x.dtype), rms_norm),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_values_and_gradients(name: str, dtype: str) -> None:
    ours, theirs = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal((4, 5, 3, 6)) + 2).astype(jnp.dtype(dtype))]
    arrays += [rng.standard_normal(6).astype("float32") for _ in range(2)]
    with Graph() as graph:
        xs = [placeholder(("n", "h", 3, 6), dtype), placeholder((6,)), placeholder((6,))]
        y = ours(*xs)
        assert (y.shape, y.dtype) == (xs[0].shape, xs[0].dtype)
        slopes = gradients(reduce_sum(y * y * y), xs)
    got = Session(graph).run([y, *slopes], dict(zip(xs, arrays, strict=True)))
    wide = [a.astype("float32") for a in arrays]

    @jax.jit
    def by_jax(*wide):
        y, pull = jax.vjp(theirs, *wide)
        return y, *pull(3 * y * y)

    near = 1e-4 if dtype == "float32" else 3e-2
    for a, b in zip(got, map(np.asarray, by_jax(*wide)), strict=True):
        size = np.abs(b).max()
        assert_near(np.asarray(a, "float32"), b, rtol=near, atol=near * size)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.group_norm(x, 4, 1.0, 0.0), ShapeError, "4 groups do not divide 6 channels"),
        (lambda x: nn.group_norm(x[0], 2, 1.0, 0.0), ShapeError, "got 1 axes"),
        (lambda x: nn.instance_norm(x, 1.0, 0.0), ShapeError, "got 2 axes"),
        (lambda x: nn.rms_norm(x, np.ones(5, np.float32)), ShapeError, "6 against 5"),
        (lambda x: nn.rms_norm(x > 0, 1.0), DTypeError, "rms_norm: x must be floating, got bool"),
    ],
)
def test_errors(call, error, match: str) -> None:
    with Graph():
        x = placeholder((2, 6))
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_norms.py:" in str(info.value)
