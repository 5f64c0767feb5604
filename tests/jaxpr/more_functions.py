"""More rows: loops, random numbers, sorting, bits, and gradients of windows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from tests.jaxpr.functions import INTS, PLACES, of, row

KEY = np.array([3, 42], np.uint32)
KEYS = np.array([[0, 42], [7, 1], [9, 9]], np.uint32)
WORDS = np.array([[1, 2**31, 77], [2**32 - 1, 5, 0]], np.uint32)
NEAR = np.array([0.0, 1.0, -1.0, 2.5, -1e-30, np.inf, -np.inf, np.nan])


def cell(carry: Any, x: Any) -> Any:
    h = jnp.tanh(carry["h"] * 0.5 + x["in"])
    return {"h": h, "count": carry["count"] + 1}, (h * x["gate"], carry["count"])


def recurrent(x: Any, y: Any) -> Any:
    return lax.scan(cell, {"h": y, "count": 0}, {"in": x, "gate": x[:, :1]})


def layers(x: Any, w: Any) -> Any:
    """A scan over stacked weights, with dropout in each layer and a rematerialized body."""

    @jax.checkpoint
    def layer(carry: Any, w: Any) -> Any:
        h, key = carry
        key, own = jax.random.split(key)
        kept = jax.random.bernoulli(own, 0.7, h.shape)
        return (jnp.where(kept, jax.nn.silu(h @ w), 0.0), key), None

    return lax.scan(layer, (x, jnp.asarray(KEY)), w)[0][0]


LOOPS = [
    of("scan", recurrent, (5, 3), (3,)),
    row("scan backwards",
        lambda x: lax.scan(lambda c, a: (c * a, c), x[0], x, reverse=True), (4, 3)),
    row("scan of a length", lambda x: lax.scan(lambda c, _: (c * 1.1, c), x, length=3), (2,)),
    row("scan with constants", lambda x, w: lax.scan(
        lambda c, a: (jnp.sin(c @ w + a * jnp.arange(3)), None), x[0], x)[0], (4, 3), (3, 3)),
    row("a loop in a loop", lambda x: lax.scan(
        lambda c, a: lax.scan(lambda d, b: (d * b + a.sum(), d), c, a), 0.3, x), (4, 3)),
    row("fori_loop", lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.cos(c) + i, x), (4, 3)),
    row("an index in a loop",
        lambda x: lax.fori_loop(0, 3, lambda i, c: c + lax.dynamic_slice(x, (i, i), (2, 1)).sum(),
                                0.0), (5, 4)),
    row("gradient of a scan", jax.grad(lambda w, x: jnp.sum(layers(x, w) ** 2)), (4, 3, 3), (5, 3),
        gradient=False),
    row("scan over layers", layers, (5, 3), (4, 3, 3)),
    row("map", lambda x: lax.map(jnp.sin, x), (4, 3)),
    row("associative_scan", lambda x: lax.associative_scan(jnp.multiply, x), (5, 2)),
    of("cond", lambda x: lax.cond(np.bool_(True), jnp.sin, jnp.cos, x)),
    row("nothing carried", lambda x: lax.scan(lambda c, a: (c, a * 2), (), x)[1], (4, 3)),
]  # fmt: skip


def draw(label: str, fn: Any, *arrays: Any, **options: Any) -> Any:
    """A row for a function of a key; one argument has 64 bits, since defaults are else narrower."""
    arrays = arrays or (KEY,)
    count = len(arrays)
    return row(label, lambda *a: fn(*a[:count]), *arrays, (1,), gradient=False, **options)


RANDOM = [
    draw("random_bits", lambda k: (jax.random.bits(k, (4, 3)), jax.random.bits(k, (), "uint8")),
         primitives=("random_bits",)),
    draw("random_seed", lambda k: (jax.random.key_data(jax.random.key(7)), jax.random.PRNGKey(-3)),
         primitives=("random_seed", "random_unwrap")),
    draw("a seed of 64 bits", lambda s: jax.random.PRNGKey(s[0]), np.array([2**40 + 5])),
    draw("a seed of 32 bits", lambda s: jax.random.PRNGKey(s[0]), np.array([-9], np.int32)),
    draw("random_split", lambda k: (jax.random.split(k), jax.random.split(k, (2, 3))),
         primitives=("random_split", "random_wrap")),
    draw("random_fold_in", lambda k: jax.random.fold_in(k, 77), primitives=("random_fold_in",)),
    draw("fold_in of many", jax.vmap(jax.random.fold_in, (None, 0)), KEY,
         np.arange(5, dtype=np.uint32)),
    draw("random_clone", lambda k: jax.random.key_data(
        jax.random.clone(jax.random.wrap_key_data(k))), primitives=("random_clone",)),
    *[
        draw(f"random.{name}", fn)
        for name, fn in {
            "uniform": lambda k: (jax.random.uniform(k, (4, 3), jnp.float32, -1, 2),
                                  jax.random.uniform(k, (4,))),
            "normal": lambda k: (jax.random.normal(k, (4,)), jax.random.normal(k, (3,), "float32")),
            "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (7,)),
            "randint": lambda k: (jax.random.randint(k, (9,), -5, 17),
                                  jax.random.randint(k, (9,), 0, 5, "int32")),
            "categorical": lambda k: jax.random.categorical(k, jnp.log(jnp.arange(1.0, 5))),
            "permutation": lambda k: jax.random.permutation(k, 9),
            "choice": lambda k: jax.random.choice(k, 9, (3,), replace=False),
            "truncated_normal": lambda k: jax.random.truncated_normal(k, -1, 1, (4,)),
            "exponential": lambda k: jax.random.exponential(k, (4,)),
            "gumbel": lambda k: jax.random.gumbel(k, (4,)),
            "half": lambda k: jax.random.uniform(k, (4,), jnp.bfloat16).astype(jnp.float32),
        }.items()
    ],
    row("each with its own key", jax.vmap(lambda k, x: jax.random.normal(k, (2,)) * x), KEYS, (3,)),
    draw("keys picked", lambda k: [jax.random.key_data(key) for key in picked(k)]),
    row("keys over a loop", lambda k, x: lax.scan(
        lambda c, both: (c + jax.random.uniform(both[0]) * both[1], None),
        0.0, (jax.random.split(jax.random.wrap_key_data(k), 4), x))[0], KEY, (4,)),
    row("dropout", lambda x, k: jnp.where(
        jax.random.bernoulli(k, 0.6, x.shape), x / 0.6, 0), (4, 3), KEY),
]  # fmt: skip


def picked(words: Any) -> Any:
    """Indexes keys in all possible ways."""
    keys = jax.random.split(jax.random.wrap_key_data(words), (2, 3))
    i = words[0].astype(int) - 2
    return [
        keys[1, 2],
        keys[i, 0],
        jnp.concatenate([keys[0], keys[1, 1:2]])[3],
        jnp.where(words[0] > 5, keys[0, 0], keys[1, 1]),
        jnp.broadcast_to(keys.T[:, None], (3, 4, 2)).reshape(-1)[7],
    ]


ORDER = [
    of("sort", lambda x: (jnp.sort(x), jnp.sort(x, 0))),
    row("argsort", lambda x: (jnp.argsort(x, 0), jnp.argsort(-x)), (4, 3), gradient=False),
    row("sort two", lambda x, y: lax.sort((x, y), num_keys=2, dimension=0), (4, 3), (4, 3)),
    row("median", lambda x: (jnp.median(x), jnp.quantile(x, 0.3, axis=0)), (5, 3)),
    of("top_k", lambda x: lax.top_k(x, 2)),
    of("approx_top_k", lambda x: (lax.approx_max_k(x, 2), lax.approx_min_k(x, 1, 0))),
    of("ragged_dot_general", lambda x, w: jax.grad(
        lambda x, w: jnp.sin(lax.ragged_dot(x, w, np.array([2, 0, 1]))).sum(), (0, 1))(x, w),
        (4, 2), (3, 2, 3), gradient=False),
    row("top_k along the first", lambda x: jax.vmap(lambda a: lax.top_k(a, 2), 1, 1)(x), (4, 3)),
]  # fmt: skip

BITS = [
    of("shift_left", lambda i, j: i << j, INTS, abs(INTS) % 5, gradient=False),
    of("shift_right_arithmetic", lambda i, w: (i >> 1, lax.shift_right_arithmetic(w, w % 5)), INTS,
       WORDS, gradient=False),
    of("shift_right_logical", lambda i, w: (lax.shift_right_logical(i, jnp.abs(i)), w >> 3), INTS,
       WORDS, gradient=False),
    of("bitcast_convert_type", lambda w: lax.bitcast_convert_type(w, jnp.float32) > 0, WORDS,
       gradient=False),
    of("nextafter", jnp.nextafter, NEAR[:, None], NEAR, gradient=False),
    of("device_put", lambda x: jax.device_put(x) * 2),
]  # fmt: skip


def window(reduce: Any, start: float, *options: Any, **more: Any) -> Any:
    """The gradient of a weighted sum of windows."""

    def total(x: Any) -> Any:
        y = lax.reduce_window(x, start, reduce, *options, **more)
        return jnp.sum(y * jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))

    return jax.grad(total)


SPACE = (1, 3, 2, 1), (1, 2, 1, 1), "SAME"
GRADIENTS = [
    of("select_and_scatter_add", window(lax.max, -jnp.inf, *SPACE), (2, 6, 5, 3), gradient=False),
    row("gradient of the smallest", window(lax.min, jnp.inf, *SPACE), (2, 6, 5, 3), gradient=False),
    row("gradient of a mean over windows", window(lax.add, 0.0, *SPACE), (2, 6, 5, 3)),
    row("gradient of windows apart", window(lax.add, 0.0, (2, 2), (3, 3), "VALID"), (8, 9)),
    row("gradient of windows far apart", window(lax.add, 0.0, (1, 2), (1, 4), "VALID"), (3, 9)),
    row(
        "gradient of a grouped kernel",
        jax.grad(
            lambda w, x: jnp.sum(
                jnp.sin(
                    lax.conv_general_dilated(
                        x, w, (2, 1), "SAME", feature_group_count=3,
                        dimension_numbers=("NHWC", "HWIO", "NHWC"),
                    )
                )
            ),
            (0, 1),
        ),
        (3, 2, 1, 6),
        (2, 6, 5, 3),
    ),
    row(
        "gradient of indexing",
        jax.grad(lambda x: jnp.sum(jnp.sin(x[PLACES]) * x[PLACES[0], PLACES[1] % 3])),
        (4, 3),
    ),
]  # fmt: skip

MORE = (*LOOPS, *RANDOM, *ORDER, *BITS, *GRADIENTS)
