"""Activations are stacked once: states equal those without the pass, and memory use is lower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from tests.near import assert_near

LAYERS, WIDTH, BATCH = 12, 64, 256
STACK = LAYERS * BATCH * WIDTH * 4
WITHOUT = ("carry-shifted",)


def layers(activation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def net(x: Any) -> Any:
        for _ in range(LAYERS):
            x = gc.nn.Dense(WIDTH, activation=activation)(x)
        return x

    return net


def loop(x: Any) -> Any:
    """The same layers as a loop that the user writes."""
    start = np.random.default_rng(0).standard_normal((LAYERS, WIDTH, WIDTH)) / WIDTH**0.5
    kernels = gc.variable(start.astype(np.float32), name="kernels")

    def layer(h: Any, kernel: Any) -> tuple[Any, Any]:
        return gc.tanh(h @ kernel), ()

    last, _ = gc.scan(layer, x, kernels.read())
    return last


NETS = {"tanh": layers(gc.tanh), "relu": layers(gc.nn.relu), "a loop": loop}


def trained(name: str, strategy: Any = None, **options: Any) -> tuple[dict[str, Any], int]:
    """Returns all variables after some steps, and the bytes of temporaries."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", WIDTH), name="x")
        loss = gc.reduce_mean(gc.square(NETS[name](x) - 0.1))
        train = gc.minimize(loss, optax.sgd(0.1))
    made = gc.CompileOptions(cache=None, **options)
    rng = np.random.default_rng(1)
    with gc.Session(graph, options=made, strategy=strategy) as session:
        for _ in range(3):
            session.run([train], {"x": rng.standard_normal((BATCH, WIDTH)).astype(np.float32)})
        taken = session.executables[-1].memory()["temporaries"]
        return {n: np.asarray(value) for n, value in session.values().items()}, taken


@pytest.mark.parametrize("name", NETS)
def test_one_stack_less(name: str) -> None:
    got, taken = trained(name)
    want, before = trained(name, without_passes=WITHOUT)
    assert before - taken > 0.7 * STACK
    assert got.keys() == want.keys()
    for variable, value in want.items():
        assert_near(got[variable], value, rtol=1e-5, atol=1e-6)


def test_replicas() -> None:
    """The pass saves memory on each replica, which holds its part of the activations."""
    got, taken = trained("tanh", gc.devices.DataParallel(2))
    want, before = trained("tanh", gc.devices.DataParallel(2), without_passes=WITHOUT)
    assert before - taken > 0.7 * STACK / 2
    for variable, value in want.items():
        assert_near(got[variable], value, rtol=1e-5, atol=1e-6)
