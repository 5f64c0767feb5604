"""Trains with fit, and fails on purpose in the first attempt.

training.py FOLDER [kill|stop|fail|end STEP]
"""

import hashlib
import os
import signal
import sys

import jax
import numpy as np
import optax

import graphc as gc
from tests.cluster.scripts.telling import tell

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "end": signal.SIGTERM}

member = gc.cluster.join()
folder, harm = sys.argv[1], sys.argv[2:]
with gc.Graph(seed=0) as graph:
    x = gc.placeholder((None, 4), "float64", name="x")
    y = gc.placeholder((None,), "float64", name="y")
    hidden = gc.nn.Dense(8, activation=gc.tanh, dtype="float64")(x)
    hidden = gc.nn.dropout(hidden, 0.1)
    loss = gc.reduce_mean((gc.nn.Dense(1, dtype="float64")(hidden)[:, 0] - y) ** 2)
    train = gc.minimize(loss, optax.adam(1e-2))


class Harm(gc.train.Callback):
    """Ends, stops or breaks the last process at a step of the first attempt."""

    def on_step(self, run: gc.train.Run) -> None:
        if not harm or run.step != int(harm[1]) or member.rank != member.size - 1:
            return
        if os.environ["GRAPHC_ATTEMPT"] == "0":
            if harm[0] == "fail":
                raise ArithmeticError("broken on purpose")
            os.kill(os.getpid(), SIGNALS[harm[0]])


data = np.random.default_rng(0).normal(size=(160, 4))
rows = gc.data.from_arrays({"x": data, "y": data.sum(1)})
size = 16 // member.size
batches = rows.shuffle(seed=0).shard().batch(size, drop_remainder=True)
validation = gc.train.Validation(rows.shard().batch(size), {"loss": loss}, every_steps=20)
job = gc.train.Job(graph, train, batches, epochs=6, metrics={"loss": loss})
session = gc.Session(graph, strategy=gc.devices.DataParallel(jax.devices()))
gc.train.fit(
    session,
    job,
    validation=validation,
    checkpoint=folder,
    checkpoint_steps=10,
    callbacks=[gc.train.CsvLogger(f"{folder}/log.csv"), Harm()],
)
values = session.values()
digest = hashlib.sha256(b"".join(values[name].tobytes() for name in sorted(values))).hexdigest()
tell(digest)
