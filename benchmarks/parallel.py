"""Data-parallel training steps compared with hand-written `jax.pmap`. Both use gradient buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

import graphc as gc
from benchmarks import cnn
from benchmarks.feeding import unchanging
from benchmarks.steps import advancing, advancing_by_hand, training
from benchmarks.timing import compare

Row = tuple[str, str, str]
Params = dict[str, jax.Array]

BATCH, SIZES = 128, (784, 512, 512, 256, 10)
CALLS, ROUNDS = 5, 25
MIB = 2**20


class Model(NamedTuple):
    """One network in graphc and in JAX, with the same initial values."""

    graph: gc.Graph
    fetches: list[Any]
    feeds: Mapping[str, np.ndarray[Any, Any]]
    params: Params
    loss_of: Callable[..., jax.Array]
    tx: optax.GradientTransformation


def rows(devices: int = 4) -> Iterator[Row]:
    """Rows: all-reduces and time of a step, for the default bucket size and for small buckets."""
    for name, model in (("MLP", mlp()), ("CNN", small_cnn())):
        total = sum(value.nbytes for value in model.params.values())
        label = f"{name} step on {devices} devices, {total / MIB:.1f} MiB of gradients"
        for size in (gc.devices.DataParallel(1).bucket_bytes_on("cpu"), total // 4):
            of_size = f"{label}, buckets of {size / MIB:.2g} MiB"
            yield from _beside_hand(of_size, model, devices, size)
        yield from _beside_none(label, model, devices)
        yield from _in_pieces(label, model, devices)


def _beside_hand(label: str, model: Model, devices: int, size: int) -> Iterator[Row]:
    step, ours = graphc_step(model, devices, size)
    lowered, compiled, theirs = jax_step(model, devices, size)
    asked, asked_by_hand = (
        text.count("stablehlo.all_reduce") for text in (step.stablehlo(), lowered.as_text())
    )
    done, done_by_hand = (cnn.count_collectives(text) for text in (step.hlo(), compiled.as_text()))
    yield f"{label}: all-reduces in StableHLO", str(asked), f"{asked_by_hand} by hand"
    yield f"{label}: all-reduces in HLO", str(done), f"{done_by_hand} by hand"
    timed = compare(ours, theirs, calls=CALLS, rounds=ROUNDS)
    yield (
        f"{label}: time ({1e3 * timed.ours:.2f} against {1e3 * timed.theirs:.2f} ms)",
        f"{timed.ratio:.3f}x",
        "at most 1.10x",
    )


def _beside_none(label: str, model: Model, devices: int) -> Iterator[Row]:
    size = gc.devices.DataParallel(1).bucket_bytes_on("cpu")
    step, ours = graphc_step(model, devices, None)
    asked = step.stablehlo().count("stablehlo.all_reduce")
    timed = compare(graphc_step(model, devices, size)[1], ours, calls=CALLS, rounds=ROUNDS)
    yield (
        f"{label}: time with buckets ({1e3 * timed.ours:.2f} ms), to none, {asked} all-reduces in "
        f"StableHLO ({1e3 * timed.theirs:.2f} ms)",
        f"{timed.ratio:.3f}x",
        "",
    )


def _in_pieces(label: str, model: Model, devices: int) -> Iterator[Row]:
    size = gc.devices.DataParallel(1).bucket_bytes_on("cpu")
    pieces, cut = graphc_step(model, devices, size, shard_optimizer=True)
    whole, ours = graphc_step(model, devices, size)
    bytes_cut, bytes_whole = (step.memory()["arguments"] for step in (pieces, whole))
    yield (
        f"{label}: bytes of arguments on each device with the optimizer's state in pieces "
        f"({bytes_cut / MIB:.1f} MiB), to all of it ({bytes_whole / MIB:.1f} MiB)",
        f"{bytes_cut / bytes_whole:.3f}x",
        "",
    )
    timed = compare(cut, ours, calls=CALLS, rounds=ROUNDS)
    done = cnn.count_collectives(pieces.hlo())
    yield (
        f"{label}: time in pieces, {done} collectives in HLO ({1e3 * timed.ours:.2f} ms), to all "
        f"of it ({1e3 * timed.theirs:.2f} ms)",
        f"{timed.ratio:.3f}x",
        "",
    )


def graphc_step(
    model: Model, devices: int, size: int | None, **strategy_options: Any
) -> tuple[gc.Executable, Callable[[], float]]:
    """The step, and a function that runs it once."""
    strategy = gc.devices.DataParallel(devices, bucket_bytes=size, **strategy_options)
    shapes = {name: value.shape for name, value in model.feeds.items()}
    options = gc.CompileOptions(cache=None)
    step = gc.compile(model.graph, model.fetches, shapes, strategy=strategy, options=options)
    run = advancing(step, model.feeds)
    return step, lambda: float(run())


def jax_step(model: Model, devices: int, size: int) -> tuple[Any, Any, Callable[[], float]]:
    """The hand-written step, lowered and compiled, and a function that runs it once."""
    means = partial(mean_in_buckets, devices=devices, size=size)
    chosen = jax.devices()[:devices]
    mapped = jax.pmap(
        training(model.loss_of, model.tx, means),
        "replica",
        in_axes=(None, None, *[0] * len(model.feeds)),
        out_axes=None,
        devices=chosen,
        donate_argnums=(0, 1),
    )
    mesh = jax.sharding.Mesh(np.array(chosen), ("replica",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    start = jax.tree.map(jnp.array, model.params)  # a copy, because the step donates them
    held = jax.device_put((start, model.tx.init(start)), everywhere)
    batch = [value.reshape(devices, -1, *value.shape[1:]) for value in model.feeds.values()]
    lowered = mapped.lower(*held, *batch)
    compiled = lowered.compile()
    run = advancing_by_hand(compiled, *held, *batch)
    return lowered, compiled, lambda: float(run())


def mean_in_buckets(
    loss: jax.Array, gradients: Params, devices: int, size: int
) -> tuple[jax.Array, Params]:
    """The means over the devices in hand-written JAX: each bucket is one flat array, in the order
    of the backward pass."""
    waiting = {"": loss, **{name: gradients[name] for name in reversed(gradients)}}
    found: dict[str, jax.Array] = {}
    bucket: list[str] = []
    for name, value in waiting.items():
        bucket.append(name)
        if name != list(waiting)[-1] and sum(waiting[n].nbytes for n in bucket) < size:
            continue
        flat = jnp.concatenate([waiting[n].reshape(-1) for n in bucket])
        flat = lax.psum(flat, "replica") / devices
        at = 0
        for member in bucket:
            value = waiting[member]
            found[member] = flat[at : at + value.size].reshape(value.shape)
            at += value.size
        bucket = []
    return found.pop(""), {name: found[name] for name in gradients}


def mlp() -> Model:
    """A perceptron, trained with adam."""
    tx = optax.adam(1e-3)
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, SIZES[0]), name="x")
        y = gc.placeholder((None,), "int32", name="y")
        h = x
        for i, units in enumerate(SIZES[1:-1]):
            h = gc.nn.Dense(units, activation=gc.nn.relu, name=f"h{i}")(h)
        logits = gc.nn.Dense(SIZES[-1], name=f"h{len(SIZES) - 2}")(h)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, tx, name="train")
    layers = len(SIZES) - 1

    def loss_of(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        for i in range(layers):
            x = x @ params[f"h{i}/kernel"] + params[f"h{i}/bias"]
            x = jax.nn.relu(x) if i < layers - 1 else x
        return optax.softmax_cross_entropy_with_integer_labels(x, y).mean()

    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.normal(size=(BATCH, SIZES[0])).astype(np.float32),
        "y": rng.integers(0, SIZES[-1], BATCH).astype(np.int32),
    }
    return _model(graph, [train, loss], feeds, loss_of, tx)


def small_cnn() -> Model:
    """The network of examples/digits_cnn.py, without dropout."""
    setup = cnn.Setup()
    fetches = [setup.job.train, setup.job.metrics["loss"]]
    return _model(setup.job.graph, fetches, {"x": setup.x, "y": setup.y}, cnn.loss_of, setup.tx)


def _model(graph: gc.Graph, fetches: list[Any], feeds: Any, loss_of: Any, tx: Any) -> Model:
    feeds = {key: unchanging(value) for key, value in feeds.items()}
    session = gc.Session(graph)
    names = [v.name for v in graph.variables.values() if v.trainable]
    return Model(graph, fetches, feeds, {n: session.get(n) for n in names}, loss_of, tx)
