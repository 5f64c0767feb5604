"""Makes mistakes that need several processes, and prints their errors."""

import jax
import numpy as np

import graphc as gc
from graphc.runtime.core import agreement
from tests.cluster.scripts.telling import tell

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
        tell(f"{name}: {type(error).__name__}: {str(error)!r}")
    else:
        tell(f"{name}: no error")


def run(rows: int = 2, seed: int = 0, more: bool = False, devices=everywhere) -> None:
    graph, x, total = graph_of(seed)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(devices))
    session.run([total, x] if more else total, {x: np.ones((rows, 2))})


def fit(rows: np.ndarray, others: np.ndarray) -> None:
    graph, x, total = graph_of(0)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(everywhere))
    batches, check = (gc.data.from_arrays({"x": each}).shard().batch(2) for each in (rows, others))
    job = gc.train.Job(graph, total, batches, epochs=2)
    gc.train.fit(session, job, validation=gc.train.Validation(check, {"total": total}))


def set_differently() -> None:
    graph, x, total = graph_of(0)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(everywhere))
    session.run(total, {x: np.ones((2, 2))})
    session.set("dense/kernel", np.full((2, 2), float(member.rank)))


def elsewhere() -> None:
    graph, x, total = graph_of(0)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(everywhere))
    session.run(total, {x: np.ones((2, 2))})
    if member.is_chief:
        session.run(total, {x: np.ones((4, 2))})
    else:
        session.set("dense/kernel", np.ones((2, 2)))


def take_turns_differently() -> None:
    """Programs for 2, 4 and 6 rows exist; then the processes run different ones."""
    graph, x, total = graph_of(0)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(everywhere))
    for rows in (2, 4, 6, 2 if member.is_chief else 4):
        session.run(total, {x: np.ones((rows, 2))})


def late() -> None:
    if member.rank == 0:
        agreement.exchanged("sleeps", "here", patience=1.0)


def on_mesh(data=2, model=2, order=(0, 1, 2, 3)) -> None:
    """A feed without rows is whole in every process, even if it is sharded over the devices. Nodes
    that are not fetched do not change this."""
    axes = {"data": data, "model": model}
    mesh = gc.devices.Mesh(axes, devices=[everywhere[i] for i in order])
    with gc.Graph() as graph:
        x = gc.placeholder((None, 2), "float64", name="x")
        k = gc.placeholder((4,), "float64", name="k")
        weighted = gc.reduce_sum(gc.shard(k, ("data",)) * gc.constant([1.0, 2, 3, 4], "float64"))
        total = gc.reduce_sum(x) + weighted
        gc.reduce_sum(gc.shard(x, (None, "model")))
        gc.reduce_sum(gc.shard(x, (("data", "model"),)))
    session = gc.Session(graph, strategy=mesh)
    part, parts = mesh.share()
    feeds = {x: np.arange(8.0).reshape(4, 2)[4 * part // parts :][: 4 // parts], k: np.arange(4.0)}
    step = gc.compile(graph, total, {x: (4, 2), k: (4,)}, strategy=mesh)
    found = [session.run(total, feeds), session.run(total, session.put(feeds))]
    assert all(float(value) == 28 + 20 for value in (*found, step(step.init(), feeds)[0])), found


attempt("shapes", lambda: run(rows=2 + 2 * member.rank))
attempt("fetches", lambda: run(more=member.is_chief))
attempt("seeds", lambda: run(seed=member.rank))
attempt("uneven", lambda: run(rows=3))
attempt("some", lambda: run(devices=everywhere[:3]))
workers = gc.devices.AsyncDataParallel(everywhere)
attempt("mesh", on_mesh)
attempt("interleaved", lambda: on_mesh(4, 1, (0, 2, 1, 3)))
attempt("workers", lambda: gc.Session(graph_of(0)[0], strategy=workers))
attempt("names", lambda: run(devices=[f"/task:{task}/cpu:*" for task in (0, 1)]))
attempt("jit", lambda: gc.jit(abs, strategy=gc.devices.DataParallel(everywhere)))
attempt("set", set_differently)
attempt("turns", take_turns_differently)
attempt("again", lambda: gc.cluster.join({"worker": ["localhost:1"]}, "worker", 0))
attempt("epochs", lambda: fit(np.ones((5, 2)), np.ones((4, 2))))
attempt("validation", lambda: fit(np.ones((4, 2)), np.ones((5, 2))))
attempt("right", run)
attempt("others", elsewhere)
attempt("late", late)
