"""On one GPU: bf16 training of a transformer and of ResNet-50, and attention over long sequences.

Figures are ratios to hand-written JAX. All forms are timed in turn in one run, and batches are on
the device. Hand-written JAX casts float32 parameters to bf16 where they are used, with norms,
softmax and loss in float32. "flash" is `jax.nn.dot_product_attention` by cuDNN.
`python -m benchmarks.run depth` has the deep model, on a GPU and on CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

import graphc as gc
from benchmarks import attention, networks, transformer
from benchmarks.cpu import by_hand, ratios, repeated
from benchmarks.timing import compare

Row = tuple[str, str, str]
Step = Callable[[], float]  # some training steps; returns the loss of the first step
STEPS, ROUNDS = 5, 9

# The models by the name of their rows. Each is enough work for one GPU.
TRANSFORMERS = {
    "GPT-2 small, 16 x 1024 tokens": transformer.Size(12, 768, 12, 1024, 16),
    "24 blocks of width 1024, 8 x 1024 tokens": transformer.Size(24, 1024, 16, 1024, 8),
}
SEQUENCES = (attention.Size(8192, 1024, 16), attention.Size(32768, 1024, 16))
RESNET_BATCH = 128


def rows() -> Iterator[Row]:
    """Rows: the transformers, ResNet-50, then attention over both lengths."""
    for what, size in TRANSFORMERS.items():
        yield from transformer_rows(what, size)
    yield from resnet_rows(RESNET_BATCH)
    for size in SEQUENCES:
        yield from attention_rows(size)


def forms() -> dict[str, transformer.Attention]:
    """The implementations of attention in hand-written JAX."""
    written = {"written out": transformer.jax_attention}
    flash = {"flash": transformer.jax_flash} if jax.default_backend() == "gpu" else {}
    return written | flash


def transformer_rows(what: str, size: transformer.Size) -> list[Row]:
    """A training step: time and temporaries relative to each form of hand-written JAX."""
    made = {f"JAX, {name}": jax_transformer(size, form) for name, form in forms().items()}
    made |= {
        "graphc": graphc_transformer(size),
        "graphc without fuse-attention": graphc_transformer(size, fuse_attention=False),
    }
    return _compared(f"{what}, training step in bf16", made)


def resnet_rows(batch: int) -> list[Row]:
    """The same for ResNet-50's training step on 224x224 images."""
    network = networks.resnet50()
    x, y = (jnp.asarray(part) for part in networks.data(network, batch))
    made = {"JAX": jax_resnet(network, x, y)}
    for form, pipeline in (("graphc", "O2"), ("graphc, O3", "O3")):
        options = gc.CompileOptions(precision="bf16", pipeline=pipeline, cache=None)
        fetches = [network.train, network.loss]
        feeds = {"x": x.shape, "y": y.shape}
        step = gc.compile(network.graph, fetches, feeds, options=options)
        temporaries = step.memory()["temporaries"]
        made[form] = (repeated(step, x, y, STEPS), temporaries)
    return _compared(f"ResNet-50, batch {batch}, training step in bf16", made)


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
                timed = compare(ours.run, other.run, calls=STEPS, rounds=ROUNDS)
            except jax.errors.JaxRuntimeError as error:
                print(f"{label}: {str(error)[:200]}", file=sys.stderr)
                found.append((label, "JAX does not run", ""))
                continue
            ratio = ours.temporaries / max(other.temporaries, 1)
            found.append(
                (
                    f"{label} ({1e3 * timed.theirs:.2f} ms, {other.temporaries / 1e6:.0f} MB)",
                    f"time {timed.ratio:.2f}x, temporaries {ratio:.3f}x",
                    "",
                )
            )
    return found


def _compared(what: str, made: dict[str, tuple[Step, int]]) -> list[Row]:
    """Ratios of graphc to each other form: time and temporaries."""
    steps = {form: step for form, (step, _) in made.items()}
    losses = {form: step() for form, step in steps.items()}
    for form, loss in losses.items():
        np.testing.assert_allclose(loss, losses["graphc"], rtol=1e-2, err_msg=form)
    found = ratios(steps, ROUNDS, base="graphc")
    milliseconds = 1e3 * found["seconds"] / STEPS
    ours = made["graphc"][1]
    return [
        (
            f"{what} ({milliseconds:.1f} ms, {ours / 1e6:.0f} MB), over {form}",
            f"time {1 / found[form]:.2f}x, temporaries {ours / max(temporaries, 1):.2f}x",
            "at most 1.00x" if form.startswith("JAX") else "",
        )
        for form, (_, temporaries) in made.items()
        if form != "graphc"
    ]


def jax_transformer(size: transformer.Size, form: transformer.Attention) -> tuple[Step, int]:
    """A hand-written, unrolled step, because it is faster than a scan."""
    params = jax.device_put(transformer.nested(transformer.initial(size), size))
    values: list[Any] = [params, transformer.optimizer().init(params)]
    step = transformer.jax_step(size, scan=False, dtype=jnp.bfloat16, attention=form)
    return by_hand(step, values, [jnp.asarray(transformer.batches(size, 1)[0])], STEPS)


def graphc_transformer(size: transformer.Size, **options: Any) -> tuple[Step, int]:
    """The model layer by layer, written in float32 and compiled for bf16."""
    model = transformer.graphc_model(size)
    tokens = jnp.asarray(transformer.batches(size, 1)[0])
    options = gc.CompileOptions(precision="bf16", cache=None, **options)
    session, fetches = gc.Session(model.graph, options=options), [model.train, model.loss]
    for name, value in transformer.initial(size).items():
        session.set(name, value)

    def run() -> float:
        made = [session.run(fetches, {"text": tokens}) for _ in range(STEPS)]
        jax.block_until_ready(made)
        return float(made[0][1])

    step = session.compile(fetches, {"text": tokens.shape})
    return run, step.memory()["temporaries"]


def jax_resnet(network: networks.Network, x: Any, y: Any) -> tuple[Step, int]:
    params, averages = networks.start(network)
    values = [params, averages, network.optimizer.init(params)]
    return by_hand(networks.jax_step(network, jnp.bfloat16), values, [x, y], STEPS)
