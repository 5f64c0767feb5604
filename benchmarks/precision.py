"""Mixed precision and gradient accumulation: accuracy, bytes and memory, with and without."""

from __future__ import annotations

import char_lstm
import digits_cnn
import jax
import numpy as np
import optax

import graphc as gc
from benchmarks.timing import compare

BLOCKS, WIDTH, ROWS, MICRO = 8, 256, 4096, 8


def rows() -> list[tuple[str, str, str]]:
    """Rows (what, measured, target): mixed precision, then accumulation."""
    return [*_accuracy(), *_stacked(), *_accumulated()]


def _options(**given: object) -> gc.CompileOptions:
    return gc.CompileOptions(cache=None, **given)  # type: ignore[arg-type]


def _accuracy() -> list[tuple[str, str, str]]:
    """The accuracy of examples, in float32 and in each precision."""
    jobs = {
        "digits CNN, 400 steps, test accuracy": digits_cnn.build,
        "character LSTM, 150 steps, test bits a character": lambda: char_lstm.build(
            units=48, layers=1, steps=150, lengths=(32, 64)
        ),
    }
    found = []
    for what, build in jobs.items():
        reached = []
        for precision in (None, "bf16", "f16"):
            job = build()
            session = gc.Session(job.graph, options=_options(precision=precision))
            gc.train.fit(session, job, progress=False)
            (value,) = job.evaluate(session).values()
            reached.append(f"{precision or 'float32'} {value:.4f}")
        found.append((what, ", ".join(reached), "the same"))
    return found


def _network(accumulate: int = 1) -> tuple[gc.Graph, gc.Tensor, list[object]]:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, WIDTH), "float32", name="x")
        h = gc.nn.Dense(WIDTH, name="in")(x)
        for i in range(BLOCKS):
            rows = gc.nn.LayerNorm(name=f"norm{i}")(h)
            rows = gc.nn.Dense(4 * WIDTH, activation=gc.nn.gelu, name=f"up{i}")(rows)
            h = h + gc.nn.Dense(WIDTH, name=f"down{i}")(rows)
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(1, name="out")(h)), name="loss")
        train = gc.minimize(loss, optax.sgd(1e-3), name="train", accumulate=accumulate)
    return graph, x, [train, loss]


def _step(accumulate: int = 1, **options: object) -> gc.runtime.Executable:
    graph, x, fetches = _network(accumulate)
    return gc.compile(graph, fetches, {x: (ROWS, WIDTH)}, options=_options(**options))


def _stacked() -> list[tuple[str, str, str]]:
    """The values that the forward loop keeps for the backward loop."""
    plain = _step().memory()["temporaries"]
    narrow = _step(precision="bf16").memory()["temporaries"]
    half = _step(precision="f16").memory()["temporaries"]
    shared, widened = (
        _step(precision="bf16", without_passes=(name,)).memory()["temporaries"] / plain
        for name in ("spread-casts", "cpu-stacked-bits")
    )
    return [
        (
            f"{BLOCKS} blocks of width {WIDTH}, batch {ROWS}, temporary memory in bf16",
            f"{narrow / plain:.2f}x of float32 ({shared:.2f}x without `spread-casts`, "
            f"{widened:.2f}x without `cpu-stacked-bits`); in f16 {half / plain:.2f}x",
            "",
        )
    ]


def _accumulated() -> list[tuple[str, str, str]]:
    """The step on the whole batch, in micro-batches, and hand-written in JAX with `lax.scan`."""
    whole, cut = _step(), _step(MICRO)
    apart = _step(MICRO, without_passes=("stack-carries",))
    data = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype("float32")
    states = {step: step.init() for step in (whole, cut)}

    def run(step: gc.runtime.Executable) -> None:
        fetched, states[step] = step(states[step], {"x": data})
        jax.block_until_ready(fetched)

    timed = compare(lambda: run(cut), lambda: run(whole), calls=1, rounds=5)
    memory = whole.memory()["temporaries"]
    nodes = [len(step.program.nodes) for step in (cut, apart)]
    return [
        (
            f"accumulate={MICRO}, {BLOCKS} blocks, batch {ROWS}: temporary memory",
            f"{cut.memory()['temporaries'] / memory:.2f}x of the whole batch's "
            f"({apart.memory()['temporaries'] / memory:.2f}x without `stack-carries`, and "
            f"{nodes[1]} nodes for {nodes[0]})",
            f"1/{MICRO} of it and the gradients",
        ),
        (f"accumulate={MICRO}: time of a step", f"{timed.ratio:.2f}x of the whole batch's", ""),
    ]
