"""The random operators: distributions, streams, and the gradient of dropout."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from graphc.autodiff import gradients
from graphc.build.placeholders import placeholder
from graphc.config import CompileOptions
from graphc.devices.strategy import DataParallel
from graphc.ir.graph import Graph
from graphc.lowering.emit_jax import to_function
from graphc.ops.core.emit import emit
from graphc.ops.draws.dropout import dropout
from graphc.ops.draws.location_scale import normal, truncated_normal, uniform
from graphc.ops.draws.random_draws import RANDOM_NORMAL, bernoulli
from graphc.ops.draws.random_keys import fold_in, random_key
from graphc.runtime.session import Session
from tests.laws.harness import functional
from tests.near import assert_near

KEY = np.array([0, 7], np.uint32)
N = 20_000


def draw(build, count=0, x64=True):
    """The values of `build()` in run number `count` with a fixed root key."""
    graph = Graph(seed=3)
    with graph:
        results = build()
    program = functional(graph, results, [])
    state = {"key": KEY, "counter": np.array(count, np.int32)}
    args = [state[p.name.rpartition("/")[2]] for p in program.ports("state")]
    with jax.enable_x64(x64):
        found = jax.jit(to_function(program))(*args)
    return [np.asarray(v) for v in found[: len(results)]]


def test_distributions() -> None:
    normals, cut, even, whole, coins, uneven = draw(
        lambda: [
            normal((N,), 3.0, 2.0),
            truncated_normal((N,), 1.0, 2.0, "float64"),
            uniform((N,), -1.0, 3.0),
            uniform((N,), -3, 3, "int8"),
            bernoulli(0.25, (N,)),
            bernoulli(np.array([0.0, 1.0, 0.5], np.float32), (N, 3)),
        ]
    )
    near = 5 / np.sqrt(N)  # five standard errors
    assert abs(normals.mean() - 3) < 2 * near and abs(normals.std() - 2) < 2 * near
    assert np.abs(cut - 1).max() <= 4 and abs(cut.mean() - 1) < 2 * near
    assert abs(cut.std() / 2 - 0.8796) < near
    assert even.min() >= -1 and even.max() < 3 and abs(even.mean() - 1) < 2 * near
    assert sorted(set(whole)) == [-3, -2, -1, 0, 1, 2] and whole.dtype == np.int8
    assert coins.dtype == np.bool_ and abs(coins.mean() - 0.25) < near
    assert uneven[:, 0].sum() == 0 and uneven[:, 1].all()
    assert abs(uneven[:, 2].mean() - 0.5) < near


def test_streams() -> None:
    def build():
        return [normal((8,)), normal((8,)), normal((8,), seed=1), normal((8,), seed=1)]

    first, second, same, again = draw(build)
    assert not np.any(np.isclose(first, second))
    assert not np.any(np.isclose(first, same))  # a default seed never equals a user's seed
    np.testing.assert_array_equal(same, again)
    np.testing.assert_array_equal(first, draw(build)[0])
    assert not np.any(np.isclose(first, draw(build, count=1)[0]))
    np.testing.assert_array_equal(first, draw(build, x64=False)[0])


def test_generator_is_pinned() -> None:
    """If these numbers changed, a resumed job would diverge from its first half."""
    key = np.array([1, 2], np.uint32)
    graph = Graph()
    with graph:
        words = placeholder((2,), "uint32")
        results = [
            emit(RANDOM_NORMAL, (words,), shape=(2,)),
            fold_in(words, 3),
            fold_in(words, -1),
        ]
    values = jax.jit(to_function(functional(graph, results, [words])))(key)
    with jax.default_prng_impl("rbg"):  # the user's configuration has no effect
        again = jax.jit(to_function(functional(graph, results, [words])))(key)
    wanted = jax.random.wrap_key_data(key, impl="threefry2x32")
    np.testing.assert_array_equal(values[0], jax.random.normal(wanted, (2,)))
    np.testing.assert_array_equal(values[1], jax.random.key_data(jax.random.fold_in(wanted, 3)))
    assert not np.array_equal(values[1], values[2])
    for a, b in zip(values, again, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rate", [0.1, 0.75])
def test_dropout(rate: float) -> None:
    graph = Graph()
    with graph:
        x = placeholder((N,), "float32")
        y = dropout(x, rate)
        (dx,) = gradients([y], [x])
    program = functional(graph, [y, dx], [x])
    ones = np.full(N, 2, np.float32)
    y_value, slope = jax.jit(to_function(program))(ones, KEY, np.zeros((), np.int32))[:2]
    kept = np.asarray(y_value) != 0
    assert abs(kept.mean() - (1 - rate)) < 5 / np.sqrt(N)
    assert_near(y_value, np.where(kept, 2 / (1 - rate), 0), rtol=1e-6)
    assert_near(slope, np.where(kept, 1 / (1 - rate), 0), rtol=1e-6)


@pytest.mark.parametrize("cut", [True, False])
def test_dropout_on_replicas(cut: bool) -> None:
    """Pieces of a batch get separate masks, whole tensors get one mask; so does the gradient."""
    graph = Graph()
    with graph:
        x = placeholder((4, 50), "float32", name="x", batch_axis=0)
        w = placeholder((4, 50), "float32", name="w", batch_axis=None)
        source = x if cut else w
        dropped = dropout(source, 0.5) * x
        slope = gradients(dropped, source)
    ones = np.ones((4, 50), np.float32)
    options = CompileOptions(max_in_flight=1)
    session = Session(graph, strategy=DataParallel(4), options=options)
    value, adjoint = (np.asarray(v) for v in session.run([dropped, slope], {x: ones, source: ones}))
    assert 0.3 < (value == 0).mean() < 0.7
    assert len({row.tobytes() for row in value}) == 4
    if cut:  # d(y * x) / dx = y + mask / (1 - rate)
        np.testing.assert_array_equal(adjoint, 2 * value)
    else:
        np.testing.assert_array_equal(adjoint, value)


def test_no_dropout_is_the_operand() -> None:
    with Graph() as graph:
        x = placeholder((3,), "float32")
        assert dropout(x, 0) is x
        assert [node.op.name for node in graph.nodes] == ["Placeholder"]


def test_seed_as_operand() -> None:
    graph = Graph()
    with graph:
        seed = placeholder((), "int32")
        key = random_key(seed)
    assert graph.producer(key).inputs == (seed,)
