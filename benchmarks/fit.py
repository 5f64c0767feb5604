"""The overhead of `gc.train.fit` compared with a bare loop of `session.run`, for a short step.

    python benchmarks/fit.py

Both run in turn in one process. Each figure is the median of the rounds. The last lines show
several steps in a call.
"""

import statistics
import time

import numpy as np
import optax

import graphc as gc

STEPS = 5000
ROUNDS = 7


class Quiet(gc.train.Callback):
    """A callback that is called after every step."""

    session_every = None

    def on_step(self, run):
        pass


def made():
    """A session and a job with one metric, for a small network."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 8), name="x")
        t = gc.placeholder((None, 1), name="t")
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(1, name="d")(x) - t))
        train = gc.minimize(loss, optax.sgd(0.01))
    feeds = {"x": np.ones((4, 8), "f4"), "t": np.ones((4, 1), "f4")}
    job = gc.train.Job(graph, train, [feeds] * STEPS, steps=STEPS, metrics={"loss": loss})
    return gc.Session(graph), job, [train, loss]


def bare(session, job, fetches):
    """The loop that a user would write."""
    for feeds in job.batches:
        _, loss = session.run(fetches, feeds)
    loss.block_until_ready()


def fitted(session, job, **options):
    """The same loop with `fit`."""
    gc.train.fit(session, job, progress=False, **options)


def seconds(work):
    """The time of a call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main():
    """Prints the figures."""
    session, job, fetches = made()
    quiet = Quiet()
    loops = {
        "bare loop of run": lambda: bare(session, job, fetches),
        "fit, single steps": lambda: fitted(session, job, steps_per_call=1),
        "fit, a callback": lambda: fitted(session, job, steps_per_call=1, callbacks=[quiet]),
        "fit, 50 steps a call": lambda: fitted(session, job, steps_per_call=50),
        'fit, steps_per_call="auto"': lambda: fitted(session, job),
    }
    times = {name: [] for name in loops}
    for round_ in range(ROUNDS + 1):
        for name, loop in loops.items():
            took = seconds(loop)
            if round_:  # the first round compiles
                times[name].append(1e6 * took / STEPS)
    base = times["bare loop of run"]
    for name, found in times.items():
        over = [a - b for a, b in zip(found, base, strict=True)]
        print(
            f"{name:28}{statistics.median(found):8.2f} us a step "
            f"{statistics.median(over):+8.2f} us, "
            f"ratio {statistics.median(found) / statistics.median(base):.3f}"
        )


if __name__ == "__main__":
    main()
