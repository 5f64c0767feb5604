"""Shape operators on named sizes: types, values for bound sizes, gradients, symbolic export."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from graphc.autodiff.reverse import gradients
from graphc.build.placeholders import placeholder
from graphc.errors import ShapeError
from graphc.ir.dims import symbol
from graphc.ir.graph import Graph
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import FUNCTIONS as ops
from graphc.ops.core.emit import cast
from tests.laws.harness import functional
from tests.near import assert_near

B, T = symbol("batch"), symbol("time")
SIZES = {"batch": 6, "time": 4}

# The call on x: f32[batch, time, 8]; the resulting type; the same call in NumPy.
CASES = {
    "flatten": (lambda x: ops.flatten(x, 1), "f32[batch, 8*time]", lambda x: x.reshape(6, -1)),
    "merge": (
        lambda x: ops.reshape(x, (-1, 8)),
        "f32[batch*time, 8]",
        lambda x: x.reshape(-1, 8),
    ),
    "split": (
        lambda x: ops.reshape(x, (B, T, 2, -1)),
        "f32[batch, time, 2, 4]",
        lambda x: x.reshape(6, 4, 2, 4),
    ),
    "regroup": (
        lambda x: ops.reshape(ops.reshape(x, (2 * B, T, 4)), (B, -1)),
        "f32[batch, 8*time]",
        lambda x: x.reshape(6, -1),
    ),
    "uneven": (
        lambda x: ops.reshape(x, (-1, 16, 2)),
        "f32[floordiv(batch*time, 4), 16, 2]",
        lambda x: x.reshape(-1, 16, 2),
    ),
    "broadcast": (
        lambda x: ops.broadcast_to(x[:, :1], (3, B, T, 8)) * 1.0,
        "f32[3, batch, time, 8]",
        lambda x: np.broadcast_to(x[:, :1], (3, 6, 4, 8)),
    ),
    "filled": (
        lambda x: x + ops.zeros((B, 1, 1)) + cast(ops.arange(T), "float32")[:, None],
        "f32[batch, time, 8]",
        lambda x: x + np.arange(4)[:, None],
    ),
    "concatenate": (
        lambda x: ops.concatenate([x, x[:, :1], x], 1),
        "f32[batch, 2*time + 1, 8]",
        lambda x: np.concatenate([x, x[:, :1], x], 1),
    ),
    "stack": (
        lambda x: ops.stack([x, x], 1),
        "f32[batch, 2, time, 8]",
        lambda x: np.stack([x] * 2, 1),
    ),
    "halves": (
        lambda x: ops.split(x, 2)[1],
        "f32[floordiv(batch, 2), time, 8]",
        lambda x: np.split(x, 2)[1],
    ),
    "rest": (
        lambda x: ops.split(x, [1, -1])[1],
        "f32[batch - 1, time, 8]",
        lambda x: x[1:],
    ),
    "inner": (lambda x: x[1:-1], "f32[batch - 2, time, 8]", lambda x: x[1:-1]),
    "first half": (
        lambda x: x[: x.shape[0] // 2],
        "f32[floordiv(batch, 2), time, 8]",
        lambda x: x[:3],
    ),
    "last": (lambda x: x[-1, 0], "f32[8]", lambda x: x[-1, 0]),
    "every other": (
        lambda x: x[::2, 1::3],
        "f32[floordiv(batch + 1, 2), floordiv(time + 1, 3), 8]",
        lambda x: x[::2, 1::3],
    ),
    "backwards": (lambda x: x[::-1, ::-1], "f32[batch, time, 8]", lambda x: x[::-1, ::-1]),
    "backwards by two": (
        lambda x: x[::-2, -2:0:-1],
        "f32[floordiv(batch + 1, 2), time - 2, 8]",
        lambda x: x[::-2, -2:0:-1],
    ),
    "pad": (
        lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 0))),
        "f32[batch, time + 3, 8]",
        lambda x: np.pad(x, ((0, 0), (1, 2), (0, 0))),
    ),
    "tile": (
        lambda x: ops.tile(x, (2, 1, 1)),
        "f32[2*batch, time, 8]",
        lambda x: np.tile(x, (2, 1, 1)),
    ),
    "take": (lambda x: ops.take(x, [0, -1], 1), "f32[batch, 2, 8]", lambda x: x[:, [0, -1]]),
    "take rows": (lambda x: ops.take(x, [5, 0, 0]), "f32[3, time, 8]", lambda x: x[[5, 0, 0]]),
    "take along": (
        lambda x: ops.take_along_axis(x, ops.zeros((1, T, 1), "int32") + 3, 2),
        "f32[batch, time, 1]",
        lambda x: x[:, :, 3:4],
    ),
    "dense": (
        lambda x: ops.matmul(x, np.arange(16, dtype=np.float32).reshape(8, 2)),
        "f32[batch, time, 2]",
        lambda x: x @ np.arange(16).reshape(8, 2),
    ),
    "scores": (
        lambda x: ops.matmul(x, x, transpose_b=True),
        "f32[batch, time, time]",
        lambda x: x @ x.swapaxes(1, 2),
    ),
    "by one matrix": (
        lambda x: ops.matmul(x, x[0], transpose_b=True),
        "f32[batch, time, time]",
        lambda x: x @ x[0].T,
    ),
    "gram": (
        lambda x: ops.dot_general(x, x, ((0, 1), (0, 1))),
        "f32[8, 8]",
        lambda x: np.einsum("abc,abd->cd", x, x),
    ),
}


@pytest.fixture(scope="module")
def everything():
    """All cases in one graph, and the gradient of a weighted sum of each."""
    graph = Graph()
    with graph:
        x = placeholder((B, T, 8), "float32", name="x")
        results = {name: build(x) for name, (build, _, _) in CASES.items()}
        grads = [gradients(ops.reduce_sum(ops.square(y)), x) for y in results.values()]
    values = np.random.default_rng(0).normal(size=(6, 4, 8)).astype(np.float32)
    return graph, x, results, grads, values


def test_types(everything) -> None:
    _, _, results, _, _ = everything
    assert {k: str(y.type) for k, y in results.items()} == {k: v[1] for k, v in CASES.items()}


def test_values(everything) -> None:
    graph, x, results, _, values = everything
    function = to_function(functional(graph, list(results.values()), [x]), sizes=SIZES)
    for (name, (_, _, oracle)), got in zip(CASES.items(), jax.jit(function)(values), strict=True):
        assert_near(got, oracle(values), rtol=1e-5, atol=1e-5, err_msg=name)


def test_gradients(everything) -> None:
    graph, x, results, grads, values = everything
    found = jax.jit(to_function(functional(graph, grads, [x]), sizes=SIZES))(values)
    forward = to_function(functional(graph, list(results.values()), [x]), sizes=SIZES)
    losses = lambda v: [(y**2).sum() for y in forward(v)]  # noqa: E731
    wanted = jax.jit(jax.jacrev(losses))(values)
    for name, got, expected in zip(CASES, found, wanted, strict=True):
        assert got.shape == x.shape or got.shape == (6, 4, 8)
        assert_near(got, expected, rtol=1e-4, atol=1e-4, err_msg=name)


def test_symbolic_export(everything) -> None:
    graph, x, results, _, values = everything
    b, t = jax.export.symbolic_shape("batch, time", constraints=["batch >= 3", "time >= 3"])
    # JAX does not export what only some sizes allow.
    kept = [name for name in CASES if name not in ("uneven", "halves")]
    program = functional(graph, [results[name] for name in kept], [x])
    function = to_function(program, sizes={"batch": b, "time": t})
    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((b, t, 8), np.float32))
    for name, value in zip(kept, exported.call(values), strict=True):
        wanted = CASES[name][2](values)
        assert_near(value, wanted, rtol=1e-5, atol=1e-5, err_msg=name)


def test_equalities_are_recorded() -> None:
    graph = Graph()
    with graph:
        x = placeholder((B, 3), "float32", name="x")
        ops.reshape(x, (6,))
        assert graph.constraints.find(B) == 2
        y = placeholder(("rows", 4), "float32", name="y")
        ops.reshape(y, (symbol("n"), 2, 2))
        assert graph.constraints.equal(symbol("n"), symbol("rows"))
        z = placeholder(("length",), "float32", name="z")
        ops.reshape(z, (-1, 2))
        half = symbol("length") // 2
        assert graph.constraints.equal(2 * half, symbol("length"))


def test_impossible_sizes() -> None:
    graph = Graph()
    with graph:
        x = placeholder((B, 6), "float32", name="x")
        with pytest.raises(ShapeError, match=r"6\*batch elements do not fit"):
            ops.reshape(x, (B, 5))
        with pytest.raises(ShapeError, match="do not fit"):
            ops.reshape(x, (4,))
        with pytest.raises(ShapeError, match="do not divide"):
            ops.reshape(np.zeros((12,)), (B, -1))
        with pytest.raises(ShapeError, match="not 1"):
            ops.squeeze(x, 0)
        with pytest.raises(ShapeError, match="no known size"):
            ops.unstack(x)
