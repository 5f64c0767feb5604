"""The cost of plain JAX steps that are compiled for absent GPUs: FLOPs compared with formulas,
whatever library runs the products; collectives; transfers."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import graphc as gc
from graphc.devices.topology import devices_of
from graphc.runtime.hlo.hlo_cost import HloCost, hlo_cost, roofline_seconds

f32, bf16 = jnp.float32, jnp.bfloat16
S = jax.ShapeDtypeStruct
CUBLAS = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
TRITON = {"xla_gpu_autotune_level": 0}
BOTH = pytest.mark.parametrize("options", [CUBLAS, TRITON], ids=["cublas", "triton"])
H100 = gc.devices.Machine("h100")


def compiled(
    function: Callable[..., Any],
    *arguments: Any,
    options: dict[str, Any] = CUBLAS,
    donate: tuple[int, ...] = (),
) -> HloCost:
    """The cost of a function for one H100."""
    home = SingleDeviceSharding(devices_of(H100)[0])
    given = jax.tree.map(lambda s: S(s.shape, s.dtype, sharding=home), arguments)
    lowered = jax.jit(function, donate_argnums=donate).lower(*given)
    return checked(hlo_cost(lowered.compile(compiler_options=options).as_text()))


def checked(cost: HloCost) -> HloCost:
    """The cost of a step that stays on the device and is counted completely."""
    assert cost.host_transfers == 0
    assert not cost.notes
    assert cost.transposes <= cost.bytes_accessed
    return cost


def within(found: HloCost, dtype: str, expected: float, tolerance: float = 0.0) -> bool:
    """Whether all matrix FLOPs are of `dtype`, and as many as expected."""
    return set(found.matrix_flops) == {dtype} and np.isclose(
        found.matrix_flops[dtype], expected, rtol=tolerance, atol=0
    )


# -- a multi-layer perceptron ---------------------------------------------------------------

SIZES, BATCH = (512, 1024, 1024, 256), 128


def mlp_loss(parameters: Any, x: Any, y: Any) -> Any:
    for w, b in parameters[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = parameters[-1]
    return jnp.mean((x @ w + b - y) ** 2)


def mlp_parameters(dtype: Any = f32) -> list[tuple[Any, Any]]:
    return [(S((m, n), dtype), S((n,), dtype)) for m, n in pairwise(SIZES)]


def mlp_flops() -> int:
    """Three products in each layer, two in the first."""
    weights = [m * n for m, n in pairwise(SIZES)]
    return 2 * BATCH * (3 * sum(weights) - weights[0])


@BOTH
@pytest.mark.parametrize(("dtype", "unit"), [(f32, "tf32"), (bf16, "bf16")])
def test_an_mlp_step_with_adam(options: dict[str, Any], dtype: Any, unit: str) -> None:
    adam = optax.adam(1e-3)

    def step(parameters: Any, state: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(mlp_loss)(parameters, x, y)
        updates, state = adam.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    parameters = mlp_parameters(dtype)
    data = S((BATCH, SIZES[0]), dtype), S((BATCH, SIZES[-1]), dtype)
    state = jax.eval_shape(adam.init, parameters)
    found = compiled(step, parameters, state, *data, options=options, donate=(0, 1))
    assert within(found, unit, mlp_flops())
    # Adam reads the gradient, the parameter and two moments, and writes all except the gradient.
    size = sum(p.size for p in jax.tree.leaves(parameters)) * jnp.dtype(dtype).itemsize
    assert 7 * size < found.bytes_accessed < 20 * size
    gpu = H100.model
    memory = found.bytes_accessed / gpu.memory_bandwidth
    products = mlp_flops() / gpu.matrix_flops[unit]
    assert 0.999 * memory < roofline_seconds(found, gpu) < memory + products


def test_a_pmap_has_one_all_reduce_of_all_gradients() -> None:
    def step(parameters: Any, x: Any, y: Any) -> Any:
        gradients = jax.lax.pmean(jax.grad(mlp_loss)(parameters, x, y), "batch")
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)

    devices = devices_of(gc.devices.Machine("8xh100"))[:4]
    arguments = mlp_parameters(), S((BATCH, SIZES[0]), f32), S((BATCH, SIZES[-1]), f32)
    given = jax.tree.map(lambda s: S((4, *s.shape), s.dtype), arguments)
    lowered = jax.pmap(step, "batch", devices=devices).lower(*given)
    found = checked(hlo_cost(lowered.compile(compiler_options=CUBLAS).as_text()))
    size = 4 * sum(p.size for p in jax.tree.leaves(mlp_parameters()))
    assert found.collectives == {"all-reduce": (1, size)}
    assert within(found, "tf32", mlp_flops())
    (joined,) = [kernel for kernel in found.launches if kernel.opcode == "all-reduce"]
    assert joined.link_bytes == 1.5 * size


def test_parameters_cut_over_eight_gpus() -> None:
    mesh = Mesh(np.array(devices_of(gc.devices.Machine("8xh100"))), ("all",))
    cut = NamedSharding(mesh, PartitionSpec("all"))
    arguments = mlp_parameters(), S((BATCH, SIZES[0]), f32), S((BATCH, SIZES[-1]), f32)
    given = jax.tree.map(lambda s: S(s.shape, s.dtype, sharding=cut), arguments)
    lowered = jax.jit(jax.grad(mlp_loss), out_shardings=cut).lower(*given)
    found = checked(hlo_cost(lowered.compile(compiler_options=CUBLAS).as_text()))
    assert within(found, "tf32", mlp_flops() / 8)
    size = 4 * sum(p.size for p in jax.tree.leaves(mlp_parameters()))
    assert found.collectives["reduce-scatter"].bytes == size
    gathered = [k for k in found.launches if k.opcode == "all-gather"]
    assert gathered
    assert all(k.link_bytes == 7 * k.operand_bytes for k in gathered)


# -- attention and transformers -------------------------------------------------------------


def test_attention_of_cudnn() -> None:
    b, t, h, d = 4, 512, 8, 64

    def attention(q: Any, k: Any, v: Any, adjoint: Any) -> Any:
        def forward(q: Any, k: Any, v: Any) -> Any:
            return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")

        out, pull = jax.vjp(forward, q, k, v)
        return out, pull(adjoint)

    given = [S((b, t, h, d), bf16)] * 4
    found = compiled(attention, *given)
    assert within(found, "bf16", 3.5 * 4 * b * h * t * t * d)
    assert found.custom_calls == {"__cudnn$fmhaSoftmax": 1, "__cudnn$fmhaSoftmaxBackward": 1}
    assert found.kernels == 2


LAYERS, WIDTH, HEADS, HIDDEN, WORDS, TIME, TEXTS = 6, 128, 4, 512, 1024, 64, 4


def normalized(x: Any) -> Any:
    x = x.astype(f32)
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return ((x - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(bf16)


def block(x: Any, p: Any) -> Any:
    h = normalized(x)
    q, k, v = ((h @ p[name]).reshape(TEXTS, TIME, HEADS, WIDTH // HEADS) for name in "qkv")
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
    x = x + mixed @ p["o"]
    return x + jax.nn.gelu(normalized(x) @ p["up"]) @ p["down"]


def transformer(scan: bool) -> Callable[..., Any]:
    def loss(parameters: Any, words: Any, labels: Any) -> Any:
        x = parameters["words"][words]
        if scan:
            x, _ = jax.lax.scan(lambda x, p: (block(x, p), None), x, parameters["blocks"])
        else:
            for i in range(LAYERS):
                x = block(x, {name: w[i] for name, w in parameters["blocks"].items()})
        logits = jax.nn.log_softmax((x @ parameters["words"].T).astype(f32))
        return -jnp.mean(jnp.take_along_axis(logits, labels[..., None], -1))

    def step(parameters: Any, words: Any, labels: Any) -> Any:
        gradients = jax.grad(loss)(parameters, words, labels)
        return jax.tree.map(lambda p, g: p - jnp.asarray(0.1, bf16) * g, parameters, gradients)

    return step


@BOTH
@pytest.mark.parametrize("scan", [True, False])
def test_a_transformer_counts_each_of_its_layers(options: dict[str, Any], scan: bool) -> None:
    blocks = {name: S((LAYERS, WIDTH, WIDTH), bf16) for name in "qkvo"}
    blocks |= {"up": S((LAYERS, WIDTH, HIDDEN), bf16), "down": S((LAYERS, HIDDEN, WIDTH), bf16)}
    parameters = {"words": S((WORDS, WIDTH), bf16), "blocks": blocks}
    ids = S((TEXTS, TIME), jnp.int32)
    found = compiled(transformer(scan), parameters, ids, ids, options=options, donate=(0,))
    tokens = TEXTS * TIME
    weights = LAYERS * (4 * WIDTH**2 + 2 * WIDTH * HIDDEN) + WORDS * WIDTH
    mixing = LAYERS * 2 * TIME * WIDTH
    assert within(found, "bf16", 3 * 2 * tokens * (weights + mixing), 0.01)


def test_a_scan_of_24_layers_counts_24_times() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0].sum()

    found = compiled(jax.grad(loss), S((24, 256, 256), f32), S((64, 256), f32))
    # Forward one product per layer, backward two.
    assert within(found, "tf32", 24 * 3 * 2 * 64 * 256 * 256)


# -- convolutions, lookups, recurrent networks ----------------------------------------------


def test_a_convolutional_step() -> None:
    channels, size, batch = (16, 64, 128, 128), 32, 8

    def loss(kernels: Any, x: Any) -> Any:
        for w in kernels:
            labels = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=labels)
            x = jax.nn.relu(x)
            window = (1, 2, 2, 1)
            lowest = np.array(-jnp.inf, x.dtype)
            x = jax.lax.reduce_window(x, lowest, jax.lax.max, window, window, "VALID")
        return x.astype(f32).mean()

    kernels = [S((3, 3, m, n), bf16) for m, n in pairwise(channels)]
    found = compiled(jax.grad(loss), kernels, S((batch, size, size, channels[0]), bf16))
    expected = 0
    for i, (m, n) in enumerate(pairwise(channels)):
        side = size // 2**i
        # Forward, the gradients of the kernel and, except in the first layer, of the input. The
        # outermost of 3 taps meets the padding at one position.
        expected += (2 if i == 0 else 3) * 2 * batch * m * n * (3 * side - 2) ** 2
    assert within(found, "bf16", expected)
    assert found.custom_calls["__cudnn$convForward"] == 3
    assert found.custom_calls["__cudnn$convBackwardInput"] == 2
    assert found.custom_calls["__cudnn$convBackwardFilter"] == 3
    # Activations are not transposed. Only kernels, whose layout XLA adapts to cuDNN, and their
    # gradients are.
    weights = 2 * sum(k.size for k in kernels)
    assert 0 < found.transposes <= 2 * 2 * weights


def test_lookups_and_their_gradients_touch_their_rows_only() -> None:
    rows, width, ids = 100_000, 64, 2048

    def step(table: Any, ids: Any, adjoint: Any) -> Any:
        return table[ids].sum(1), table.at[ids].add(adjoint)

    given = S((rows, width), f32), S((ids,), jnp.int32), S((ids, width), f32)
    found = compiled(step, *given, donate=(0,))
    assert found.matrix_flops == {}
    of_rows = 4 * ids * width
    # The sum reads rows. The update reads them again with the added values, and writes them.
    assert 4 * of_rows <= found.bytes_accessed < 5 * of_rows


@BOTH
def test_an_lstm(options: dict[str, Any]) -> None:
    time, batch, inputs, units = 50, 64, 128, 256

    def loss(p: Any, x: Any) -> Any:
        def cell(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((batch, units))
        return jax.lax.scan(cell, (zeros, zeros), x)[0][0].sum()

    parameters = {"x": S((inputs, 4 * units), f32), "h": S((units, 4 * units), f32)}
    given = S((time, batch, inputs), f32)
    found = compiled(jax.grad(loss), parameters, given, options=options)
    # Three products of the state, two of the input.
    expected = time * 2 * batch * 4 * units * (2 * inputs + 3 * units)
    assert within(found, "tf32", expected, 0.01)
