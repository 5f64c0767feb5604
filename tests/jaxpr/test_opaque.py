"""Primitives that no public JAX function evaluates: they are lowered at import."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental import sparse
from jax.extend.core import Primitive

import graphc as gc
from graphc.errors import GradientError, JaxImportError, LoweringError
from graphc.ir.parse import parse_graph
from graphc.ir.text import print_graph
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.structure import lowered
from tests.near import assert_near

X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


def imported(fn, *values):
    with gc.Graph() as graph:
        xs = [gc.placeholder(v.shape, v.dtype, name=f"x{i}") for i, v in enumerate(values)]
        y = gc.from_jax(fn)(*xs)
    return graph, xs, y


def operators(graph):
    return [node.op.name for node in graph.nodes]


def near(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_near(np.asarray(a), np.asarray(b), 1e-5, 1e-6)


MATRIX = sparse.BCOO.fromdense(X * (X > 0))


def multiplied(data, x):
    a = sparse.BCOO((data, MATRIX.indices), shape=MATRIX.shape)
    return jnp.tanh(a @ x) + sparse.bcoo_reduce_sum(a, axes=(0,)).todense().sum()


def test_sparse_products_and_their_gradients():
    data, x = np.asarray(MATRIX.data), np.ones((3, 2), "float32")
    graph, xs, y = imported(multiplied, data, x)
    assert "Lowered" in operators(graph)
    with graph.extend():
        slopes = gc.gradients(gc.sum(y * y), xs)
    got = gc.Session(graph).run([y, *slopes], dict(zip(xs, (data, x), strict=True)))
    want = jax.grad(lambda d, x: jnp.sum(multiplied(d, x) ** 2), (0, 1))(data, x)
    near(got, [multiplied(data, x), *want])


def test_sparse_products_of_named_sizes():
    with gc.Graph() as graph:
        x = gc.placeholder((3, "columns"), name="x")
        y = gc.from_jax(lambda x: MATRIX @ x)(x)
    session = gc.Session(graph)
    for columns in (2, 5):
        value = np.ones((3, columns), "float32")
        near(session.run(y, {x: value}), MATRIX @ value)


def applied(x, i):
    return x.at[i].apply(jnp.sin) * 2, x.at[0, 1].apply(lambda v: v * v)


def test_apply_at_indices():
    i = np.array([2, 0, 2], "int32")
    graph, xs, ys = imported(applied, X, i)
    near(gc.Session(graph).run(ys, dict(zip(xs, (X, i), strict=True))), applied(jnp.asarray(X), i))
    with graph.extend():
        with pytest.raises(GradientError, match="scatter cannot be built: NotImplementedError"):
            gc.gradients(gc.sum(ys[0]), xs[0])
        gc.gradients(gc.sum(gc.stop_gradient(ys[0]) * xs[0]), xs[0])


def windowed(x):
    def join(a, b):
        return jnp.maximum(a, b) + 0.1 * a

    return jax.lax.reduce_window(x, 0.0, join, (2, 2), (1, 1), "VALID")


def pooled(x):
    def squares(x):
        y = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (1, 1), "VALID")
        return jnp.sum(y**3)

    return jax.jvp(jax.grad(squares), (x,), (x,))[1]


def factored(x):
    call = jax.ffi.ffi_call(
        "lapack_spotrf_ffi",
        (jax.ShapeDtypeStruct((3, 3), "float32"), jax.ShapeDtypeStruct((), "int32")),
    )
    return call(x.T @ x + jnp.eye(3), uplo=np.uint8(ord("L")))


@pytest.mark.parametrize("fn", [windowed, pooled, factored])
def test_windows_with_a_function_second_derivatives_of_pooling_and_foreign_functions(fn):
    graph, (x,), ys = imported(fn, X)
    assert "Lowered" in operators(graph)
    near(gc.Session(graph).run(ys, {x: X}), jax.jit(fn)(X))


def kernel(x_ref, o_ref):
    o_ref[...] = jnp.exp(x_ref[...])


@jax.custom_vjp
def exponential(x):
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out_shape=out, interpret=True)(x)


exponential.defvjp(lambda x: (y := exponential(x), y), lambda y, dy: (y * dy,))


def test_an_interpreted_kernel_and_its_gradient():
    graph, (x,), y = imported(lambda x: exponential(x) * 3, X)
    with graph.extend():
        dx = gc.gradients(gc.sum(y), x)
    near(gc.Session(graph).run([y, dx], {x: X}), [3 * np.exp(X)] * 2)


def test_a_kernel_for_another_platform_is_refused_when_it_is_compiled():
    def fn(x):
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(kernel, out_shape=out)(x)

    graph, (x,), y = imported(fn, X)
    with pytest.raises(gc.errors.GraphcError, match="but runs on cpu") as caught:
        gc.Session(graph).run(y, {x: X})
    assert "test_opaque.py" in str(caught.value)


def by_platform(x):
    """The documented way to have a kernel for one platform and a fallback for others."""

    def own(x):
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(kernel, out_shape=out)(x)

    return lax.platform_dependent(x, tpu=own, rocm=own, default=lambda x: x * jnp.sum(jnp.exp(x)))


def test_a_kernel_for_another_platform_is_skipped_in_the_branch_of_that_platform(tmp_path):
    graph, (x,), y = imported(by_platform, X)
    want = X * np.exp(X).sum()
    for options in (gc.CompileOptions(), gc.CompileOptions(pipeline="O0")):
        near(gc.Session(graph, options=options).run([y], {x: X}), [want])
    path = tmp_path / "kernel.gcx"
    predict = gc.Signature({"x": x}, {"y": y})
    gc.save(gc.Session(graph), path, signatures={"predict": predict}, platforms=["cpu", "cuda"])
    near([gc.load(path).signatures["predict"](x=X)["y"]], [want])
    near([gc.jit(by_platform)(X)], [want])


never = Primitive("never_lowered_for_tests")
never.def_abstract_eval(lambda x: x)


def test_a_primitive_that_cannot_be_lowered_is_refused():
    with pytest.raises(JaxImportError, match="JAX cannot lower it alone: NotImpl") as caught:
        imported(lambda x: never.bind(x), X)
    assert "test_opaque.py" in str(caught.value)


def test_a_text_does_not_run_unchecked_programs(monkeypatch):
    graph, xs, ys = imported(applied, X, np.zeros(1, "int32"))
    text = print_graph(graph)
    monkeypatch.setattr(lowered, "_accepted", set())
    again = parse_graph(text, CATALOGUE, {})
    fetches = [again.node(ys[0].node.name).outputs[0]]
    feeds = {"x0": X, "x1": np.zeros(1, "int32")}
    with pytest.raises(LoweringError, match="was not checked"):
        gc.Session(again, options=gc.CompileOptions(cache=None)).run(fetches, feeds)


def test_a_pickled_graph_runs(monkeypatch):
    graph, xs, y = imported(lambda x: x.at[1].apply(jnp.cos), X)
    data = pickle.dumps(graph)
    monkeypatch.setattr(lowered, "_accepted", set())
    again = pickle.loads(data)
    got = gc.Session(again).run(again.node(y.node.name).outputs[0], {"x0": X})
    near(got, np.concatenate([X[:1], np.cos(X[1:2]), X[2:]]))
