"""Sessions free their compiled programs, and unused arguments do no harm."""

from __future__ import annotations

import gc as garbage
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc


def use(strategy: Any, cache: Any) -> Any:
    """Trains with a feed and a state that passes remove as unused."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None, 3), name="x")
        nothing = gc.placeholder((None,), name="nothing")
        w = gc.variable(np.ones((3, 4), np.float32), name="w")
        v = gc.variable(np.ones(3, np.int32), name="v")
        y = gc.reduce_mean(gc.tanh(x @ w)) + 0 * gc.cast(gc.reduce_sum(nothing) > 0, "float32")
        train = gc.group(gc.minimize(y, optax.adam(0.1)), v.assign(v.read() * 0 + 7))
    options = gc.CompileOptions(cache=cache)
    session = gc.Session(graph, strategy=strategy, options=options)
    fed = {x: np.ones((8, 3), np.float32), nothing: np.ones(8, np.float32)}
    session.run([train, y], fed)
    losses = session.run_steps([train, y], [fed] * 3, 3)[1]
    np.testing.assert_array_equal(session.get("v"), 7)
    return np.asarray(losses)


@pytest.mark.parametrize("replicas", [1, 4])
def test_what_was_compiled_is_freed(replicas: int, tmp_path: Any) -> None:
    """JAX 0.12 never frees a program that was lowered with `keep_unused`. Each program maps memory
    about a dozen times, and Linux allows 65,530 maps per process: then compilation crashes."""
    strategy = gc.devices.DataParallel(replicas) if replicas > 1 else None
    client = jax.devices()[0].client
    alive, losses = [], []
    for cache in (None, None, tmp_path, tmp_path):
        losses.append(use(strategy, cache))
        garbage.collect()
        alive.append(len(client.live_executables()))
    assert alive[1:] == [alive[1]] * 3
    for other in losses[1:]:
        np.testing.assert_array_equal(other, losses[0])
