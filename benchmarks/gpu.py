"""On one GPU: bf16 training of the models of `gpu_hlo`, and attention over long sequences.

Figures are ratios to hand-written JAX. All forms are timed in turn in one run, and batches are on
the device. The share of the roofline is the estimate of `hlo_cost` over the measured time.
Hand-written JAX casts float32 parameters to bf16 where they are used, with norms, softmax and loss
in float32. "flash" is `jax.nn.dot_product_attention` by cuDNN.
`python -m benchmarks.run depth` has the deep model, on a GPU and on CPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

import graphc as gc
from benchmarks import attention, gpu_models, networks, transformer
from benchmarks.cpu import by_hand, ratios
from benchmarks.timing import compare
from graphc.devices.attached import attached_machine
from graphc.runtime.hlo.hlo_cost import hlo_cost, roofline_seconds

Row = tuple[str, str, str]
Step = Callable[[], float]  # some training steps; returns the loss of the first step
STEPS, ROUNDS = 5, 9
WRITTEN_OUT = {"fuse_attention": False}

# The models by the name of their rows. Each is enough work for one GPU.
TRANSFORMERS = {
    "GPT-2 small, 16 x 1024 tokens": transformer.Size(12, 768, 12, 1024, 16),
    "24 blocks of width 1024, 8 x 1024 tokens": transformer.Size(24, 1024, 16, 1024, 8),
}
MODELS: dict[str, Callable[[], gpu_models.Model]] = {
    "ViT-B/16, batch 64": lambda: gpu_models.vit(64),
    "DLRM, 8 tables of a million rows, batch 2048": lambda: gpu_models.dlrm(2048),
    "LSTM, 2 x 1024 units, 64 x 128 bytes": lambda: gpu_models.lstm(64),
}
SEQUENCES = (attention.Size(8192, 1024, 16), attention.Size(32768, 1024, 16))
RESNET_BATCH = 128


class Form(NamedTuple):
    """One way to train a model.

    Attributes:
        step: runs `STEPS` steps, and returns the loss of the first.
        temporaries: the bytes of temporaries of a step.
        roofline: the estimate of the shortest time of a step in seconds; 0 where there is none.
    """

    step: Step
    temporaries: int
    seconds: float
    roofline: float = 0.0


def rows() -> Iterator[Row]:
    """Rows: the transformers, ResNet-50, the other models, then attention over both lengths."""
    for what, size in TRANSFORMERS.items():
        yield from transformer_rows(what, size)
    yield from resnet_rows(RESNET_BATCH)
    for what, make in MODELS.items():
        yield from model_rows(what, make())
    for size in SEQUENCES:
        yield from attention_rows(size)


def forms() -> dict[str, transformer.Attention]:
    """The implementations of attention in hand-written JAX."""
    written = {"written out": transformer.jax_attention}
    flash = {"flash": transformer.jax_flash} if jax.default_backend() == "gpu" else {}
    return written | flash


def transformer_rows(what: str, size: transformer.Size) -> list[Row]:
    """A training step, relative to each form of hand-written JAX."""
    values, tokens = transformer.initial(size), jnp.asarray(transformer.batches(size, 1)[0])
    made = {}
    for name, form in forms().items():
        # Unrolled, because it is faster than a scan.
        params = jax.device_put(transformer.nested(values, size))
        step = transformer.jax_step(size, scan=False, dtype=jnp.bfloat16, attention=form)
        state = [params, transformer.optimizer().init(params)]
        made[f"JAX, {name}"] = in_jax(step, state, [tokens])
    # The model is written layer by layer in float32 and compiled for bf16.
    model = transformer.graphc_model(size)
    fetches = [model.train, model.loss]
    for name, options in {"graphc": {}, "graphc without fuse-attention": WRITTEN_OUT}.items():
        made[name] = in_graphc(model.graph, fetches, {"text": tokens}, values, **options)
    return _compared(what, made)


def resnet_rows(batch: int) -> list[Row]:
    """The same for 224x224 images."""
    network = networks.resnet50()
    x, y = (jnp.asarray(part) for part in networks.data(network, batch))
    params, averages = networks.start(network)
    state = [params, averages, network.optimizer.init(params)]
    made = {"JAX": in_jax(networks.jax_step(network, jnp.bfloat16), state, [x, y])}
    fetches, feeds = [network.train, network.loss], {"x": x, "y": y}
    for form, pipeline in (("graphc", "O2"), ("graphc, O3", "O3")):
        made[form] = in_graphc(network.graph, fetches, feeds, {}, pipeline=pipeline)
    return _compared(f"ResNet-50, batch {batch}", made)


def model_rows(what: str, model: gpu_models.Model) -> list[Row]:
    """The same for one of `gpu_models`."""
    values, feeds = gpu_models.initial(model), gpu_models.batch(model)
    params = jax.device_put(gpu_models.nested(model, values))
    state = [params, model.optimizer.init(params)]
    made = {
        "JAX": in_jax(model.step, state, list(feeds.values())),
        "graphc": in_graphc(model.graph, model.fetches, feeds, values),
    }
    return _compared(what, made)


def in_jax(step: Callable[..., Any], state: list[Any], feeds: list[jax.Array]) -> Form:
    """A hand-written step, whose state is donated."""
    start = time.perf_counter()
    run, temporaries = by_hand(step, state, feeds, STEPS)
    return Form(run, temporaries, time.perf_counter() - start)


def in_graphc(
    graph: gc.Graph, fetches: list[Any], feeds: Mapping[str, Any], values: Any, **options: Any
) -> Form:
    """A step of a graph in bf16, from these values of its variables."""
    options = gc.CompileOptions(precision="bf16", cache=None, **options)
    session = gc.Session(graph, options=options)
    for name, value in values.items():
        session.set(name, value)

    def run() -> float:
        made = [session.run(fetches, feeds) for _ in range(STEPS)]
        jax.block_until_ready(made)
        return float(made[0][1])

    start = time.perf_counter()
    step = session.compile(fetches, {name: feed.shape for name, feed in feeds.items()}).wait()
    seconds = time.perf_counter() - start
    on_gpu = jax.default_backend() == "gpu"
    roofline = roofline_seconds(hlo_cost(step.hlo(), 1), attached_machine().model) if on_gpu else 0
    return Form(run, step.memory()["temporaries"], seconds, roofline)


def _compared(what: str, made: dict[str, Form]) -> list[Row]:
    """Ratios of graphc to each other form."""
    losses = {name: form.step() for name, form in made.items()}
    for name, loss in losses.items():
        np.testing.assert_allclose(loss, losses["graphc"], rtol=1e-2, err_msg=name)
    found = ratios({name: form.step for name, form in made.items()}, ROUNDS, base="graphc")
    ours, step = made["graphc"], found["seconds"] / STEPS
    figures = (
        f"{1e3 * step:.2f} ms, {ours.roofline / step:.2f} of the roofline, "
        f"{ours.temporaries / 1e6:.0f} MB, compiled in {ours.seconds:.1f} s"
    )
    return [
        (
            f"{what}, training step in bf16 ({figures}), over {name}",
            f"time {1 / found[name]:.2f}x, temporaries "
            f"{ours.temporaries / max(form.temporaries, 1):.2f}x, "
            f"compile {ours.seconds / form.seconds:.2f}x",
            "at most 1.00x" if name.startswith("JAX") else "",
        )
        for name, form in made.items()
        if name != "graphc"
    ]


def attention_rows(size: attention.Size) -> list[Row]:
    """Forward and a training step. A form that does not fit into device memory has no ratio."""
    found = []
    for train in (False, True):
        what = f"attention over {size.length} tokens, bf16, {'training' if train else 'forward'}"
        ours = attention.in_graphc(size, train, precision="bf16")
        loss = float(ours.run())
        for name, form in forms().items():
            label = f"{what}, to JAX {name}"
            try:
                other = attention.in_jax(size, train, jnp.bfloat16, form)
                np.testing.assert_allclose(float(other.run()), loss, rtol=1e-3, err_msg=label)
                sides = (partial(side.run, STEPS) for side in (ours, other))
                timed = compare(*sides, calls=1, rounds=ROUNDS)
            except jax.errors.JaxRuntimeError as error:
                print(f"{label}: {str(error)[:200]}", file=sys.stderr)
                found.append((label, "JAX does not run", ""))
                continue
            ratio = ours.temporaries / max(other.temporaries, 1)
            milliseconds = 1e3 * timed.theirs / STEPS
            found.append(
                (
                    f"{label} ({milliseconds:.2f} ms, {other.temporaries / 1e6:.0f} MB)",
                    f"time {timed.ratio:.2f}x, temporaries {ratio:.3f}x",
                    "",
                )
            )
    return found
