"""`gc.jacobian` and `gc.hessian` compared with JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, GradientError, ShapeError
from tests.near import assert_near

X = np.array([0.3, -1.2, 2.0], np.float32)
W = np.random.default_rng(0).normal(size=(3, 2)).astype("float32")


def run(make):
    with gc.Graph() as graph:
        result = make()
    return np.asarray(gc.Session(graph).run(result))


def test_of_a_vector():
    got = run(lambda: gc.jacobian(lambda x: gc.tanh(x @ W), X))
    assert_near(got, np.asarray(jax.jacrev(lambda x: jnp.tanh(x @ W))(X)), 1e-5, 1e-6)


def test_of_a_matrix_by_a_variable_and_other_tensors():
    def make():
        w = gc.variable(W, name="w")
        x = gc.constant(X)
        return gc.jacobian(lambda w: gc.reshape(x, (1, 3)) @ gc.sin(w), w.read())

    want = jax.jacrev(lambda w: X.reshape(1, 3) @ jnp.sin(w))(W)
    got = run(make)
    assert got.shape == (1, 2, 3, 2)
    assert_near(got, np.asarray(want), 1e-5, 1e-6)


def test_of_a_scalar_is_the_gradient():
    assert_near(run(lambda: gc.jacobian(lambda x: (x**2).sum(), X)), 2 * X, 1e-6, 1e-6)


def test_elements_that_do_not_depend_are_zero():
    assert_near(
        run(lambda: gc.jacobian(lambda x: gc.constant([1.0, 2.0]), X)), np.zeros((2, 3)), 0, 0
    )


def test_the_graph_gets_one_loop_and_no_dead_nodes():
    with gc.Graph() as graph:
        gc.jacobian(lambda x: gc.tanh(x) * 2, gc.constant(X))
    ops = [node.op.name for node in graph.nodes]
    assert ops.count("Scan") == 1 and "Tanh" not in ops


def test_hessian():
    got = run(lambda: gc.hessian(lambda x: gc.reduce_sum(gc.sin(x)) * gc.reduce_sum(x**2), X))
    want = jax.hessian(lambda x: jnp.sum(jnp.sin(x)) * jnp.sum(x**2))(X)
    assert_near(got, np.asarray(want), 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda x: gc.jacobian(x, x), AttributeValueError, "must be a function of a tensor"),
        (lambda x: gc.hessian(x, x), AttributeValueError, "must be a function of a tensor"),
        (lambda x: gc.hessian(gc.sin, X), ShapeError, "f must give a scalar, got f32.3."),
        (lambda x: gc.hessian(gc.sum, x), ShapeError, "hessian: the sizes of x must be known"),
        (
            lambda x: gc.jacobian(gc.variable(X, name="v").assign_add, X),
            GradientError,
            "f assigns 'v', and would do so once for each row",
        ),
        (lambda x: gc.jacobian(gc.sin, x), ShapeError, "sizes of x must be known, got f32.x_0."),
        (lambda x: gc.jacobian(gc.negative, [1, 2]), GradientError, "int32"),
    ],
)
def test_errors(make, error, match):
    with gc.Graph():
        x = gc.placeholder((None,), name="x")
        with pytest.raises(error, match=match) as caught:
            make(x)
        assert "test_jacobians.py" in str(caught.value)
