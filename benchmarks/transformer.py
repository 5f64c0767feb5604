"""A decoder-only transformer on bytes in four forms: in graphc and in plain JAX.

All four start from the same values, get the same batches and give the same losses: see `check`.
Nothing here is adapted to the compiler: each form is usual code.
"""

from __future__ import annotations

import functools
import math
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import numpy as jnp

import graphc as gc
from benchmarks.feeding import unchanging
from benchmarks.steps import training

VOCABULARY = 256  # bytes
SOURCES = ("argparse.py", "inspect.py", "subprocess.py", "typing.py")
Values = dict[str, np.ndarray]
Attention = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # of [batch, time, heads, depth]


class Model(NamedTuple):
    """A graph that is fed `text`, int32 [batch, sequence + 1], its training step and its loss."""

    graph: gc.Graph
    train: gc.Node
    loss: gc.Tensor


class Size(NamedTuple):
    """The size of the model and of its batches; by default, that of the shared measurements."""

    blocks: int = 24
    width: int = 128
    heads: int = 4
    sequence: int = 64
    batch: int = 8


def optimizer() -> optax.GradientTransformation:
    return optax.adam(1e-3)


def initial(size: Size) -> Values:
    """The initial values of all parameters by name. They are the same in each call."""
    rng = np.random.default_rng(0)
    width = size.width

    def normal(*shape: int) -> np.ndarray:
        return (0.02 * rng.standard_normal(shape)).astype(np.float32)

    values = {"tokens/table": normal(VOCABULARY, width), "positions": normal(size.sequence, width)}
    for i in range(size.blocks):
        for name in ("norm1", "norm2"):
            values[f"block{i}/{name}/scale"] = np.ones(width, np.float32)
            values[f"block{i}/{name}/offset"] = np.zeros(width, np.float32)
        values[f"block{i}/qkv/kernel"] = normal(width, 3 * width)
        values[f"block{i}/out/kernel"] = normal(width, width)
        values[f"block{i}/up/kernel"] = normal(width, 4 * width)
        values[f"block{i}/down/kernel"] = normal(4 * width, width)
    values["norm/scale"] = np.ones(width, np.float32)
    values["norm/offset"] = np.zeros(width, np.float32)
    values["head/kernel"] = normal(width, VOCABULARY)
    return values


def batches(size: Size, count: int) -> list[np.ndarray]:
    """Batches int32 [batch, sequence + 1]: random pieces of the standard library's sources."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = np.frombuffer(b"".join((folder / name).read_bytes() for name in SOURCES), np.uint8)
    rng = np.random.default_rng(1)
    starts = rng.integers(0, len(text) - size.sequence, (count, size.batch, 1))
    pieces = text[starts + np.arange(size.sequence + 1)].astype(np.int32)
    return list(unchanging(pieces))


# -- graphc, layer by layer --------------------------------------------------------------------


def graphc_model(size: Size) -> Model:
    """The model in graphc, written layer by layer."""
    graph = gc.Graph(seed=0, name=f"transformer{size.blocks}")
    with graph:
        shape = (size.batch, size.sequence + 1)
        tokens = gc.placeholder(shape, "int32", name="text", batch_axis=0)
        normal = gc.nn.initializers.Normal(stddev=0.02)
        positions = gc.variable(normal, shape=(size.sequence, size.width), name="positions")
        embedding = gc.nn.Embedding(VOCABULARY, size.width, normal, name="tokens")
        x = embedding(tokens[:, :-1]) + positions
        for i in range(size.blocks):
            with gc.name_scope(f"block{i}"):
                x = graphc_block(x, size)
        logits = graphc_dense(VOCABULARY, "head")(gc.nn.LayerNorm(name="norm")(x))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=tokens[:, 1:])
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optimizer(), name="train")
    return Model(graph, train, loss)


def graphc_block(x: gc.Tensor, size: Size) -> gc.Tensor:
    heads = (size.batch, size.sequence, size.heads, size.width // size.heads)
    qkv = graphc_dense(3 * size.width, "qkv")(gc.nn.LayerNorm(name="norm1")(x))
    q, k, v = (gc.transpose(gc.reshape(t, heads), (0, 2, 1, 3)) for t in gc.split(qkv, 3, axis=-1))
    scores = gc.matmul(q, k, transpose_b=True) / math.sqrt(heads[-1])
    causal = np.tril(np.ones((size.sequence, size.sequence), bool))
    mixed = gc.matmul(gc.nn.softmax(gc.where(causal, scores, -1e9)), v)
    mixed = gc.reshape(gc.transpose(mixed, (0, 2, 1, 3)), x.shape)
    x = x + graphc_dense(size.width, "out")(mixed)
    hidden = graphc_dense(4 * size.width, "up")(gc.nn.LayerNorm(name="norm2")(x))
    return x + graphc_dense(size.width, "down")(gc.nn.gelu(hidden))


def graphc_dense(units: int, name: str) -> gc.nn.Dense:
    normal = gc.nn.initializers.Normal(stddev=0.02)
    return gc.nn.Dense(units, use_bias=False, kernel_initializer=normal, name=name)


# -- plain JAX ---------------------------------------------------------------------------------


def nested(values: Values, size: Size) -> dict[str, Any]:
    """Parameters in the usual form of JAX: a list of blocks, and the other parameters."""
    blocks: list[dict[str, Any]] = [{} for _ in range(size.blocks)]
    params: dict[str, Any] = {"blocks": blocks}
    for name, value in values.items():
        first, _, rest = name.partition("/")
        if first.startswith("block"):
            blocks[int(first.removeprefix("block"))][rest] = value
        else:
            params[name] = value
    return params


def stacked(values: Values, size: Size) -> dict[str, Any]:
    """The same with the blocks stacked, for `scan`."""
    params = nested(values, size)
    params["blocks"] = jax.tree.map(lambda *parts: np.stack(parts), *params["blocks"])
    return params


def layer_norm(x: jax.Array, scale: jax.Array, offset: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    y = (wide - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + offset
    return y.astype(x.dtype)


def jax_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention, written out, with the softmax in float32. The result and the operands are
    [batch, time, heads, depth]."""
    q, k, v = (t.transpose(0, 2, 1, 3) for t in (q, k, v))
    scores = (q @ k.swapaxes(-1, -2)).astype(jnp.float32) / math.sqrt(q.shape[-1])
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9)).astype(v.dtype)
    return (weights @ v).transpose(0, 2, 1, 3)


def jax_flash(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """The same with cuDNN, for 16-bit floats on a GPU."""
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")


def jax_block(
    size: Size, x: jax.Array, p: dict[str, jax.Array], attention: Attention = jax_attention
) -> jax.Array:
    """A block that computes in the dtype of `x`, with its norms in float32."""
    heads = (size.batch, size.sequence, size.heads, size.width // size.heads)

    def dense(x: jax.Array, name: str) -> jax.Array:
        return x @ p[f"{name}/kernel"].astype(x.dtype)

    qkv = dense(layer_norm(x, p["norm1/scale"], p["norm1/offset"]), "qkv")
    mixed = attention(*(t.reshape(heads) for t in jnp.split(qkv, 3, axis=-1)))
    x = x + dense(mixed.reshape(x.shape), "out")
    hidden = dense(layer_norm(x, p["norm2/scale"], p["norm2/offset"]), "up")
    return x + dense(jax.nn.gelu(hidden), "down")


def jax_loss(
    size: Size,
    scan: bool,
    params: dict[str, Any],
    tokens: jax.Array,
    dtype: Any = jnp.float32,
    attention: Attention = jax_attention,
) -> jax.Array:
    block = functools.partial(jax_block, size, attention=attention)
    x = (params["tokens/table"][tokens[:, :-1]] + params["positions"]).astype(dtype)
    if scan:
        x, _ = jax.lax.scan(lambda x, p: (block(x, p), None), x, params["blocks"])
    else:
        for p in params["blocks"]:
            x = block(x, p)
    x = layer_norm(x, params["norm/scale"], params["norm/offset"])
    logits = (x @ params["head/kernel"].astype(dtype)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def jax_step(
    size: Size, *, scan: bool, dtype: Any = jnp.float32, attention: Attention = jax_attention
) -> Callable[..., Any]:
    """The step `(params, opt_state, tokens) -> (params, opt_state, loss)`, unrolled or with a scan,
    in `dtype` with float32 parameters."""
    loss_of = functools.partial(jax_loss, size, scan, dtype=dtype, attention=attention)
    return training(loss_of, optimizer())


# -- plain JAX, imported -----------------------------------------------------------------------


def imported_model(size: Size) -> Model:
    """The unrolled step in a graph that owns its parameters and its optimizer's state."""
    graph = gc.Graph(seed=0, name=f"imported{size.blocks}")
    start = nested(initial(size), size)
    with graph:
        shape = (size.batch, size.sequence + 1)
        tokens = gc.placeholder(shape, "int32", name="text", batch_axis=0)
        params = jax.tree.map(gc.variable, start)
        opt_state = jax.tree.map(gc.variable, optimizer().init(start))
        step = gc.from_jax(jax_step(size, scan=False))
        new_params, new_opt_state, loss = step(params, opt_state, tokens)
        old, new = (params, opt_state), (new_params, new_opt_state)
        assigned = jax.tree.map(lambda v, t: v.assign(t), old, new)
        train = gc.group(*jax.tree.leaves(assigned), name="train")
        loss = gc.identity(loss, name="loss")
    return Model(graph, train, loss)


# -- all forms side by side --------------------------------------------------------------------


def losses_of(form: str, size: Size, steps: int) -> list[float]:
    """The losses of the first steps: of "graphc", "imported", "unrolled" or "scan"."""
    data = batches(size, steps)
    if form in ("graphc", "imported"):
        graph, train, loss = (graphc_model if form == "graphc" else imported_model)(size)
        session = gc.Session(graph, options=gc.CompileOptions(cache=None))
        if form == "graphc":
            for name, value in initial(size).items():
                session.set(name, value)
        return [float(session.run([train, loss], {"text": tokens})[1]) for tokens in data]
    scan = form == "scan"
    params = (stacked if scan else nested)(initial(size), size)
    opt_state = optimizer().init(params)
    step = jax.jit(jax_step(size, scan=scan), donate_argnums=(0, 1))
    found = []
    for tokens in data:
        params, opt_state, loss = step(params, opt_state, tokens)
        found.append(float(loss))
    return found


def check(size: Size = Size(blocks=3), steps: int = 3, tolerance: float = 2e-4) -> None:  # noqa: B008
    """Raises unless all forms give the same losses, up to a relative `tolerance`.

    The tolerance is for float32: the forms add in different orders, and adam's first steps divide
    small gradients by their own size.
    """
    forms = ("unrolled", "scan", "graphc", "imported")
    found = {form: losses_of(form, size, steps) for form in forms}
    for form, losses in found.items():
        np.testing.assert_allclose(losses, found["unrolled"], rtol=tolerance, err_msg=form)
