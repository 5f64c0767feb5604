"""The memory of a training step whose parameters are larger than its activations: 12 dense layers,
adam.

It is compared with hand-written JAX (layers unrolled, jitted, state donated), and with graphc
without the pass that applies a layer's gradient in the loop that computes it. On CPU the steps are
timed too. With JAX's CUDA plugin, both are also compiled for one H100, but not run; there, 12
layers are not rolled, and 32 layers are a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import numpy as jnp

import graphc as gc
from benchmarks import gpu_hlo
from benchmarks.steps import advancing, training
from benchmarks.timing import compare
from graphc.runtime.hlo.hlo_cost import hlo_cost, roofline_seconds

Row = tuple[str, str, str]
ROUNDS, CALLS = 7, 1
ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tanh": (gc.tanh, jnp.tanh),
    "relu": (gc.nn.relu, jax.nn.relu),
}
DEEP = 32  # layers that are a loop on a GPU too


class Size(NamedTuple):
    """Dense layers of one width."""

    layers: int = 12
    width: int = 4096
    batch: int = 256


def rows() -> Iterator[Row]:
    """All rows."""
    for activation in ACTIVATIONS:
        yield from on_cpu(Size(), activation)
    if any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        for activation in ACTIVATIONS:
            yield from on_gpu(Size(), activation)
        yield from on_gpu(Size(DEEP, 2048), "tanh")


def graphc_step(size: Size, activation: str, **options: Any) -> gc.Executable:
    """graphc's step. `options` are options of compilation, or `machine`."""
    graph = gc.Graph(seed=0)
    with graph:
        h = x = gc.placeholder((size.batch, size.width), name="x")
        y = gc.placeholder((size.batch, size.width), name="y")
        for _ in range(size.layers):
            h = gc.nn.Dense(size.width, activation=ACTIVATIONS[activation][0])(h)
        loss = gc.reduce_mean(gc.square(h - y), name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    machine = options.pop("machine", None)
    made = gc.CompileOptions(cache=None, **options)
    shape = (size.batch, size.width)
    fetches = [train, loss]
    return gc.compile(graph, fetches, {x: shape, y: shape}, machine=machine, options=made).wait()


def jax_parts(size: Size, activation: str) -> tuple[Callable[..., Any], list[Any]]:
    """The hand-written step, and the types of its parameters, slots and feeds."""
    function, tx = ACTIVATIONS[activation][1], optax.adam(1e-3)

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        for kernel, bias in params:
            x = function(x @ kernel + bias)
        return jnp.mean(jnp.square(x - y))

    def array(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, np.float32)

    params = [(array(size.width, size.width), array(size.width)) for _ in range(size.layers)]
    feed = array(size.batch, size.width)
    return training(loss_of, tx), [params, jax.eval_shape(tx.init, params), feed, feed]


def on_cpu(size: Size, activation: str) -> Iterator[Row]:
    """Memory and time of a step."""
    ours = graphc_step(size, activation)
    plain = graphc_step(size, activation, without_passes=("update-in-loop",))
    step, types = jax_parts(size, activation)
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*types).compile()
    theirs = int(compiled.memory_analysis().temp_size_in_bytes)
    label = f"{size.layers} dense layers of {size.width}, {activation}, adam"
    taken, before = ours.memory()["temporaries"], plain.memory()["temporaries"]
    assert ours.memory()["aliased"] == plain.memory()["aliased"]
    yield (
        f"{label}: temporaries ({taken / 1e6:.0f} MB), to JAX unrolled ({theirs / 1e6:.0f} MB)",
        f"{taken / theirs:.2f}x",
        "at most 0.6x",
    )
    yield (
        f"{label}: temporaries, to graphc without `update-in-loop` ({before / 1e6:.0f} MB)",
        f"{taken / before:.2f}x",
        "",
    )
    found = compare(running(ours, size), running(plain, size), calls=CALLS, rounds=ROUNDS)
    yield (
        f"{label}: time ({1e3 * found.ours:.0f} ms), to graphc without `update-in-loop` "
        f"({1e3 * found.theirs:.0f} ms)",
        f"{found.ratio:.2f}x",
        "at most 1.00x",
    )


def running(step: gc.Executable, size: Size) -> Callable[[], float]:
    """A function that runs the step repeatedly."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, size.batch, size.width)).astype(np.float32)
    run = advancing(step, {"x": x, "y": y})
    return lambda: float(run())


def on_gpu(size: Size, activation: str) -> Iterator[Row]:
    """Memory and estimated time of the programs compiled for one H100."""
    step, types = jax_parts(size, activation)
    theirs = gpu_hlo.in_jax(step, types[:2], types[2:], 1)
    free = graphc_step(size, activation, machine="1xh100")
    plain = graphc_step(size, activation, machine="1xh100", without_passes=("update-in-loop",))
    ours = _figures(free)
    gpu = gc.devices.Machine("h100").model
    by_hand = theirs.temporaries, roofline_seconds(theirs.cost, gpu)
    for other, figures, target in (
        ("JAX unrolled", by_hand, "at most 0.6x"),
        ("graphc without `update-in-loop`", _figures(plain), ""),
    ):
        yield (
            f"{size.layers} dense layers of {size.width}, {activation}, adam, 1 H100 "
            f"({ours[0] / 1e6:.0f} MB, {1e3 * ours[1]:.2f} ms), over {other} "
            f"({figures[0] / 1e6:.0f} MB)",
            f"temporaries {ours[0] / figures[0]:.2f}x, roofline {ours[1] / figures[1]:.2f}x",
            target,
        )


def _figures(step: gc.Executable) -> tuple[int, float]:
    """The bytes of temporaries, and the estimated seconds by the roofline."""
    gpu = gc.devices.Machine("h100").model
    return step.memory()["temporaries"], roofline_seconds(hlo_cost(step.hlo(), 1), gpu)
