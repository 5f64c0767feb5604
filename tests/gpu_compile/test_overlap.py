"""What replicas exchange in steps for 8 GPUs: how many bytes, in which dtype, and how much of it
the backward pass hides."""

from __future__ import annotations

import re
from typing import Any

import optax
import pytest

import graphc as gc
from graphc.devices.bucketing import GPU_BUCKET_BYTES
from graphc.runtime.executable import Executable
from graphc.runtime.hlo_cost import timeline
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
    """Bytes that all collectives carry."""
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
    """Their updates are maps of stacks. The sums of biases and the loss stay float32."""

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


def all_reduces(step: Executable) -> list[str]:
    return re.findall(r"(\w+)\[.*= .*all-reduce-start\(", step.hlo()) or re.findall(
        r"all-reduce-start\(", step.hlo()
    )


def test_buckets_are_what_xla_joins() -> None:
    """By default XLA joins up to 30 MiB."""
    feeds = {"x": (8 * 1024, 784), "y": (8 * 1024,)}
    graph, fetches = mlp(layers=8, units=2048)
    counts = {}
    for size in (None, 2**20, GPU_BUCKET_BYTES, 2**30):
        step = step_of(graph, fetches, feeds, "bf16", bucket_bytes=size)
        counts[size] = len(all_reduces(step))
    default = step_of(graph, fetches, feeds, "bf16")
    assert counts[2**30] == 2  # narrow gradients; sums of biases and the loss
    assert counts[2**30] < counts[GPU_BUCKET_BYTES] < counts[2**20] <= counts[None]
    assert len(all_reduces(default)) == counts[GPU_BUCKET_BYTES]


def test_the_backward_pass_hides_the_exchange() -> None:
    """Of 8 layers, all but what is exchanged last."""
    feeds = {"x": (8 * 4096, 784), "y": (8 * 4096,)}
    graph, fetches = mlp(layers=8, units=2048)
    step = step_of(graph, fetches, feeds, "bf16")
    found = timeline(step.hlo_cost(), EIGHT.model)
    assert found.hidden > 0.8
    late = step_of(graph, fetches, feeds, "bf16", bucket_bytes=2**30)
    assert timeline(late.hlo_cost(), EIGHT.model).hidden < found.hidden
