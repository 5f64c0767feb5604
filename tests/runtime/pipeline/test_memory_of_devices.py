"""The memory of GPUs limits the programs compiled for them. Here, CPUs report such a memory."""

from __future__ import annotations

from pathlib import Path

import optax
import pytest

import graphc as gc
from graphc.errors import MemoryLimitError
from graphc.runtime.pipeline import compilation


def compiled(folder: Path, **options: object) -> gc.Executable:
    """Compiles a loop over 24 layers, whose values are kept for the backward pass if they fit."""
    with gc.Graph(seed=0) as g:
        x = gc.placeholder((1024, 64), name="x")
        kernels = gc.variable(gc.nn.initializers.Normal(0.1), shape=(24, 64, 64), name="k")

        def layer(h: gc.Tensor, k: gc.Tensor) -> tuple[gc.Tensor, None]:
            return gc.tanh(gc.matmul(gc.tanh(gc.matmul(h, k)), k)), None

        last, _ = gc.scan(layer, x, kernels)
        train = gc.minimize(gc.reduce_mean(last * last), optax.sgd(0.1), name="train")
    options = gc.CompileOptions(cache=folder, **options)
    return gc.compile(g, train, {x: x.shape}, options=options).wait()


def taken(step: gc.Executable) -> int:
    memory = step.memory()
    return memory["arguments"] + memory["outputs"] - memory["aliased"] + memory["temporaries"]


@pytest.fixture
def memory(monkeypatch):
    def of(size: int | None) -> None:
        monkeypatch.setattr(compilation, "usable_memory", lambda devices: size)

    return of


def test_values_are_recomputed_to_fit_and_kept_where_they_fit(tmp_path, memory) -> None:
    memory(None)
    whole = taken(compiled(tmp_path / "plain"))
    memory(small := int(0.7 * whole))
    step = compiled(tmp_path)
    assert taken(step) <= small and not step.cached
    again = compiled(tmp_path)
    assert again.cached and taken(again) == taken(step)
    memory(int(0.995 * small))  # JAX may round the reported memory
    assert compiled(tmp_path).cached
    memory(2 * whole)
    larger = compiled(tmp_path)
    assert taken(larger) == whole and not larger.cached
    assert compiled(tmp_path).cached
    memory(small)
    smaller = compiled(tmp_path)
    assert taken(smaller) <= small and not smaller.cached


def test_what_never_fits_is_refused(tmp_path, memory) -> None:
    memory(100_000)
    with pytest.raises(MemoryLimitError, match="the 100000 bytes that JAX may use on each cpu"):
        compiled(tmp_path)
    step = compiled(tmp_path, memory_limit=2**30)  # the option takes precedence over the device
    assert taken(step) > 100_000
