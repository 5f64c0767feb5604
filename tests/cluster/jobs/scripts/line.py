"""A script for `graphc train`: line.py STEPS."""

import sys

import numpy as np
import optax

import graphc as gc


def build() -> gc.train.Job:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 2), name="x")
        y = gc.nn.Dense(1)(x)
        loss = gc.reduce_mean((y[:, 0] - gc.sum(x, axis=1)) ** 2)
        train = gc.minimize(loss, optax.sgd(0.1))
    batches = [{x: np.ones((4, 2), "float32")}] * 100
    return gc.train.Job(
        graph, train, batches, steps=int(sys.argv[1]), metrics={"loss": loss},
        signatures={"predict": gc.Signature({"x": x}, {"y": y})},
    )  # fmt: skip
