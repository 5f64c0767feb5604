"""Frozen graphs compared with the same network unfrozen and with plain JAX; and the cost of checked
numerics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

import graphc as gc
from benchmarks.feeding import unchanging
from benchmarks.timing import compare

BLOCKS, CHANNELS, SIDE, BATCH = 6, 64, 28, 8
LAYERS, WIDTH = 6, 1024
Row = tuple[str, str, str]


def rows() -> list[Row]:
    """Rows: separable convolutions with batch norm, weight normalization, checked numerics."""
    return [*separable(), *weight_norm(), *checked()]


def separable() -> list[Row]:
    """Batch norm folded into depthwise and 1x1 convolutions (inference, one batch of 8)."""
    graph, x, logits = _separable_graph()
    session = _with_statistics(gc.Session(graph))
    frozen = gc.freeze(session, [x], {"logits": logits})
    apart = gc.freeze(
        _with_statistics(
            gc.Session(graph, options=gc.CompileOptions(without_passes=("fold-norms",)))
        ),
        [x],
        {"logits": logits},
    )
    feed = unchanging(
        np.random.default_rng(0).standard_normal((BATCH, SIDE, SIDE, CHANNELS)).astype("f")
    )
    runs = {
        "unfrozen": _runner(session, logits, x, feed),
        "frozen": _runner(gc.Session(frozen), "logits", "x", feed),
        "frozen without fold-norms": _runner(gc.Session(apart), "logits", "x", feed),
        "plain JAX": _by_hand(session, feed),
    }
    want = np.asarray(runs["plain JAX"]())
    for name, run in runs.items():
        np.testing.assert_allclose(run(), want, rtol=1e-3, atol=1e-3, err_msg=name)
    label = f"{BLOCKS} separable blocks with batch norm"
    found = [_ratio(label, runs, "frozen", other) for other in runs if other != "frozen"]
    nodes = f"{_nodes(frozen)} nodes, {len(frozen.variables)} variables"
    before = f"{_nodes(graph)} nodes, {len(graph.variables)} variables"
    return [*found, (f"{label}: frozen, unfrozen", f"{nodes}; {before}", "")]


def weight_norm() -> list[Row]:
    """Values that depend only on weights: products with normalized kernels, a batch of 4."""
    with gc.Graph(seed=0) as graph:
        h = x = gc.placeholder((4, WIDTH), name="x")
        for i in range(LAYERS):
            v = gc.variable(gc.nn.initializers.GlorotUniform(), shape=(WIDTH, WIDTH), name=f"v{i}")
            g = gc.variable(gc.nn.initializers.Ones(), shape=(WIDTH,), name=f"g{i}")
            h = gc.tanh(h @ (v * (g / gc.sqrt(gc.reduce_sum(v * v, axis=0)))))
        y = gc.identity(h, name="y")
    session = gc.Session(graph)
    frozen = gc.freeze(session, [x], [y])
    feed = unchanging(np.random.default_rng(0).standard_normal((4, WIDTH)).astype("f"))
    weights = [(session.get(f"v{i}"), session.get(f"g{i}")) for i in range(LAYERS)]

    @jax.jit
    def by_hand(weights: Any, x: Any) -> Any:
        for v, g in weights:
            x = jnp.tanh(x @ (v * (g / jnp.sqrt((v * v).sum(0)))))
        return x

    runs = {
        "unfrozen": _runner(session, y, x, feed),
        "frozen": _runner(gc.Session(frozen), "y", "x", feed),
        "plain JAX": lambda: by_hand(weights, feed).block_until_ready(),
    }
    np.testing.assert_allclose(runs["frozen"](), runs["plain JAX"](), atol=1e-4)
    label = f"{LAYERS} layers of {WIDTH} with weight normalisation"
    found = [_ratio(label, runs, "frozen", other) for other in runs if other != "frozen"]
    (seconds, size), (longer, larger) = (_made(session, limit) for limit in (256, 2**40))
    return [
        *found,
        (
            f"{label}: weights as arguments, not as constants: time to compile, size of program",
            f"{seconds / longer:.2f}x, {size / larger:.5f}x ({size:.0f} kB)",
            "",
        ),
    ]


def checked() -> list[Row]:
    """A training step with `check_numerics`, compared with the same step without it."""
    with gc.Graph(seed=0) as graph:
        h = x = gc.placeholder((64, 512), name="x")
        for i in range(4):
            h = gc.nn.Dense(512, activation=gc.nn.relu, name=f"layer{i}")(h)
        loss = gc.reduce_mean(gc.square(h), name="loss")
        train = gc.minimize(loss, optax.adam(1e-4), name="train")
    feed = unchanging(np.random.default_rng(0).standard_normal((64, 512)).astype("f"))
    found = {}
    for check in (False, True):
        session = gc.Session(graph, options=gc.CompileOptions(check_numerics=check))
        found[check] = _runner(session, [train, loss], x, feed, place=1)
    timed = compare(found[True], found[False], calls=5, rounds=9)
    label = "training step of 4 dense layers of 512, batch 64: check_numerics, to the plain step"
    return [(f"{label}, time", f"{timed.ratio:.2f}x", "")]


def _separable_graph() -> tuple[gc.Graph, Any, Any]:
    with gc.Graph(seed=0) as graph:
        h = x = gc.placeholder((BATCH, SIDE, SIDE, CHANNELS), name="x")
        for i in range(BLOCKS):
            depthwise = gc.nn.DepthwiseConv2D(3, padding="same", use_bias=False, name=f"depth{i}")
            h = gc.nn.relu(gc.nn.BatchNorm(name=f"dnorm{i}")(depthwise(h), training=False))
            point = gc.nn.Conv2D(CHANNELS, 1, use_bias=False, name=f"point{i}")
            h = gc.nn.relu(gc.nn.BatchNorm(name=f"pnorm{i}")(point(h), training=False))
        logits = gc.nn.Dense(10, name="out")(gc.reduce_mean(h, axis=(1, 2)))
    return graph, x, logits


def _with_statistics(session: gc.Session) -> gc.Session:
    rng = np.random.default_rng(1)
    for name, value in session.values().items():
        if name.endswith(("mean", "offset")):
            session.set(name, 0.1 * rng.standard_normal(value.shape))
        elif name.endswith(("variance", "scale")):
            session.set(name, rng.uniform(0.5, 1.5, value.shape))
    return session


def _by_hand(session: gc.Session, feed: Any) -> Callable[[], Any]:
    params = {name: jnp.asarray(value) for name, value in session.values().items()}

    def norm(p: Any, name: str, x: Any) -> Any:
        factor = lax.rsqrt(p[f"{name}/variance"] + 1e-5) * p[f"{name}/scale"]
        return jax.nn.relu((x - p[f"{name}/mean"]) * factor + p[f"{name}/offset"])

    @jax.jit
    def model(p: Any, x: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        for i in range(BLOCKS):
            kernel = p[f"depth{i}/kernel"].reshape(3, 3, 1, CHANNELS)
            x = lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=CHANNELS
            )
            x = norm(p, f"dnorm{i}", x)
            kernel = p[f"point{i}/kernel"]
            x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)
            x = norm(p, f"pnorm{i}", x)
        return x.mean((1, 2)) @ p["out/kernel"] + p["out/bias"]

    return lambda: model(params, feed).block_until_ready()


def _runner(
    session: gc.Session, fetches: Any, key: Any, feed: Any, place: int | None = None
) -> Callable[[], Any]:
    def run() -> Any:
        value = session.run(fetches, {key: feed})
        return (value if place is None else value[place]).block_until_ready()

    return run


def _ratio(label: str, runs: dict[str, Callable[[], Any]], ours: str, theirs: str) -> Row:
    timed = compare(runs[ours], runs[theirs], calls=3, rounds=9)
    times = f"{1e3 * timed.ours:.1f} against {1e3 * timed.theirs:.1f} ms"
    return (f"{label}: {ours} to {theirs} ({times}), time", f"{timed.ratio:.2f}x", "")


def _nodes(graph: gc.Graph) -> int:
    return sum(
        n.op.name not in ("Placeholder", "ReadVariable", "Identity", "Constant")
        for n in graph.nodes
    )


def _made(session: gc.Session, literals: int) -> tuple[float, float]:
    """Seconds to lower and compile a frozen graph, and kilobytes of its StableHLO."""
    graph = gc.freeze(session, ["x"], ["y"], literals=literals)
    options = gc.CompileOptions(cache=None)
    step = gc.compile(graph, "y", {"x": (4, WIDTH)}, options=options)
    return sum(step.seconds.values()), len(step.stablehlo()) / 1e3
