"""Networks for one machine without an accelerator, each in graphc and in plain JAX.

Both start from the same values. Nothing here is adapted to the compiler: NHWC, default options, and
the usual code for each library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

import graphc as gc
from benchmarks.feeding import unchanging

Params = dict[str, jax.Array]
Logits = Callable[[Params, Params, jax.Array], jax.Array]
Stages = tuple[tuple[int, int], ...]
STAGES: Stages = ((64, 3), (128, 4), (256, 6), (512, 3))  # filters and blocks of ResNet-50's stages
MOMENTUM, EPSILON = 0.9, 1e-5


class Network(NamedTuple):
    """A graph that is fed `x` and `y`, and the same network in JAX.

    Attributes:
        train, loss: the graph's training step and its loss.
        image: the shape of one example.
        classes: the number of classes.
        logits: `(params, averages, x)`, the network in JAX. It stores the new averages of batch
            norm in `averages`.
    """

    graph: gc.Graph
    train: gc.Node
    loss: gc.Tensor
    image: tuple[int, ...]
    classes: int
    logits: Logits
    optimizer: optax.GradientTransformation


def _network(
    name: str,
    image: tuple[int, ...],
    classes: int,
    layers: Callable[..., gc.Tensor],
    by_hand: Logits,
    optimizer: optax.GradientTransformation = optax.sgd(0.01, momentum=0.9),  # noqa: B008
) -> Network:
    graph = gc.Graph(seed=0, name=name)
    with graph:
        x = gc.placeholder((None, *image), "float32", name="x")
        y = gc.placeholder((None,), "int32", name="y")
        losses = gc.nn.sparse_softmax_cross_entropy(logits=layers(x), labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optimizer, name="train")
    return Network(graph, train, loss, image, classes, by_hand, optimizer)


def data(network: Network, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """One batch, which neither graphc nor JAX copies."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, *network.image), np.float32)
    y = rng.integers(0, network.classes, batch, np.int32)
    return unchanging(x), unchanging(y)


def start(network: Network) -> tuple[Params, Params]:
    """The initial values of the parameters and of batch norm's averages, by name."""
    session = gc.Session(network.graph, options=gc.CompileOptions(cache=None))
    variables = network.graph.variables
    values = {name: jnp.array(session.get(name)) for name in variables}
    params = {name: value for name, value in values.items() if variables[name].trainable}
    kept = ("/norm/mean", "/norm/variance")
    averages = {name: value for name, value in values.items() if name.endswith(kept)}
    return params, averages


def jax_step(network: Network, dtype: Any = jnp.float32) -> Callable[..., Any]:
    """A hand-written step from `(params, averages, opt_state, x, y)` to the new values of the first
    three and the loss. Layers compute in `dtype`; parameters and the loss are float32."""
    tx = network.optimizer

    def loss_of(params: Params, averages: Params, x: jax.Array, y: jax.Array) -> Any:
        averages = dict(averages)
        logits = network.logits(params, averages, x.astype(dtype)).astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
        return losses.mean(), averages

    def step(params: Params, averages: Params, state: Any, x: jax.Array, y: jax.Array) -> Any:
        (loss, averages), slopes = jax.value_and_grad(loss_of, has_aux=True)(params, averages, x, y)
        updates, state = tx.update(slopes, state, params)
        return optax.apply_updates(params, updates), averages, state, loss

    return step


def _conv(x: jax.Array, w: jax.Array, stride: int, padding: int) -> jax.Array:
    dims = ("NHWC", "HWIO", "NHWC")
    sides = [(padding, padding)] * 2
    w = w.astype(x.dtype)
    return lax.conv_general_dilated(x, w, (stride, stride), sides, dimension_numbers=dims)


def _dense(x: jax.Array, params: Params, name: str) -> jax.Array:
    return x @ params[f"{name}/kernel"].astype(x.dtype) + params[f"{name}/bias"].astype(x.dtype)


def _max_pool(x: jax.Array, padding: int) -> jax.Array:
    sides = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), sides)


# -- ResNet-50 ---------------------------------------------------------------------------------


def resnet50(size: int = 224, classes: int = 1000, stages: Stages = STAGES) -> Network:
    """He et al., "Deep residual learning", 2015, table 1; with a block's stride in its 3x3."""
    layers, by_hand = partial(_resnet, classes, stages), partial(_resnet_jax, stages)
    return _network("resnet50", (size, size, 3), classes, layers, by_hand)


def _unit(x: gc.Tensor, filters: int, size: int, stride: int, name: str) -> gc.Tensor:
    """A convolution and its batch norm."""
    start = gc.nn.initializers.HeNormal()
    conv = gc.nn.Conv2D(
        filters,
        size,
        strides=stride,
        padding=size // 2,
        use_bias=False,
        kernel_initializer=start,
        name=f"{name}/conv",
    )
    return gc.nn.BatchNorm(MOMENTUM, EPSILON, name=f"{name}/norm")(conv(x), training=True)


def _resnet(classes: int, stages: Stages, x: gc.Tensor) -> gc.Tensor:
    h = gc.nn.max_pool(gc.nn.relu(_unit(x, 64, 7, 2, "stem")), 3, 2, 1)
    for stage, (filters, blocks) in enumerate(stages):
        for block in range(blocks):
            name = f"stage{stage}_block{block}"
            stride = 2 if stage and not block else 1
            y = gc.nn.relu(_unit(h, filters, 1, 1, f"{name}/a"))
            y = gc.nn.relu(_unit(y, filters, 3, stride, f"{name}/b"))
            y = _unit(y, 4 * filters, 1, 1, f"{name}/c")
            kept = h if block else _unit(h, 4 * filters, 1, stride, f"{name}/d")
            h = gc.nn.relu(y + kept)
    return gc.nn.Dense(classes, name="out")(gc.reduce_mean(h, axis=(1, 2)))


def _resnet_jax(stages: Stages, params: Params, averages: Params, x: jax.Array) -> jax.Array:
    def unit(x: jax.Array, name: str, stride: int = 1) -> jax.Array:
        w = params[f"{name}/conv/kernel"]
        return _batch_norm(_conv(x, w, stride, w.shape[0] // 2), params, averages, f"{name}/norm")

    h = _max_pool(jax.nn.relu(unit(x, "stem", 2)), 1)
    for stage, (_, blocks) in enumerate(stages):
        for block in range(blocks):
            name = f"stage{stage}_block{block}"
            stride = 2 if stage and not block else 1
            y = jax.nn.relu(unit(h, f"{name}/a"))
            y = jax.nn.relu(unit(y, f"{name}/b", stride))
            y = unit(y, f"{name}/c")
            h = jax.nn.relu(y + (h if block else unit(h, f"{name}/d", stride)))
    return _dense(h.mean((1, 2)), params, "out")


def _batch_norm(x: jax.Array, params: Params, averages: Params, name: str) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    for part, value in (("mean", mean), ("variance", variance)):
        old = averages[f"{name}/{part}"]
        averages[f"{name}/{part}"] = MOMENTUM * old + (1 - MOMENTUM) * lax.stop_gradient(value)
    scale, offset = params[f"{name}/scale"], params[f"{name}/offset"]
    return ((wide - mean) * lax.rsqrt(variance + EPSILON) * scale + offset).astype(x.dtype)


# -- AlexNet -----------------------------------------------------------------------------------

CONVS = (  # filters, window, stride, padding, pooled after
    (64, 11, 4, 2, True),
    (192, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, False),
    (256, 3, 1, 1, True),
)


def alexnet(size: int = 224, classes: int = 1000) -> Network:
    """Krizhevsky, "One weird trick for parallelizing convolutional networks", 2014, no dropout."""
    return _network("alexnet", (size, size, 3), classes, partial(_alexnet, classes), _alexnet_jax)


def _alexnet(classes: int, x: gc.Tensor) -> gc.Tensor:
    for i, (filters, window, stride, padding, pooled) in enumerate(CONVS):
        conv = gc.nn.Conv2D(filters, window, strides=stride, padding=padding, name=f"conv{i}")
        x = gc.nn.relu(conv(x))
        x = gc.nn.max_pool(x, 3, 2) if pooled else x
    x = gc.reshape(x, (-1, x.shape[1] * x.shape[2] * x.shape[3]))
    for i in range(2):
        x = gc.nn.Dense(4096, activation=gc.nn.relu, name=f"dense{i}")(x)
    return gc.nn.Dense(classes, name="out")(x)


def _alexnet_jax(params: Params, averages: Params, x: jax.Array) -> jax.Array:
    for i, (_, _, stride, padding, pooled) in enumerate(CONVS):
        x = _conv(x, params[f"conv{i}/kernel"], stride, padding)
        x = jax.nn.relu(x + params[f"conv{i}/bias"].astype(x.dtype))
        x = _max_pool(x, 0) if pooled else x
    x = x.reshape(x.shape[0], -1)
    for i in range(2):
        x = jax.nn.relu(_dense(x, params, f"dense{i}"))
    return _dense(x, params, "out")


# -- 784-500-10 --------------------------------------------------------------------------------


def mlp() -> Network:
    """One hidden layer, trained with adam, as in the first MNIST tutorials."""
    return _network("mlp", (784,), 10, _mlp, _mlp_jax, optax.adam(1e-3))


def _mlp(x: gc.Tensor) -> gc.Tensor:
    hidden = gc.nn.Dense(500, activation=gc.nn.relu, name="hidden")(x)
    return gc.nn.Dense(10, name="out")(hidden)


def _mlp_jax(params: Params, averages: Params, x: jax.Array) -> jax.Array:
    return _dense(jax.nn.relu(_dense(x, params, "hidden")), params, "out")


NETWORKS: Mapping[str, Callable[[], Network]] = {
    "resnet50": resnet50,
    "alexnet": alexnet,
    "mlp": mlp,
}
