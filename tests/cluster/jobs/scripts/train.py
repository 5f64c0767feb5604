"""A job of several processes that writes checkpoints: train.py STEPS PAUSE."""

import hashlib
import os
import sys
import time

import jax
import numpy as np
import optax

import graphc as gc

member = gc.cluster.join()
steps, pause = int(sys.argv[1]), float(sys.argv[2])
with gc.Graph(seed=0) as graph:
    x = gc.placeholder((None, 4), name="x")
    hidden = gc.nn.dropout(gc.nn.Dense(8, activation=gc.tanh)(x), 0.1)
    loss = gc.reduce_mean((gc.nn.Dense(1)(hidden)[:, 0] - gc.sum(x, axis=1)) ** 2)
    train = gc.minimize(loss, optax.adam(1e-2))


class Slowly(gc.train.Callback):
    """Prints each step, and waits."""

    def on_step(self, run: gc.train.Run) -> None:
        print(f"step {run.step}", flush=True)
        time.sleep(pause)


data = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
rows = gc.data.from_arrays({"x": data}).shuffle(seed=0).repeat().shard()
batches = rows.batch(16 // member.size, drop_remainder=True)
job = gc.train.Job(graph, train, batches, steps=steps, metrics={"loss": loss})
session = gc.Session(graph, strategy=gc.devices.DataParallel(jax.devices()))
history = gc.train.fit(
    session,
    job,
    checkpoint=os.environ["GRAPHC_CHECKPOINT_DIR"],
    checkpoint_steps=10,
    callbacks=[gc.train.CsvLogger(f"{os.environ['GRAPHC_LOG_DIR']}/log.csv"), Slowly()],
    progress=False,
)
values = session.values()
digest = hashlib.sha256(b"".join(values[name].tobytes() for name in sorted(values))).hexdigest()
if member.is_chief and history.start + history.steps == steps:
    print(f"\nresult from {history.start} {digest}", flush=True)
