"""A training step under a memory limit: its memory, and its cost in time.

It is compared with the same step without a limit, and with plain JAX: a scan over the blocks, whose
backward pass keeps all values, and the same scan with `jax.checkpoint`, which keeps the input of
each block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
from jax import numpy as jnp

import graphc as gc
from benchmarks import transformer
from benchmarks.steps import advancing_by_hand, training
from benchmarks.timing import compare
from graphc.errors import ExecutionError

Row = tuple[str, str, str]
ROUNDS, CALLS = 9, 2


def rows() -> Iterator[Row]:
    """All rows: a transformer of 24 blocks, and a long recurrence with shared weights."""
    yield from of_transformer(transformer.Size())
    yield from of_recurrence()


class Step:
    """A step of graphc that runs repeatedly."""

    def __init__(self, model: Any, feeds: list[dict[str, Any]], limit: int | None) -> None:
        options = gc.CompileOptions(cache=None, memory_limit=limit)
        shapes = {name: value.shape for name, value in feeds[0].items()}
        self.executable = gc.compile(
            model.graph, [model.train, model.loss], shapes, options=options
        )
        self.state, self.feeds, self.number = self.executable.init(), feeds, 0
        found = self.executable.memory()
        self.temporaries = found["temporaries"]
        self.around = found["arguments"] + found["outputs"] - found["aliased"]

    def __call__(self) -> float:
        feed = self.feeds[self.number % len(self.feeds)]
        self.number += 1
        (_, loss), self.state = self.executable(self.state, feed)
        return float(loss)


def of_transformer(size: transformer.Size) -> Iterator[Row]:
    """Rows: a limit of half the memory that the step takes without a limit, and the least limit."""
    model = transformer.graphc_model(size)
    feeds = [{"text": tokens} for tokens in transformer.batches(size, 4)]
    free = Step(model, feeds, None)
    half = Step(model, feeds, free.around + free.temporaries // 2)
    least = Step(model, feeds, _least(model, feeds))
    label = f"{size.blocks}-block transformer step"
    yield from _against_free(f"{label}, limit of half the temporaries", half, free, 0.5, 1.35)
    yield from _against_free(f"{label}, the least limit there is", least, free, None, None)
    for keeps, checkpoint in (("all", False), ("each block's input: `jax.checkpoint`", True)):
        theirs, temporaries = _by_hand(size, feeds, checkpoint)
        found = compare(half, theirs, calls=CALLS, rounds=ROUNDS)
        memory = half.temporaries / temporaries
        yield (
            f"{label}, limit of half, to a JAX scan that keeps {keeps} "
            f"({1e3 * found.theirs:.0f} ms, {temporaries / 2**20:.0f} MiB of temporaries)",
            f"time {found.ratio:.2f}x, temporaries {memory:.2f}x",
            "",
        )


def _against_free(
    label: str, tight: Step, free: Step, memory: float | None, time: float | None
) -> Iterator[Row]:
    yield (
        f"{label}: temporaries ({tight.temporaries / 2**20:.1f} MiB), to no limit "
        f"({free.temporaries / 2**20:.1f} MiB)",
        f"{tight.temporaries / free.temporaries:.2f}x",
        f"at most {memory}x" if memory else "",
    )
    found = compare(tight, free, calls=CALLS, rounds=ROUNDS)
    yield (
        f"{label}: time ({1e3 * found.ours:.0f} ms), to no limit ({1e3 * found.theirs:.0f} ms)",
        f"{found.ratio:.2f}x",
        f"at most {time}x" if time else "",
    )


def _least(model: Any, feeds: list[dict[str, Any]]) -> int:
    """The sufficient limit that the error for too low a limit states."""
    try:
        Step(model, feeds, 1)
    except ExecutionError as error:
        words = str(error).partition("memory_limit=")[2].partition("memory_limit=")[2].split()
        return int(words[0])
    raise RuntimeError("a program that takes one byte")


def _by_hand(
    size: transformer.Size, feeds: list[dict[str, Any]], checkpoint: bool
) -> tuple[Callable[[], float], int]:
    """The step as a scan in plain JAX, and the bytes of its temporaries."""
    block = functools.partial(transformer.jax_block, size)
    block = jax.checkpoint(block) if checkpoint else block
    tx = transformer.optimizer()

    def loss_of(params: Any, tokens: Any) -> Any:
        x = params["tokens/table"][tokens[:, :-1]] + params["positions"]
        x, _ = jax.lax.scan(lambda x, p: (block(x, p), None), x, params["blocks"])
        x = transformer.layer_norm(x, params["norm/scale"], params["norm/offset"])
        logits = x @ params["head/kernel"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    params = jax.tree.map(jnp.asarray, transformer.stacked(transformer.initial(size), size))
    arguments = [params, tx.init(params), feeds[0]["text"]]
    step = jax.jit(training(loss_of, tx), donate_argnums=(0, 1))
    compiled = step.lower(*arguments).compile()
    run = advancing_by_hand(compiled, *arguments)
    return lambda: float(run()), int(compiled.memory_analysis().temp_size_in_bytes)


def of_recurrence(turns: int = 1024, batch: int = 32, width: int = 64) -> Iterator[Row]:
    """Rows: a gated recurrence over a long sequence, limited to a tenth of its temporaries."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((turns, batch, width), name="x")
        w = gc.variable(gc.nn.initializers.Normal(0.1), shape=(width, 2 * width), name="w")

        def step(h: Any, row: Any) -> Any:
            gate, new = gc.split(gc.matmul(h, w), 2, axis=-1)
            gate, new = gc.nn.sigmoid(gate + row), gc.tanh(new + row)
            return gate * h + (1 - gate) * new, None

        last, _ = gc.scan(step, gc.zeros_like(x[0]), x)
        loss = gc.reduce_mean(gc.square(last - 1), name="loss")
        train = gc.minimize(loss, optax.sgd(0.1), name="train")
    model = transformer.Model(graph, train, loss)
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.normal(size=(turns, batch, width)).astype(np.float32)}]
    free = Step(model, feeds, None)
    tight = Step(model, feeds, free.around + free.temporaries // 10)
    label = f"recurrence of {turns} turns, limit of a tenth of the temporaries"
    yield from _against_free(label, tight, free, 0.1, None)
