"""Activations and their gradients compared with `jax.nn`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphc import nn
from graphc.autodiff import gradients
from graphc.build import placeholder
from graphc.errors import ShapeError
from graphc.ir.graph import Graph
from graphc.ops.reductions.reduction import reduce_sum
from graphc.runtime.session import Session
from tests.near import assert_near

CASES = {
    "celu": (lambda x: nn.celu(x, 0.7), lambda x: jax.nn.celu(x, 0.7)),
    "glu": (nn.glu, jax.nn.glu),
    "glu, axis": (lambda x: nn.glu(x, 0), lambda x: jax.nn.glu(x, 0)),
    "hard_sigmoid": (nn.hard_sigmoid, jax.nn.hard_sigmoid),
    "hard_silu": (nn.hard_silu, jax.nn.hard_silu),
    "hard_tanh": (nn.hard_tanh, jax.nn.hard_tanh),
    "log_sigmoid": (nn.log_sigmoid, jax.nn.log_sigmoid),
    "mish": (nn.mish, jax.nn.mish),
    "prelu": (lambda x: nn.prelu(x, 0.3), lambda x: jax.nn.leaky_relu(x, 0.3)),
    "selu": (nn.selu, jax.nn.selu),
    "softsign": (nn.softsign, jax.nn.soft_sign),
    "squareplus": (lambda x: nn.squareplus(x, 2.0), lambda x: jax.nn.squareplus(x, 2.0)),
    "swish": (nn.swish, jax.nn.swish),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_values_and_gradients(dtype: str) -> None:
    """One program computes all of them."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-5, 5, (6, 6))
    if dtype == "float32":
        x[4:] = [-90, -40, -7, 7, 40, 90]
    x = jnp.asarray(x, dtype)
    with Graph() as graph:
        t = placeholder(x.shape, dtype)
        ys = [ours(t) for ours, _ in CASES.values()]
        assert all(y.dtype == t.dtype for y in ys)
        slopes = [gradients(reduce_sum(y), t) for y in ys]
    found = Session(graph).run([*ys, *slopes], {t: x})
    near = 1e-5 if dtype == "float32" else 3e-2
    for i, (name, (_, theirs)) in enumerate(CASES.items()):
        wanted, pull = jax.vjp(theirs, x.astype("float32"))
        for got, expected in ((found[i], wanted), (found[len(ys) + i], *pull(wanted * 0 + 1))):
            got = np.asarray(got, "float32")
            assert_near(got, expected, rtol=near, atol=near, each=True, err_msg=name)


def test_prelu_learns_its_slopes() -> None:
    with Graph() as graph:
        x, alpha = placeholder((2, 3)), placeholder((3,))
        slope = gradients(reduce_sum(nn.prelu(x, alpha)), alpha)
    value = np.array([[-1, 2, -3], [4, -5, -6]], np.float32)
    found = Session(graph).run(slope, {x: value})
    np.testing.assert_array_equal(found, [-1, -5, -9])


def test_glu_needs_halves() -> None:
    with Graph(), pytest.raises(ShapeError, match="glu: the size 3 is odd and cannot be halved"):
        nn.glu(placeholder((2, 3)))
