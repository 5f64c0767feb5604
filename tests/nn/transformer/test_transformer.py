"""Attention layers, transformer blocks and position encodings compared with NumPy; decoding."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc import nn
from graphc.errors import AttributeValueError, GraphcError, ShapeError
from tests.near import assert_near

F64 = "float64"
RNG = np.random.default_rng(0)
XS = RNG.normal(size=(2, 5, 8))
SOURCE = RNG.normal(size=(2, 3, 6))


def shaken(session: gc.Session) -> dict[str, np.ndarray]:
    """Sets all variables to nonzero numbers, since zero biases would hide errors."""
    rng = np.random.default_rng(7)
    values = {name: rng.normal(size=v.shape) * 0.5 for name, v in session.values().items()}
    session.set_all(values)
    return values


def dense(p: dict[str, Any], name: str, x: Any) -> Any:
    return x @ p[f"{name}/kernel"] + p[f"{name}/bias"]


def turned(x: np.ndarray, position: int) -> np.ndarray:
    """Rotates one head's query or key: each pair of elements is a complex number."""
    half = len(x) // 2
    angles = position / 10000.0 ** (np.arange(half) / half)
    pairs = (x[:half] + 1j * x[half:]) * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag])


def attended(
    p: dict[str, Any], x: Any, source: Any, heads: int, shared: int, seen: Any, rotary: bool = False
) -> np.ndarray:
    """Computes attention for one query of one head at a time; `seen[b, t, s]` is the mask."""
    q, k, v = dense(p, "query", x), dense(p, "key", source), dense(p, "value", source)
    size = q.shape[-1] // heads
    mixed = np.zeros_like(q)
    for b, t, h in np.ndindex(*q.shape[:2], heads):
        own, other = (slice(i * size, (i + 1) * size) for i in (h, h * shared // heads))
        query, keys = q[b, t, own], k[b, :, other]
        if rotary:
            query = turned(query, t)
            keys = np.stack([turned(key, s) for s, key in enumerate(keys)])
        weights = np.where(seen[b, t], np.exp(keys @ query / np.sqrt(size)), 0)
        mixed[b, t, own] = weights @ v[b, :, other] / weights.sum()
    return dense(p, "out", mixed)


def of_layer(values: dict[str, Any], layer: nn.Layer) -> dict[str, Any]:
    scope = f"{layer.name}/"
    return {n.removeprefix(scope): v for n, v in values.items() if n.startswith(scope)}


def test_attention_of_itself_of_a_source_masked_causal_and_shared() -> None:
    everything = np.ones((2, 5, 5), bool)
    chosen = RNG.random((2, 5, 3)) < 0.7
    chosen[..., 0] = True
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 8), F64, name="x")
        source = gc.placeholder(("batch", "steps", 6), F64, name="source")
        mask = gc.placeholder(("batch", 1, "time", "steps"), "bool", name="mask")
        plain = nn.MultiHeadAttention(8, 2, name="plain", dtype=F64)
        cross = nn.MultiHeadAttention(4, 4, 2, head_size=3, name="cross", dtype=F64)
        turning = nn.MultiHeadAttention(8, 2, 1, causal=True, rotary=True, dtype=F64)
        fetches = [plain(x), cross(x, source, mask), turning(x)]
    assert {n: v.type.shape for n, v in graph.variables.items() if n.startswith("cross")} == {
        "cross/query/kernel": (8, 12),
        "cross/query/bias": (12,),
        "cross/key/kernel": (6, 6),
        "cross/key/bias": (6,),
        "cross/value/kernel": (6, 6),
        "cross/value/bias": (6,),
        "cross/out/kernel": (12, 4),
        "cross/out/bias": (4,),
    }
    session = gc.Session(graph)
    values = shaken(session)
    got = session.run(fetches, {x: XS, source: SOURCE, mask: chosen[:, None]})
    causal = np.tril(everything)
    want = [
        attended(of_layer(values, plain), XS, XS, 2, 2, everything),
        attended(of_layer(values, cross), XS, SOURCE, 4, 2, chosen),
        attended(of_layer(values, turning), XS, XS, 2, 1, causal, rotary=True),
    ]
    for a, b in zip(got, want, strict=True):
        assert_near(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rotary", [False, True])
def test_decoding_with_a_cache_equals_the_full_pass(rotary: bool) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 8), F64, name="x")
        block = nn.TransformerBlock(8, 4, key_heads=2, causal=True, rotary=rotary, dtype=F64)
        whole = block(x)
        start, cache = block.with_cache(x[:, :3], block.empty_cache(x.shape[0], 6))

        def step(cache: Any, x: Any) -> Any:
            y, cache = block.with_cache(gc.expand_dims(x, 1), cache)
            return cache, y[:, 0]

        cache, rest = gc.scan(step, cache, gc.swapaxes(x[:, 3:], 0, 1))
        fetches = [whole, start, gc.swapaxes(rest, 0, 1), cache.length]
    assert set(graph.variables.values()) == set(block.variables)  # all calls share the variables
    assert len(block.variables) == 16
    session = gc.Session(graph)
    shaken(session)
    full, first, others, length = session.run(fetches, {x: XS})
    assert_near(np.concatenate([first, others], 1), full, rtol=1e-9)
    assert length == 5
    longer = session.run(fetches[2], {x: np.concatenate([XS, XS[:, :2]], 1)})
    assert np.isfinite(longer[:, :3]).all() and np.isnan(longer[:, 3]).all()  # 6 positions fit


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def normed(p: dict[str, Any], name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return scaled * p[f"{name}/scale"] + p[f"{name}/offset"]


@pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
def test_block_values(norm_first: bool) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 8), F64, name="x")
        block = nn.TransformerBlock(
            8, 2, 6, causal=True, dropout=0.1, norm_first=norm_first, name="block", dtype=F64
        )
        y = block(x, training=False)
        dropping = block(x, training=True)
    assert dropping.type == y.type
    assert [n.op.name for n in graph.nodes].count("Dropout") == 2  # and one for the weights
    session = gc.Session(graph)
    p = of_layer(shaken(session), block)
    mine = {n.removeprefix("attention/"): v for n, v in p.items()}
    seen = np.tril(np.ones((2, 5, 5), bool))

    def attention(x: Any) -> Any:
        return attended(mine, x, x, 2, 2, seen)

    def network(x: Any) -> Any:
        return dense(p, "contract", gelu(dense(p, "expand", x)))

    if norm_first:
        h = XS + attention(normed(p, "attention_norm", XS))
        want = h + network(normed(p, "network_norm", h))
    else:
        h = normed(p, "attention_norm", XS + attention(XS))
        want = normed(p, "network_norm", h + network(h))
    assert_near(session.run(y, {x: XS}), want, rtol=1e-9, atol=1e-12)


def language_model(strategy: Any = None) -> tuple[list[float], dict[str, Any], np.ndarray]:
    with gc.Graph(seed=2) as graph:
        tokens = gc.placeholder(("batch", 6), "int32", name="tokens")
        model = nn.Sequential(
            [
                nn.Embedding(7, 8, name="words", dtype=F64),
                nn.SinusoidalEncoding(),
                nn.TransformerBlock(8, 2, causal=True, name="block", dtype=F64),
                nn.LayerNorm(name="norm", dtype=F64),
                nn.Dense(7, name="out", dtype=F64),
            ],
            name="model",
        )
        logits = model(tokens[:, :-1])
        losses = nn.sparse_softmax_cross_entropy(logits=logits, labels=tokens[:, 1:])
        loss = gc.reduce_mean(losses)
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
    session = gc.Session(graph, strategy=strategy)
    before = {n.removeprefix("model/"): v for n, v in session.values().items() if "train" not in n}
    feeds = {"tokens": np.random.default_rng(5).integers(0, 7, (4, 6)).astype(np.int32)}
    return [float(session.run([train, loss], feeds)[1]) for _ in range(5)], before, feeds["tokens"]


@pytest.mark.slow
def test_training_equals_hand_written_jax_on_one_device_and_two() -> None:
    got, before, tokens = language_model()
    together, _, _ = language_model(gc.devices.DataParallel(2))
    assert_near(got, together, rtol=1e-9)

    def norm(p: Any, name: str, x: Any) -> Any:
        scaled = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return scaled * p[f"{name}/scale"] + p[f"{name}/offset"]

    def reference(p: Any) -> Any:
        x = p["words/table"][tokens[:, :-1]]
        angles = np.arange(5)[:, None] / 10000.0 ** (np.arange(0, 8, 2) / 8)
        x = x + np.stack([np.sin(angles), np.cos(angles)], -1).reshape(5, 8)
        h = norm(p, "block/attention_norm", x)
        parts = [dense(p, f"block/attention/{n}", h) for n in ("query", "key", "value")]
        q, k, v = (part.reshape(4, 5, 2, 4) for part in parts)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(4, 5, 8)
        x = x + dense(p, "block/attention/out", mixed)
        h = dense(p, "block/expand", norm(p, "block/network_norm", x))
        x = x + dense(p, "block/contract", jax.nn.gelu(h))
        logits = dense(p, "out", norm(p, "norm", x))
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    tx = optax.adam(1e-2)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        loss, grads = jax.value_and_grad(reference)(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    with jax.enable_x64(True):
        params = {k: jnp.asarray(v) for k, v in before.items()}
        state, want = jax.jit(tx.init)(params), []
        for _ in range(5):
            params, state, loss = step(params, state)
            want.append(float(loss))
    assert_near(got, want, rtol=1e-6)


def test_encodings() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((1, "time", 2, 6), F64, name="x")
        y = gc.placeholder((1, "time", 4), "bfloat16", name="y")
        fetches = [
            nn.sinusoidal_encoding([0, 3], 4, base=100.0, dtype=F64),
            nn.rotary_encoding(x),
            nn.rotary_encoding(x, gc.iota((x.shape[1],)) + 2),
            nn.SinusoidalEncoding()(y, start=1) - y,
        ]
    xs = RNG.normal(size=(1, 4, 2, 6))
    ys = np.zeros((1, 4, 4), jnp.bfloat16)
    waves, plain, moved, added = gc.Session(graph).run(fetches, {x: xs, y: ys})
    three = [np.sin(3), np.cos(3), np.sin(0.3), np.cos(0.3)]
    assert_near(waves, [[0, 1, 0, 1], three], rtol=1e-12)
    for t, head in np.ndindex(4, 2):
        assert_near(plain[0, t, head], turned(xs[0, t, head], t), rtol=1e-12)
        assert_near(moved[0, t, head], turned(xs[0, t, head], t + 2), rtol=1e-12)
    assert added.dtype == jnp.bfloat16
    want = [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)]
    assert_near(added[0, 0].astype(np.float32), want, rtol=1e-2)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.MultiHeadAttention(8, 3), AttributeValueError, "heads must divide units"),
        (lambda x: nn.MultiHeadAttention(8, 0), AttributeValueError, "heads must be an int of 1"),
        (lambda x: nn.MultiHeadAttention(8, 4, 3), AttributeValueError, "key_heads must divide"),
        (lambda x: nn.MultiHeadAttention(8, 2, dropout=1.0), AttributeValueError, "dropout must"),
        (lambda x: nn.MultiHeadAttention(8, 2)(x[0]), ShapeError, r"must be \[batch, time, f"),
        (lambda x: nn.MultiHeadAttention(8, 2)(x, x[0]), ShapeError, r"must be \[batch, time, f"),
        (lambda x: nn.MultiHeadAttention(8, 2)(x, mask=x[0] > 0), ShapeError, "two axes may be"),
        (
            lambda x: nn.MultiHeadAttention(8, 2, dropout=0.5)(x),
            AttributeValueError,
            "training must be True, False or a scalar tensor of bool, it is missing",
        ),
        (
            lambda x: nn.MultiHeadAttention(8, 2).with_cache(
                x, nn.MultiHeadAttention(8, 2).empty_cache(2, 9)
            ),
            AttributeValueError, r"(?s)only causal attention .*causal=True",
        ),
        (
            lambda x: nn.MultiHeadAttention(6, 2, rotary=True)(x),
            AttributeValueError, "features must be even and known, got 3",
        ),
        (lambda x: nn.TransformerBlock(0, 2), AttributeValueError, "units must be"),
        (lambda x: nn.TransformerBlock(6, 2)(x), ShapeError, "must have 6 features, like"),
        (lambda x: nn.sinusoidal_encoding([0], 3), AttributeValueError, "even and known, got 3"),
        (lambda x: nn.rotary_encoding(x), ShapeError, r"must be \[batch, time, heads, depth\]"),
        (lambda x: nn.SinusoidalEncoding()(x[0]), ShapeError, r"must be \[batch, time, features"),
    ],
)  # fmt: skip
def test_errors(call, error: type[GraphcError], match: str) -> None:
    with gc.Graph():
        x = gc.placeholder((2, 5, 8), name="x")
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_transformer.py:" in str(info.value)
