"""`jax.checkpoint` is a hint to recompute values for the gradient instead of storing them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import graphc as gc
from tests.near import assert_near

WIDTH, ROWS, BLOCKS = 16, 512, 8
# `stack-less` saves the same memory without the hint.
OPTIONS = gc.CompileOptions(cache=None, without_passes=["stack-less"])
RNG = np.random.default_rng(0)
WEIGHTS = [
    tuple(RNG.normal(size=shape).astype("float32") * 0.2 for shape in ((16, 64), (64, 16)))
    for _ in range(BLOCKS)
]
X = RNG.normal(size=(ROWS, WIDTH)).astype("float32")


def block(x, w1, w2):
    return x + jnp.tanh(jnp.sin(x @ w1) * 2) @ w2


def unrolled(wrap, weights, x):
    for w1, w2 in weights:
        x = wrap(block)(x, w1, w2)
    return jnp.mean(x**2)


def scanned(wrap, weights, x):
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *weights)
    body = wrap(lambda x, w: (block(x, *w), None))
    return jnp.mean(lax.scan(body, x, stacked)[0] ** 2)


def compiled(loss, inside):
    """The executable of the gradients with respect to the weights, and their values."""
    with gc.Graph() as graph:
        x = gc.placeholder(X.shape, name="x")
        weights = jax.tree.map(lambda w: gc.placeholder(w.shape), WEIGHTS)
        leaves = jax.tree.leaves(weights)
        if inside:
            slopes = jax.tree.leaves(gc.from_jax(jax.grad(loss))(weights, x))
        else:
            slopes = gc.gradients(gc.from_jax(loss)(weights, x), leaves)
    values = dict(zip([x, *leaves], [X, *jax.tree.leaves(WEIGHTS)], strict=True))
    shapes = {tensor: value.shape for tensor, value in values.items()}
    step = gc.compile(graph, slopes, shapes, options=OPTIONS)
    return step, step(step.init(), values)[0]


@pytest.mark.parametrize("inside", [True, False], ids=["jax.grad", "gc.gradients"])
@pytest.mark.parametrize("blocks", [unrolled, scanned])
def test_it_saves_memory_and_changes_no_value(blocks, inside):
    plain, want = compiled(functools.partial(blocks, lambda f: f), inside)
    wrap = jax.checkpoint
    if blocks is scanned:
        wrap = functools.partial(jax.checkpoint, prevent_cse=False)
    saving, got = compiled(functools.partial(blocks, wrap), inside)
    for a, b in zip(got, want, strict=True):
        assert_near(a, b, 1e-4)
    assert saving.memory()["temporaries"] < 0.6 * plain.memory()["temporaries"]


def named(x):
    return jnp.cos(checkpoint_name(jnp.sin(x @ x), "kept"))


@pytest.mark.parametrize(
    ("policy", "products"),
    [
        (jax.checkpoint_policies.everything_saveable, 3),
        (jax.checkpoint_policies.dots_saveable, 3),
        (jax.checkpoint_policies.nothing_saveable, 4),
    ],
)
def test_policies_say_what_is_computed_again(policy, products):
    """One product forward and two backward; a fourth if the first one is not stored."""
    fn = jax.checkpoint(named, policy=policy)
    with gc.Graph() as graph:
        x = gc.placeholder((4, 4), name="x")
        y = gc.from_jax(fn)(x)
        dx = gc.gradients(gc.sum(y), x)
    step = gc.compile(graph, [y, dx], {x: (4, 4)}, options=gc.CompileOptions(cache=None))
    assert [node.op.name for node in step.program.walk()].count("MatMul") == products
    value = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4)
    got = step(step.init(), {x: value})[0]
    want = named(value), jax.grad(lambda x: jnp.sum(named(x)))(value)
    for a, b in zip(got, want, strict=True):
        assert_near(a, b, 1e-5, 1e-6)


@pytest.mark.slow
def test_a_checkpoint_inside_another_and_second_derivatives():
    @jax.checkpoint
    def outer(x):
        return jnp.sum(jnp.exp(jax.checkpoint(jnp.sin)(x) * x))

    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        first = gc.gradients(gc.from_jax(outer)(x), x)
        second = gc.gradients(gc.sum(first), x)
    value = np.array([0.1, -0.5, 2.0], "float32")
    got = gc.Session(graph).run([first, second], {x: value})
    want = jax.grad(outer)(value), jax.grad(lambda x: jnp.sum(jax.grad(outer)(x)))(value)
    for a, b in zip(got, want, strict=True):
        assert_near(np.asarray(a), np.asarray(b), 1e-5, 1e-6)
