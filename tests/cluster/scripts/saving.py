"""Writes checkpoints with sharded slots, both regularly and at the best validations.

saving.py FOLDER
"""

import sys
import time

import jax
import numpy as np
import optax

import graphc as gc

member = gc.cluster.join()
folder = sys.argv[1]
with gc.Graph(seed=0) as graph:
    x = gc.placeholder((None, 256), name="x")
    loss = gc.reduce_mean(gc.nn.Dense(256)(x) ** 2)
    train = gc.minimize(loss, optax.adam(1e-3))


class Slow(gc.train.Callback):
    """Makes 40 steps take longer than the time between two checkpoints."""

    def on_step(self, run: gc.train.Run) -> None:
        time.sleep(0.02)


rows = {"x": np.ones((4, 256), np.float32)}
check = gc.train.Validation([rows], {"loss": loss}, every_steps=5)
job = gc.train.Job(graph, train, [rows] * 40, steps=40)
strategy = gc.devices.DataParallel(jax.devices(), shard_optimizer=True)
session = gc.Session(graph, strategy=strategy)
best = gc.train.BestCheckpoint(f"{folder}/best")
gc.train.fit(
    session,
    job,
    validation=check,
    callbacks=[best, Slow()],
    checkpoint=folder,
    checkpoint_seconds=0.05 + member.rank,
)
