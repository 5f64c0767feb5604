"""Small models whose steps are profiled: each is a session, its fetches and its feeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optax

import graphc as gc


class Model(NamedTuple):
    graph: gc.Graph
    fetches: list[Any]
    feeds: dict[str, np.ndarray]

    def session(self, devices: int = 1, **options: Any) -> gc.Session:
        strategy = gc.devices.DataParallel(devices) if devices > 1 else None
        return gc.Session(
            self.graph, strategy=strategy, options=gc.CompileOptions(**options) if options else None
        )


def mlp(width: int = 64, batch: int = 32) -> Model:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", width), name="x")
        h = gc.nn.Dense(width, activation=gc.nn.relu, name="hidden")(x)
        y = gc.nn.Dense(width, name="out")(h)
        loss = gc.reduce_mean(gc.square(y - x), name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    return Model(graph, [train, loss], {"x": _normal(batch, width)})


def transformer(width: int = 16, blocks: int = 6, length: int = 8, batch: int = 4) -> Model:
    """A transformer with equal blocks, so that graphc makes a loop of them."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", length, width), name="x")
        h = x
        for i in range(blocks):
            with gc.name_scope(f"block{i}"):
                q = gc.nn.Dense(width, use_bias=False, name="query")(h)
                k = gc.nn.Dense(width, use_bias=False, name="key")(h)
                scores = gc.nn.softmax(gc.einsum("bik,bjk->bij", q, k))
                h = h + gc.nn.Dense(width, name="mixed")(gc.einsum("bij,bjk->bik", scores, h))
                up = gc.nn.Dense(4 * width, activation=gc.nn.gelu, name="up")(h)
                h = h + gc.nn.Dense(width, name="down")(up)
        loss = gc.reduce_mean(gc.square(h), name="loss")
        train = gc.minimize(loss, optax.sgd(1e-3), name="train")
    return Model(graph, [train, loss], {"x": _normal(batch, length, width)})


def convnet(size: int = 8, channels: int = 8, batch: int = 8) -> Model:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", size, size, 3), name="x")
        h = gc.nn.Conv2D(channels, 3, activation=gc.nn.relu, padding="same", name="conv1")(x)
        h = gc.nn.Conv2D(channels, 3, activation=gc.nn.relu, padding="same", name="conv2")(h)
        h = gc.nn.max_pool(h, 2)
        y = gc.nn.Dense(4, name="out")(gc.reshape(h, (h.shape[0], -1)))
        loss = gc.reduce_mean(gc.square(y), name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    return Model(graph, [train, loss], {"x": _normal(batch, size, size, 3)})


SMALL: dict[str, Callable[[], Model]] = {
    "mlp": mlp,
    "transformer": transformer,
    "convnet": convnet,
}
# Large enough that idle time is a small part of the step.
LARGE: dict[str, Callable[[], Model]] = {
    "mlp": lambda: mlp(1024, 512),
    "transformer": lambda: transformer(128, 6, 64, 16),
    "convnet": lambda: convnet(32, 32, 32),
}


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def line_of(text: str, file: Path = Path(__file__)) -> int:
    """The number of the first line in a file (by default this file) that contains a text."""
    lines = enumerate(file.read_text().splitlines(), 1)
    return next(number for number, line in lines if text in line)
