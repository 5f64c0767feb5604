"""The benchmark of updates in loops, with small layers."""

from __future__ import annotations

import numpy as np
import optax
import pytest

from benchmarks import updates
from tests.near import assert_near

SIZE = updates.Size(12, 512, 8)


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "ROUNDS", 1)
    found = list(updates.on_cpu(SIZE, "relu"))
    assert [row[1].endswith("x") for row in found] == [True] * 3
    assert float(found[1][1][:-1]) < 0.5  # the gradients of all layers are most of the rest


def test_both_compute_the_same() -> None:
    step = updates.graphc_step(SIZE, "tanh")
    ours = updates.running(step, SIZE)
    function, types = updates.jax_parts(SIZE, "tanh")
    values = step.init()
    names = [name for name in values if name.startswith("dense") and "train" not in name]
    kernels = sorted(n for n in names if n.endswith("kernel"))
    params = [
        (np.asarray(values[n]), np.zeros(SIZE.width, np.float32))
        for n in sorted(kernels, key=_number)
    ]
    assert [p[0].shape for p in params] == [t[0].shape for t in types[0]]
    slots = optax.adam(1e-3).init(params)
    x, y = np.random.default_rng(0).standard_normal((2, SIZE.batch, SIZE.width)).astype(np.float32)
    for _ in range(3):
        params, slots, loss = function(params, slots, x, y)
        assert_near(ours(), float(loss), rtol=1e-5)


def _number(name: str) -> int:
    """The number of a layer: "dense/kernel" is the first, "dense_1/kernel" the second."""
    digits = "".join(c for c in name.partition("/")[0] if c.isdigit())
    return int(digits or 0)
