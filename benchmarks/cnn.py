"""The training step of the digits CNN: graphc compared with hand-written JAX and optax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import digits_cnn
import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

import graphc as gc
from benchmarks.feeding import unchanging
from benchmarks.steps import advancing, advancing_by_hand, training
from benchmarks.timing import compare

Row = tuple[str, str, str]
BATCH = 128
NAMES = ("conv1", "conv2", "hidden", "out")


def network(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """The network of examples/digits_cnn.py without dropout, in usual JAX."""
    dims = ("NHWC", "HWIO", "NHWC")
    for name in ("conv1", "conv2"):
        x = lax.conv_general_dilated(
            x, params[f"{name}/kernel"], (1, 1), "SAME", dimension_numbers=dims
        )
        x = jax.nn.relu(x + params[f"{name}/bias"])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["hidden/kernel"] + params["hidden/bias"])
    return x @ params["out/kernel"] + params["out/bias"]


def loss_of(params: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean cross-entropy."""
    losses = optax.softmax_cross_entropy_with_integer_labels(network(params, x), y)
    return losses.mean()


def jax_step(tx: optax.GradientTransformation, axis: str | None = None) -> Callable[..., Any]:
    """A hand-written training step; under pmap with one psum of gradients and loss."""
    return training(loss_of, tx, None if axis is None else lambda *both: lax.pmean(both, axis))


class Setup:
    """The same model in graphc and in JAX, with the same initial values."""

    def __init__(self) -> None:
        self.job = digits_cnn.build(dropout=False, batch=BATCH)
        feeds = next(iter(self.job.batches))
        self.x, self.y = unchanging(feeds["x"]), unchanging(feeds["y"])
        self.tx = digits_cnn.optimizer()

    def params(self) -> dict[str, jax.Array]:
        session = gc.Session(self.job.graph)
        return {
            f"{name}/{part}": session.get(f"{name}/{part}")
            for name in NAMES
            for part in ("kernel", "bias")
        }

    def step(self, **options: Any) -> gc.Executable:
        feeds = {"x": self.x.shape, "y": self.y.shape}
        fetches = [self.job.train, self.job.metrics["loss"]]
        return gc.compile(self.job.graph, fetches, feeds, **options)


def one_device() -> list[Row]:
    """Rows: FLOPs, bytes and time of one step. The initial losses must agree."""
    setup = Setup()
    step = setup.step()
    params = setup.params()
    by_hand = jax.jit(jax_step(setup.tx), donate_argnums=(0, 1))
    opt_state = setup.tx.init(params)
    compiled = by_hand.lower(params, opt_state, setup.x, setup.y).compile()
    cost = compiled.cost_analysis()
    mine = step.cost()
    rows = [
        (f"CNN step, HLO {what}", f"{mine[what] / cost[what]:.4f}x", "at most 1.00x")
        for what in ("flops", "bytes accessed")
    ]
    theirs = advancing_by_hand(compiled, params, opt_state, setup.x, setup.y)
    return [*rows, _time("CNN step", setup, step, theirs, calls=10)]


def _time(
    label: str, setup: Setup, step: gc.Executable, theirs: Callable[[], jax.Array], calls: int
) -> Row:
    """A row: the time of a step of graphc, relative to that of a step in JAX."""
    ours = advancing(step, {"x": setup.x, "y": setup.y})
    sides = (partial(_finished, side) for side in (ours, theirs))
    timed = compare(*sides, calls=calls)
    times = f"{1e3 * timed.ours:.2f} against {1e3 * timed.theirs:.2f} ms"
    return f"{label}, time ({times})", f"{timed.ratio:.3f}x", "at most 1.10x"


def _finished(run: Callable[[], jax.Array]) -> None:
    run().block_until_ready()


def replicated(devices: int) -> list[Row]:
    """Rows: collectives and time of one data-parallel step."""
    if len(jax.devices()) < devices:
        return []
    setup = Setup()
    step = setup.step(strategy=gc.devices.DataParallel(devices))
    params = setup.params()
    opt_state = setup.tx.init(params)
    mapped = jax.pmap(
        jax_step(setup.tx, "replica"),
        "replica",
        in_axes=(None, None, 0, 0),
        out_axes=None,
        devices=jax.devices()[:devices],
        donate_argnums=(0, 1),
    )
    x = setup.x.reshape(devices, -1, *setup.x.shape[1:])
    y = setup.y.reshape(devices, -1)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("replica",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    params, opt_state = jax.device_put((params, opt_state), everywhere)
    lowered = mapped.lower(params, opt_state, x, y)
    compiled = lowered.compile()
    asked = (
        step.stablehlo().count("stablehlo.all_reduce"),
        lowered.as_text().count("stablehlo.all_reduce"),
    )
    done = count_collectives(step.hlo()), count_collectives(compiled.as_text())
    theirs = advancing_by_hand(compiled, params, opt_state, x, y)
    label = f"pmap step on {devices}"
    return [
        (f"{label}, all-reduces in StableHLO", f"{asked[0]}", f"{asked[1]} by hand"),
        (f"{label}, collectives in HLO", f"{done[0]}", f"{done[1]} by hand"),
        _time(label, setup, step, theirs, calls=5),
    ]


def count_collectives(hlo: str) -> int:
    """Collective operations of a compiled program, each counted once."""
    kinds = ("all-reduce(", "all-reduce-start(", "all-gather(", "reduce-scatter(")
    return sum(hlo.count(f" {kind}") for kind in kinds)
