"""Makes mistakes that only several processes can make, and prints the errors."""

import jax
import numpy as np

import graphc as gc
from graphc.runtime.core import agreement

member = gc.cluster.join()
everywhere = jax.devices()


def graph_of(seed: int) -> tuple[gc.Graph, gc.Tensor, gc.Tensor]:
    with gc.Graph(seed=seed) as graph:
        x = gc.placeholder((None, 2), name="x")
        return graph, x, gc.reduce_sum(gc.nn.Dense(2)(x))


def attempt(name, function) -> None:
    try:
        function()
    except gc.errors.GraphcError as error:
        print(f"result {name}: {type(error).__name__}: {str(error)!r}", flush=True)
    else:
        print(f"result {name}: no error", flush=True)


def run(rows: int = 2, seed: int = 0, more: bool = False, devices=everywhere) -> None:
    graph, x, total = graph_of(seed)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(devices))
    session.run([total, x] if more else total, {x: np.ones((rows, 2))})


def set_differently() -> None:
    graph, x, total = graph_of(0)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(everywhere))
    session.run(total, {x: np.ones((2, 2))})
    session.set("dense/kernel", np.full((2, 2), float(member.rank)))


def late() -> None:
    if member.rank == 0:
        agreement.exchanged("late", "here", patience=1.0)


attempt("shapes", lambda: run(rows=2 + 2 * member.rank))
attempt("fetches", lambda: run(more=member.is_chief))
attempt("seeds", lambda: run(seed=member.rank))
attempt("uneven", lambda: run(rows=3))
attempt("some", lambda: run(devices=everywhere[:3]))
attempt(
    "mesh",
    lambda: gc.Session(graph_of(0)[0], strategy=gc.devices.Mesh({"a": 4}, devices=everywhere)),
)
attempt("names", lambda: run(devices=[f"/task:{task}/cpu:*" for task in (0, 1)]))
attempt("late", late)
attempt("jit", lambda: gc.jit(abs, strategy=gc.devices.DataParallel(everywhere)))
attempt("set", set_differently)
attempt("again", lambda: gc.cluster.join({"worker": ["localhost:1"]}, "worker", 0))
attempt("right", run)
