"""Training networks on CPU: pipeline "O3" compared with plain JAX, and the gain from each part.

Figures are ratios to plain JAX (NHWC, default options). All forms are timed in turn in one run.
"O2" runs without the passes and options for CPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

import graphc as gc
from benchmarks.networks import NETWORKS, Network, data, jax_step, start

Row = tuple[str, str, str]
Steps = Mapping[str, Callable[[], object]]


class Goal(NamedTuple):
    """The measurement of a network, and the target for the ratio to plain JAX.

    Attributes:
        steps: how many steps are timed together. In graphc, several steps are one call, as in
            `Session.run_steps`. In JAX, they are separate calls that run ahead.
    """

    batch: int
    steps: int
    rounds: int
    target: float


GOALS = {
    "resnet50": Goal(8, 1, 5, 0.45),
    "alexnet": Goal(32, 1, 7, 0.55),
    "mlp": Goal(100, 50, 15, 0.9),
}


# The networks are also compiled without each of these in turn.
PASSES = (
    "cpu-space-to-depth",
    "cpu-pointwise",
    "cpu-winograd",
    "cpu-pooling",
    "cpu-moments",
    "cpu-update-by-rows",
    "update-in-place",
)


def rows() -> Iterator[Row]:
    """Rows: the three networks, two of them without each pass, then a layer for each part of O3."""
    yield from (network_row(name) for name in GOALS)
    for name in ("resnet50", "alexnet"):
        yield from without_rows(name)
    yield from layer_rows()


def ratios(steps: Steps, rounds: int, base: str = "jax", *, rest: float = 0.0) -> dict[str, float]:
    """The median over rounds of the ratio of each form's time to that of `base`. "seconds" is the
    time of `base`.

    All forms run once in each round, and once before to warm up. Each round begins with another
    form, because the previous form affects the time: it determines the state of system memory.

    Args:
        rest: seconds before each form. Threads of other libraries still wait actively for a while
            when their work is done, and take the time of the next form.
    """
    found: dict[str, list[float]] = {name: [] for name in (*steps, "seconds")}
    names = list(steps)
    for number in range(rounds + 1):
        taken = {}
        first = number % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(rest)
            begin = time.perf_counter()
            steps[name]()
            taken[name] = time.perf_counter() - begin
        if number:
            for name in steps:
                found[name].append(taken[name] / taken[base])
            found["seconds"].append(taken[base])
    return {name: statistics.median(values) for name, values in found.items()}


def without_rows(name: str) -> list[Row]:
    """A network's step at O3 without each pass: time and temporaries, relative to all passes."""
    network, goal = NETWORKS[name](), GOALS[name]
    x, y = data(network, goal.batch)
    steps, bytes_ = {}, {}
    for left_out in ("", *PASSES):
        options = gc.CompileOptions(
            pipeline="O3", without_passes=(left_out,) if left_out else (), cache=None
        )
        step = compiled(network, x, y, options)
        bytes_[left_out] = step.memory()["temporaries"]
        steps[left_out] = repeated(step, x, y, goal.steps)
    found = ratios(steps, goal.rounds, base="")
    megabytes = bytes_[""] / 1e6
    return [
        (
            f"{name} without {left_out}, to O3 ({1e3 * found['seconds']:.0f} ms, "
            f"{megabytes:.0f} MB of temporaries)",
            f"time {found[left_out]:.2f}x, temporaries {bytes_[left_out] / bytes_['']:.2f}x",
            "",
        )
        for left_out in PASSES
    ]


def same_losses(steps: Mapping[str, Callable[[], float]], rtol: float) -> None:
    """Runs each form once, and rejects a form whose first loss differs from that of "jax"."""
    first = {form: step() for form, step in steps.items()}
    for form, loss in first.items():
        np.testing.assert_allclose(loss, first["jax"], rtol=rtol, err_msg=form)


def network_row(name: str) -> Row:
    """The time of the training step of one network. The losses must agree."""
    network, goal = NETWORKS[name](), GOALS[name]
    x, y = data(network, goal.batch)
    steps = {
        "jax": jax_network(network, x, y, goal.steps),
        "O3": graphc_network(network, x, y, goal.steps, "O3"),
        "O2": graphc_network(network, x, y, goal.steps, "O2"),
    }
    same_losses(steps, rtol=1e-4)
    found = ratios(steps, goal.rounds)
    milliseconds = 1e3 * found["seconds"] / goal.steps
    return (
        f"{name}, batch {goal.batch}: training step on CPU, O3 (JAX {milliseconds:.1f} ms)",
        f"{found['O3']:.2f}x (O2 {found['O2']:.2f}x)",
        f"at most {goal.target:.2f}x",
    )


def jax_network(network: Network, x: Any, y: Any, steps: int) -> Callable[[], float]:
    """`steps` hand-written steps. The function returns the loss of the first step."""
    params, averages = start(network)
    values = [params, averages, network.optimizer.init(params)]
    return by_hand(jax_step(network), values, [x, y], steps)[0]


def by_hand(
    step: Callable[..., Any], values: list[Any], batch: list[Any], steps: int
) -> tuple[Callable[[], float], int]:
    """`steps` steps in JAX, which take and return `values`, and return the loss. The result is a
    function that returns the loss of the first step, and the bytes of a step's temporaries."""
    donated = tuple(range(len(values)))
    compiled = jax.jit(step, donate_argnums=donated).lower(*values, *batch).compile()

    def run() -> float:
        first = None
        for _ in range(steps):
            *values[:], loss = compiled(*values, *batch)
            first = loss if first is None else first
        loss.block_until_ready()
        return float(first)

    return run, int(compiled.memory_analysis().temp_size_in_bytes)


def graphc_network(
    network: Network, x: Any, y: Any, steps: int, pipeline: str
) -> Callable[[], float]:
    """The same in graphc."""
    options = gc.CompileOptions(pipeline=pipeline, cache=None)
    if steps == 1:
        return repeated(compiled(network, x, y, options), x, y, 1)
    return looped(compiled(network, x, y, options, steps), x, y, steps)


def compiled(
    network: Network, x: Any, y: Any, options: gc.CompileOptions, steps: int | None = None
) -> gc.Executable:
    """The network's training step, or a loop of `steps` steps; fetches the loss."""
    fetches, feeds = [network.train, network.loss], {"x": x.shape, "y": y.shape}
    return gc.compile(network.graph, fetches, feeds, options=options, steps=steps)


def looped(step: gc.Executable, x: Any, y: Any, steps: int) -> Callable[[], float]:
    """One call of a loop of `steps` steps. The function returns the loss of the first step."""
    holder = [step.init()]
    batches = {"x": jnp.stack([x] * steps), "y": jnp.stack([y] * steps)}

    def run() -> float:
        (_, losses), holder[0] = step(holder[0], batches)
        return float(losses[0])

    return run


def repeated(step: gc.Executable, x: Any, y: Any, steps: int) -> Callable[[], float]:
    """`steps` calls of a compiled step. The function returns the loss of the first step."""
    holder = [step.init()]

    def run() -> float:
        first = None
        for _ in range(steps):
            (_, loss), holder[0] = step(holder[0], {"x": x, "y": y})
            first = loss if first is None else first
        loss.block_until_ready()
        return float(first)

    return run


# -- one layer each ----------------------------------------------------------------------------


class Layer(NamedTuple):
    """A layer and its gradients, in graphc and in hand-written JAX.

    Attributes:
        first: whether it is the first layer of a network, which does not need the gradient of the
            image.
    """

    image: tuple[int, ...]
    kernel: tuple[int, ...] | None
    ours: Callable[..., Any]
    by_hand: Callable[..., Any]
    first: bool = False


def _conv(stride: int, padding: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def ours(x: gc.Tensor, w: gc.Tensor) -> gc.Tensor:
        return gc.nn.conv2d(x, w, strides=stride, padding=padding)

    def by_hand(x: jax.Array, w: jax.Array) -> jax.Array:
        dims = ("NHWC", "HWIO", "NHWC")
        sides = [(padding, padding)] * 2
        return lax.conv_general_dilated(x, w, (stride, stride), sides, dimension_numbers=dims)

    return ours, by_hand


def _pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")


def _normalized(x: jax.Array, scale: jax.Array) -> jax.Array:
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale


LAYERS = {
    "1x1 convolution and gradients [8, 28, 28, 512] to 128": Layer(
        (8, 28, 28, 512), (1, 1, 512, 128), *_conv(1, 0)
    ),
    "strided 1x1 convolution and gradients [8, 56, 56, 256] to 512": Layer(
        (8, 56, 56, 256), (1, 1, 256, 512), *_conv(2, 0)
    ),
    "3x3 convolution and gradients [32, 14, 14, 256] to 256": Layer(
        (32, 14, 14, 256), (3, 3, 256, 256), *_conv(1, 1)
    ),
    "5x5 convolution and gradients [32, 27, 27, 64] to 192": Layer(
        (32, 27, 27, 64), (5, 5, 64, 192), *_conv(1, 2)
    ),
    "11x11 convolution and kernel's gradient, stride 4, [8, 224, 224, 3] to 64": Layer(
        (8, 224, 224, 3), (11, 11, 3, 64), *_conv(4, 2), first=True
    ),
    "max-pool and gradient [32, 27, 27, 192]": Layer(
        (32, 27, 27, 192), None, lambda x: gc.nn.max_pool(x, 3, 2), _pool
    ),
    "batch norm and gradients [8, 56, 56, 256]": Layer(
        (8, 56, 56, 256),
        (256,),
        lambda x, scale: gc.nn.batch_norm(
            x, *gc.nn.moments(x, (0, 1, 2)), scale, np.zeros(256, np.float32)
        ),
        _normalized,
    ),
}


def layer_rows(rounds: int = 9) -> list[Row]:
    """Rows: each layer with its gradients, at O3 and at O2."""
    found = []
    for name, layer in LAYERS.items():
        shapes = [layer.image] if layer.kernel is None else [layer.image, layer.kernel]
        rng = np.random.default_rng(0)
        values = [jnp.asarray(rng.standard_normal(shape, np.float32)) for shape in shapes]
        steps = {
            "jax": jax_layer(layer, values),
            "O3": graphc_layer(layer, values, "O3"),
            "O2": graphc_layer(layer, values, "O2"),
        }
        given = ratios(steps, rounds)
        what = f"{name} (JAX {1e3 * given['seconds']:.1f} ms)"
        found.append((what, f"{given['O3']:.2f}x (O2 {given['O2']:.2f}x)", "below 1.00x"))
    return found


def jax_layer(layer: Layer, values: list[Any]) -> Callable[[], object]:
    y, _ = jax.eval_shape(lambda *v: jax.vjp(layer.by_hand, *v), *values)
    dy = jnp.ones(y.shape, y.dtype)

    def run(dy: jax.Array, *values: jax.Array) -> Any:
        y, pull = jax.vjp(layer.by_hand, *values)
        return y, pull(dy * y)[layer.first :]

    compiled = jax.jit(run).lower(dy, *values).compile()
    return lambda: jax.block_until_ready(compiled(dy, *values))


def graphc_layer(layer: Layer, values: list[Any], pipeline: str) -> Callable[[], object]:
    graph = gc.Graph(seed=0)
    with graph:
        inputs = [
            gc.placeholder(value.shape, "float32", name=f"in{i}") for i, value in enumerate(values)
        ]
        y = layer.ours(*inputs)
        slopes = gc.gradients(y, inputs[layer.first :], grad_ys=y)
    feeds = {f"in{i}": value for i, value in enumerate(values)}
    shapes = {name: value.shape for name, value in feeds.items()}
    options = gc.CompileOptions(pipeline=pipeline, cache=None)
    step = gc.compile(graph, [y, *slopes], shapes, options=options)
    state = step.init()
    return lambda: jax.block_until_ready(step(state, feeds)[0])
