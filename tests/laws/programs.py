"""The programs of the second-start law: compiled in one process, run in a new one.

Every operator of the catalogue is in one of them: the cases of the other laws in all their
dtypes, their gradients, the rows of `from_jax`, and operators that only the compiler makes
(`devices`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

import graphc as gc
from graphc.autodiff import gradients
from graphc.build import constant
from graphc.ir.dtypes import is_floating
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.jaxpr import from_jax
from graphc.ops.catalogue import CATALOGUE
from tests.jaxpr.functions import Row
from tests.jaxpr.kept_functions import KEPT
from tests.jaxpr.test_functions import ROWS, arguments, drawn, floating, weights
from tests.laws.case import Case
from tests.laws.dtypes import representative
from tests.laws.harness import Array, Built, build_case, families, real_parts

CACHE = ("cache",)


@dataclass(frozen=True)
class Ready:
    """A graph, and how to run it.

    Attributes:
        fetches: tensors and nodes.
        feeds: a value for each placeholder that the fetches need.
        options, strategy: of the session.
        steps: None, or how many steps one call makes.
        aside: whether it runs in a separate thread, which is then the first to use JAX.
        ways: how another process obtains it: from the "cache", and from the forms in a file:
            "native", "stablehlo" and "graph". A file cannot contain callbacks, meshes, placements
            or loops of steps.
    """

    graph: Graph
    fetches: Sequence[Any]
    feeds: dict[Tensor, Array]
    options: dict[str, Any] = field(default_factory=dict)
    strategy: Any = None
    steps: int | None = None
    aside: bool = False
    ways: tuple[str, ...] = ("cache", "native")

    @property
    def operators(self) -> set[str]:
        """The operators of all nodes, also in bodies; `Primitive[name]` for primitives."""
        return set(names_of(self.graph.nodes))


def names_of(nodes: Iterable[Node]) -> Iterator[str]:
    """The operators of nodes and of the bodies in them."""
    for node in nodes:
        yield node.op.name
        if node.op.name == "Primitive":
            yield f"Primitive[{node.attrs['primitive']}]"
        for region in node.regions:
            yield from names_of(region.nodes)


def ready(
    graph: Graph, fetches: Iterable[Tensor], feeds: dict[Tensor, Array], **more: Any
) -> Ready:
    """A `Ready` with each fetch once, and without unnecessary feeds."""
    distinct = list(dict.fromkeys(fetches))
    needed: set[Node] = set()
    rest = [tensor.node for tensor in distinct]
    while rest:
        node = rest.pop()
        if node not in needed:
            needed.add(node)
            rest += [tensor.node for tensor in node.inputs]
    return Ready(graph, distinct, {t: a for t, a in feeds.items() if t.node in needed}, **more)


def programs() -> dict[str, Callable[[], Ready]]:
    """The function that makes each program, by the name of the program."""
    found: dict[str, Callable[[], Ready]] = {}
    for family, cases in families().items():
        found[f"values/{family}"] = partial(values, cases)
        if any(_differentiable(case) for case in cases):
            found[f"gradients/{family}"] = partial(slopes, cases)
    found["imported/rows"] = partial(imported, ROWS)
    found["imported/kept"] = partial(imported, KEPT)
    return found | DEVICES


# -- operators ----------------------------------------------------------------------------------


# One dtype of each class that lowers differently; LAPACK has the last four.
CLASSES = (
    "bool", "int4", "int32", "float8_e4m3fn", "bfloat16",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip


def _dtypes(case: Case) -> list[str]:
    """Every class for the case that accepts most of them; one dtype for other cases."""
    known = representative(case.op)
    if known is None or known[0] is not case:
        return list(case.dtypes[:1])
    accepted = [dtype for dtype, reason in known[1].items() if reason is None]
    return [dtype for dtype in accepted if dtype in CLASSES]


def values(cases: Sequence[Case]) -> Ready:
    """All cases, and each operator with all classes of dtypes."""
    with Graph(seed=1) as graph:
        built = [
            build_case(case, dtype, f"in{i}_{dtype}")
            for i, case in enumerate(cases)
            for dtype in _dtypes(case)
        ]
    return ready(graph, [t for b in built for t in b.outputs], _feeds(built))


def _differentiable(case: Case) -> bool:
    wide = {"float32", "float64"} & set(case.dtypes)
    return case.gradient and CATALOGUE[case.op].differentiable and bool(wide)


def slopes(cases: Sequence[Case]) -> Ready:
    """The gradients of all cases; the first case of each operator in float32 and float64."""
    built, found = [], []
    seen: set[str] = set()
    with Graph(seed=1) as graph:
        for i, case in enumerate(cases):
            if not _differentiable(case):
                continue
            dtypes = sorted({"float32", "float64"} & set(case.dtypes))
            for dtype in dtypes if case.op not in seen else dtypes[-1:]:
                b = build_case(case, dtype, f"in{i}_{dtype}")
                xs = [
                    t
                    for spec, t in zip(case.inputs, b.tensors, strict=True)
                    if spec.grad and is_floating(t.type.dtype)
                ]
                found += gradients(real_parts(b.outputs), xs, unconnected="zero")
                built.append(b)
            seen.add(case.op)
    return ready(graph, found, _feeds(built))


def _feeds(built: Sequence[Built]) -> dict[Tensor, Array]:
    return {t: a for b in built for t, a in zip(b.tensors, b.arrays, strict=True)}


# -- functions of JAX ---------------------------------------------------------------------------


def imported(rows: Sequence[Row]) -> Ready:
    """The imported functions that keep a JAX primitive, with their gradients. Other functions
    become operators, which have cases. Functions with callbacks are never stored."""
    feeds: dict[Tensor, Array] = {}
    fetches: list[Tensor] = []
    with Graph(seed=1) as graph:
        for number, row in enumerate(rows):
            args = arguments(row)
            xs = [
                gc.placeholder(a.shape, a.dtype, name=f"x{number}_{i}") for i, a in enumerate(args)
            ]
            before = len(graph.nodes)
            results = jax.tree.leaves(from_jax(row.fn)(*xs))
            if "Primitive" not in names_of(graph.nodes[before:]):
                continue
            feeds |= zip(xs, args, strict=True)
            fetches += results
            if row.gradient:
                ys = floating(results)
                seeds = [constant(weights(y.shape, i).astype(y.dtype)) for i, y in enumerate(ys)]
                fetches += gradients(ys, [xs[i] for i in drawn(row)], seeds, unconnected="zero")
    return ready(graph, fetches, feeds)


# -- compiler-made operators, and ways to run -----------------------------------------------------

X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
ONE_AT_A_TIME = {"max_in_flight": 1}  # virtual devices share few processors


def _matrices(x: Tensor) -> Tensor:
    """A function of the rows of `x` that calls LAPACK."""
    gram = gc.matmul(X, X, transpose_a=True) + 6.0 * np.eye(6, dtype=np.float32)
    return gc.matmul(x, gc.linalg.inv(gc.linalg.cholesky(gram + gc.reduce_mean(gc.square(x)))))


def training(**more: Any) -> Ready:
    """A step with dropout, calls of LAPACK and an optimizer."""
    with Graph(seed=3) as graph:
        x = gc.placeholder((8, 6), name="x", batch_axis=0)
        h = gc.nn.Dense(6, activation=gc.nn.relu, name="hidden")(_matrices(x))
        h = gc.nn.dropout(h, 0.25)
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(2, name="out")(h)), name="loss")
        train = gc.minimize(loss, optax.adam(1e-2))
        count = gc.variable(np.zeros(6, np.float32), name="count", trainable=False)
        both = gc.group(train, count.assign_add(np.ones(6, np.float32)))
    return Ready(graph, [both, loss], {x: X}, **more)


def in_a_loop() -> Ready:
    """Several steps of a program whose first call in the process is `run_steps`."""
    step = training(steps=3)
    feeds = {x: np.stack([a, a[::-1], -a]) for x, a in step.feeds.items()}
    return replace(step, feeds=feeds, ways=CACHE)


def local_norm() -> Ready:
    """Batch norm with the statistics of each device, and its gradient."""
    with Graph(seed=0) as graph:
        x = gc.placeholder((8, 6), name="x", batch_axis=0)
        y = gc.nn.BatchNorm(local=True)(x, training=True)
        loss = gc.reduce_mean(gc.tanh(y))
        train = gc.minimize(loss, optax.sgd(0.1))
    strategy = gc.devices.DataParallel(4)
    return Ready(graph, [train, loss], {x: X}, ONE_AT_A_TIME, strategy)


def looping(**more: Any) -> Ready:
    """A loop, a penalty and rows of a table, for a batch that four devices cannot divide evenly."""
    with Graph(seed=0) as graph:
        x = gc.placeholder((7, 6), name="x", batch_axis=0)
        w = gc.variable(np.ones((6, 6), np.float32), name="w")
        h, _ = gc.scan(lambda h, i: (gc.tanh(h @ w), i), x, np.arange(3))
        penalty = gc.reduce_sum(gc.square(w)) + gc.reduce_sum(gc.take(w, gc.argmax(x, axis=1)))
        loss = gc.reduce_mean(gc.exp(h)) + 0.01 * penalty + gc.reduce_mean(gc.square(x))
        train = gc.minimize(loss, optax.sgd(0.1))
    return Ready(graph, [train, loss, h], {x: X[:7]}, **more)


def deep() -> Ready:
    """Equal blocks, which are rolled into loops, and whose updates are rolled into one."""
    with Graph(seed=0) as graph:
        h = x = gc.placeholder((8, 6), name="x")
        for i in range(64):
            h = h + gc.nn.Dense(6, activation=gc.tanh, name=f"block{i}")(h)
        loss = gc.reduce_mean(gc.square(h))
        train = gc.minimize(loss, optax.adam(1e-2))
    return Ready(graph, [train, loss], {x: X})


def wide() -> Ready:
    """A matrix that is large enough to be updated by blocks of rows."""
    with Graph(seed=0) as graph:
        x = gc.placeholder((4, 2048), name="x")
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(4096, name="wide")(x) - 1))
        train = gc.minimize(loss, optax.sgd(0.1))
    feeds = {x: np.cos(np.arange(4 * 2048, dtype=np.float32)).reshape(4, 2048)}
    return Ready(graph, [train, loss], feeds, {"pipeline": "O3"})


def placed() -> Ready:
    """Parts on several devices, each with LAPACK calls."""
    with Graph() as graph:
        x = gc.placeholder((8, 6), name="x")
        with gc.device("/cpu:1"):
            a = _matrices(x)
        with gc.device("/cpu:2"):
            s = gc.linalg.svdvals(a)
        with gc.device("/cpu:3"):
            w = gc.reduce_sum(gc.linalg.qr(x, "r") * s)
    return Ready(graph, [a, s, w], {x: X}, ways=CACHE)


def calling_back() -> Ready:
    """A program that calls Python: it is never stored, and is compiled at each start."""
    with Graph() as graph:
        x = gc.placeholder((8, 6), name="x")
        y = gc.py_callback(np.sin, x, x, pure=True)
        z = gc.py_callback(np.cos, x, gc.linalg.svdvals(x) * x)
        shown = gc.print("the sum is", gc.reduce_sum(x))
    return Ready(graph, [y, z, shown], {x: X}, ways=CACHE)


DEVICES: dict[str, Callable[[], Ready]] = {
    "devices/one": partial(training, ways=("cache", "native", "stablehlo", "graph")),
    "devices/thread": partial(training, aside=True),
    "devices/checked": partial(training, options={"check_numerics": True}),
    "devices/narrow": partial(training, options={"precision": "f16"}),
    "devices/replicated": partial(
        training, options=ONE_AT_A_TIME, strategy=gc.devices.DataParallel(4)
    ),
    "devices/uneven": partial(looping, options=ONE_AT_A_TIME, strategy=gc.devices.DataParallel(4)),
    "devices/checked loop": partial(looping, options={"check_numerics": True}),
    "devices/pieces": partial(
        training,
        options=ONE_AT_A_TIME,
        strategy=gc.devices.DataParallel(4, shard_optimizer=True),
        ways=CACHE,
    ),
    "devices/parameters": partial(
        training,
        options=ONE_AT_A_TIME,
        strategy=gc.devices.DataParallel(4, shard_parameters=True),
        ways=CACHE,
    ),
    "devices/mesh": partial(
        training,
        options=ONE_AT_A_TIME,
        strategy=gc.devices.Mesh({"data": 2, "model": 2}),
        ways=CACHE,
    ),
    "devices/steps": in_a_loop,
    "devices/local norm": local_norm,
    "devices/deep": deep,
    "devices/wide": wide,
    "devices/placed": placed,
    "devices/calling back": calling_back,
}
