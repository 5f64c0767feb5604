"""What replicas exchange in steps for 8 GPUs: bytes, dtypes, and the share that the backward pass
hides."""

from __future__ import annotations

from typing import Any

import optax
import pytest

import graphc as gc
from graphc.devices.bucketing import GPU_BUCKET_BYTES
from graphc.devices.targets import FAST_LOOPS_ON_GPU
from graphc.runtime.hlo.hlo_cost import timeline
from graphc.runtime.step.executable import Executable
from tests.gpu_compile.models import mlp

EIGHT = gc.devices.Machine("h100", 8)


def step_of(
    graph: gc.Graph, fetches: Any, feeds: dict[str, Any], precision: str | None, **options: Any
) -> Executable:
    """A data-parallel step on 8 GPUs."""
    return gc.compile(
        graph,
        fetches,
        feeds,
        machine=EIGHT,
        strategy=gc.devices.DataParallel(8, **options),
        options=gc.CompileOptions(precision=precision, cache=None),
    )


def exchanged(step: Executable) -> int:
    """The bytes of all collectives."""
    return sum(kind.bytes for kind in step.hlo_cost().collectives.values())


def trained(make: Any, tx: Any) -> tuple[gc.Graph, list[Any]]:
    g = gc.Graph(seed=0)
    with g:
        loss = gc.reduce_mean(gc.square(make()))
        return g, [gc.minimize(loss, tx, name="train"), loss]


@pytest.mark.parametrize(
    "tx", [optax.sgd(0.1, momentum=0.9), optax.adam(1e-3)], ids=["sgd", "adam"]
)
@pytest.mark.parametrize(("precision", "width"), [(None, 4), ("bf16", 2)])
def test_gradients_of_repeated_layers_are_exchanged_once(
    tx: optax.GradientTransformation, precision: str | None, width: int
) -> None:
    """The updates are maps of stacks. The sums of biases and the loss stay float32."""

    def make() -> gc.Tensor:
        h = gc.placeholder((None, 256), name="x")
        for i in range(8):
            h = gc.nn.Dense(256, activation=gc.nn.relu, name=f"layer{i}")(h)
        return h

    graph, fetches = trained(make, tx)
    step = step_of(graph, fetches, {"x": (1024, 256)}, precision)
    assert exchanged(step) == 8 * (width * 256 * 256 + 4 * 256) + 4


def test_gradients_of_recurrent_kernels_are_exchanged_as_narrow_as_others() -> None:
    graph, fetches = trained(
        lambda: gc.nn.LSTM(256, name="lstm")(gc.placeholder((None, 16, 128), name="x")),
        optax.adam(1e-3),
    )
    step = step_of(graph, fetches, {"x": (512, 16, 128)}, "bf16")
    assert exchanged(step) == 2 * (128 + 256) * 4 * 256 + 4 * 4 * 256 + 4


def all_reduces(step: Executable) -> int:
    return step.hlo_cost().collectives["all-reduce"].runs


def test_buckets_are_what_xla_joins() -> None:
    """By default XLA joins up to 30 MiB."""
    feeds = {"x": (8 * 1024, 784), "y": (8 * 1024,)}
    graph, fetches = mlp(layers=8, units=1024)
    sizes = (None, 2**20, GPU_BUCKET_BYTES, 2**30)
    counts = [
        all_reduces(step_of(graph, fetches, feeds, "bf16", bucket_bytes=size)) for size in sizes
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 2  # narrow gradients; sums of biases and the loss
    assert counts[-1] < counts[2] < counts[1]
    assert all_reduces(step_of(graph, fetches, feeds, "bf16")) == counts[2]


@pytest.mark.parametrize("layers", [8, 30])  # 8: compiled without a loop
def test_the_backward_pass_hides_the_exchange(layers: int) -> None:
    feeds = {"x": (8 * 8192, 784), "y": (8 * 8192,)}
    graph, fetches = mlp(layers=layers, units=2048)
    step = step_of(graph, fetches, feeds, "bf16")
    found = timeline(step.hlo_cost(), EIGHT.model)
    assert ("while(" in step.hlo()) == (layers > 24)
    if layers <= 24 or FAST_LOOPS_ON_GPU:
        assert found.hidden > 0.85
    else:  # XLA would wait in each iteration: all are exchanged after the loop
        rows = {row.name: row.changed for row in step.pass_report().rows}
        assert rows["exchange-in-loops"] == 0
        assert found.waiting < 1e-3
