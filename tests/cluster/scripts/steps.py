"""Trains a small network in float64 and prints what the processes see.

steps.py STEPS [shard|parameters|DATAxMODEL]
"""

import hashlib
import json
import sys

import jax
import numpy as np
import optax

import graphc as gc
from tests.cluster.scripts.telling import tell

member = gc.cluster.join()
with gc.Graph(seed=0) as graph:
    x = gc.placeholder((None, 4), "float64", name="x")
    y = gc.placeholder((None,), "float64", name="y")
    hidden = gc.nn.Dense(8, activation=gc.tanh, dtype="float64")(x)
    rows = gc.nn.Dense(1, dtype="float64", name="out")(hidden)[:, 0] - y
    loss = gc.reduce_mean(rows**2)
    train = gc.minimize(loss, optax.adam(1e-2))
strategy: gc.devices.DataParallel | gc.devices.Mesh
if "x" in sys.argv[-1]:
    gc.shard(graph.variable("dense/kernel"), (None, "model"))
    gc.shard(graph.variable("dense/bias"), ("model",))
    gc.shard(graph.variable("out/kernel"), ("model", None))
    sizes = map(int, sys.argv[-1].split("x"))
    axes = dict(zip(["data", "model"], sizes, strict=True))
    strategy = gc.devices.Mesh(axes, devices=jax.devices())
    part, parts = strategy.share()
else:
    strategy = gc.devices.DataParallel(
        jax.devices(),
        shard_optimizer="shard" in sys.argv,
        shard_parameters="parameters" in sys.argv,
    )
    part, parts = member.rank, member.size
session = gc.Session(graph, strategy=strategy)
data = np.random.default_rng(0).normal(size=(16, 4))
share = slice(part * 16 // parts, (part + 1) * 16 // parts)
feeds = {x: data[share], y: data[share].sum(1)}
losses = [float(session.run([loss, train], feeds)[0]) for _ in range(int(sys.argv[1]))]
several = session.run_steps([loss, train], [feeds] * 3, 3)[0]
own = np.asarray(session.run(rows, session.put(feeds)))
values = session.values()
digest = hashlib.sha256(b"".join(values[name].tobytes() for name in sorted(values))).hexdigest()
found = {
    "part": [part, parts],
    "losses": [*losses, *np.asarray(several).tolist()],
    "rows": own.tolist(),
    "sums": {name: float(value.sum()) for name, value in values.items()},
    "kernel": float(np.asarray(session.get("dense/kernel")).sum()),
    "digest": digest,
    "cached": [executable.cached for executable in session.executables],
}
tell(json.dumps(found))
