"""Pipelines of four stages: memory and waiting of GPipe and 1F1B compared with theory.

    python -m benchmarks.run pipeline

Each stage is three tanh layers of 256 in float32; the batch has 2,048 rows. The bytes are those
that the first device keeps between its executables (`gc.devices.kept_bytes`), without values that
do not depend on the schedule: sums of gradients, and the batch. In theory, the device keeps the
results of its layers for each micro-batch that it holds; with recomputation, none. GPipe holds all
micro-batches, 1F1B as many as there are stages. The waiting time is measured by running each
executable alone (`Executable.timeline`), so it includes differences between stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import optax

import graphc as gc

Row = tuple[str, str, str]
STAGES, LAYERS, WIDTH, ROWS = 4, 3, 256, 2048
WAYS = [
    gc.devices.PipelineParallel("gpipe"),
    gc.devices.PipelineParallel("1f1b"),
    gc.devices.PipelineParallel("1f1b", recompute=True),
]


def rows() -> Iterator[Row]:
    """Rows of each schedule with 4, 8 and 16 micro-batches."""
    for micro_batches in (4, 8, 16):
        base = None
        for way in WAYS:
            name = f"{way.schedule}{', recomputing' * way.recompute}, {micro_batches} micro-batches"
            kept, waiting = measured(way, micro_batches)
            held = micro_batches if way.schedule == "gpipe" else min(STAGES, micro_batches)
            each = ROWS // micro_batches * WIDTH * 4
            theory = 0 if way.recompute else held * LAYERS * each
            base = kept if base is None else base
            what = f"{name}: activations that the first stage keeps, over GPipe"
            yield what, f"{kept / 1e6:.1f} MB, {kept / base:.2f}x", f"{theory / 1e6:.1f} MB"
            bubble = gc.devices.bubble(STAGES, micro_batches)
            yield f"{name}: waiting", f"{waiting:.1%}", f"{bubble:.1%}"


def measured(way: gc.devices.PipelineParallel, micro_batches: int) -> tuple[float, float]:
    """The bytes of activations on the first device, and the share of time that stages wait."""
    step, feeds = built(way, micro_batches, ROWS)
    small, _ = built(way, micro_batches, ROWS // 2)
    first = "/device:CPU:0"
    kept = [gc.devices.kept_bytes(each.partition)[first] for each in (small, step)]
    spans = step.timeline(step.init(), feeds)
    clusters = step.partition.clusters
    inside = [span for span in spans if clusters[span.cluster].micro_batch is not None]
    # What grows with the rows, minus the batch itself, which is sliced on the first device.
    return 2 * (kept[1] - kept[0]) - ROWS * WIDTH * 4, gc.devices.idle_part(inside)


def built(way: gc.devices.PipelineParallel, micro_batches: int, count: int) -> tuple[Any, Any]:
    """The training step for `count` rows, and its feeds."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", WIDTH), name="x")
        h = x
        for stage in range(STAGES):
            with gc.device(f"/cpu:{stage}"):
                for _ in range(LAYERS):
                    h = gc.nn.Dense(WIDTH, activation="tanh")(h)
        with gc.device(f"/cpu:{STAGES - 1}"):
            loss = gc.reduce_mean(gc.square(h))
        train = gc.minimize(loss, optax.sgd(1e-3), accumulate=micro_batches)
    options = gc.CompileOptions(cache=None)
    step = gc.compile(graph, train, {x: (count, WIDTH)}, strategy=way, options=options)
    return step, {x: np.ones((count, WIDTH), np.float32)}
