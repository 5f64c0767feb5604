"""The composites of `gc.linalg` compared with NumPy, and functions without a gradient."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.autodiff import gradients
from graphc.build.placeholders import placeholder
from graphc.errors import AttributeValueError, GradientError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops import linalg
from graphc.ops.matrices.vector_products import dot, inner, vdot, vecdot
from graphc.runtime.session import Session
from tests.ops.table import Row, check

RNG = np.random.default_rng(0)


def made(*shape):
    return RNG.standard_normal(shape)


def wavy(*shape):
    return made(*shape) + 1j * made(*shape)


V, M, SQUARE, STACK = made(5), made(4, 3), made(3, 3), made(2, 4, 3)
LOW = made(4, 2) @ made(2, 5)  # of rank 2


def row(function, oracle, inputs, near=1e-8, **options):
    return Row(
        f"{oracle.__name__} {options} {[np.shape(x) for x in inputs]}",
        lambda *xs: function(*xs, **options),
        lambda *xs: oracle(*xs, **options),
        inputs,
        near,
    )


def test_norms() -> None:
    orders = (None, 1, -1, 2, -2, np.inf, -np.inf)
    of_vectors = (0, 3, 0.5)
    of_matrices = ("fro", "nuc")
    norm, true_norm = linalg.norm, np.linalg.norm
    check(
        [
            *[row(norm, true_norm, [V], ord=p) for p in (*orders, *of_vectors)],
            *[row(norm, true_norm, [M], ord=p) for p in (*orders, *of_matrices)],
            *[row(norm, true_norm, [wavy(3, 4)], ord=p) for p in (*orders, *of_matrices)],
            *[row(norm, true_norm, [STACK], ord=p, axis=1) for p in (*orders, *of_vectors)],
            *[row(norm, true_norm, [STACK], ord=p, axis=(2, 0)) for p in (*orders, *of_matrices)],
            row(norm, true_norm, [STACK], axis=(0, 1), ord=1, keepdims=True),
            row(norm, true_norm, [STACK]),
            row(norm, true_norm, [np.arange(4.0)]),
            row(linalg.vector_norm, np.linalg.vector_norm, [STACK], ord=3, axis=(0, 2)),
            row(linalg.vector_norm, np.linalg.vector_norm, [STACK], keepdims=True),
            row(linalg.matrix_norm, np.linalg.matrix_norm, [STACK], ord=2, keepdims=True),
        ]
    )


def test_by_singular_values() -> None:
    check(
        [
            *[
                row(linalg.cond, np.linalg.cond, [SQUARE], p=p)
                for p in (None, 1, 2, -2, "fro", np.inf)
            ],
            row(linalg.cond, np.linalg.cond, [STACK]),
            row(linalg.matrix_rank, np.linalg.matrix_rank, [LOW]),
            row(linalg.matrix_rank, np.linalg.matrix_rank, [np.diag([3.0, 1.0, 0.1])], rtol=0.2),
            row(linalg.matrix_rank, np.linalg.matrix_rank, [STACK]),
        ]
    )


def test_least_squares() -> None:
    def oracle(a, b):
        x, squares, rank, s = np.linalg.lstsq(a, b)
        if not squares.size:  # NumPy returns none for deficient ranks
            squares = np.sum((a @ x - b) ** 2, 0).reshape(b.shape[1:] or (1,))
        return x, squares, rank, s

    cases = [[M, made(4)], [M, made(4, 2)], [LOW, made(4, 2)], [made(2, 4), made(2)]]
    check([row(linalg.lstsq, oracle, case) for case in cases])


def test_products() -> None:
    a, b, c = made(3), made(2, 4, 3), made(2, 3, 5)
    check(
        [
            *[row(dot, np.dot, xs) for xs in ([a, a], [b, a], [a, c], [b, c], [2.0, b])],
            *[row(inner, np.inner, xs) for xs in ([a, a], [b, a], [b, made(6, 3)], [b, 2.0])],
            *[row(vdot, np.vdot, xs) for xs in ([b, made(6, 4)], [wavy(2, 3), wavy(3, 2)])],
            *[row(vecdot, np.vecdot, xs) for xs in ([b, a], [wavy(2, 3), wavy(3)])],
            row(vecdot, np.vecdot, [wavy(3, 2), wavy(3, 1)], axis=0),
            row(linalg.cross, np.linalg.cross, [b, a]),
            row(linalg.cross, np.linalg.cross, [made(3, 2), made(3, 2)], axis=0),
            row(linalg.matrix_transpose, np.linalg.matrix_transpose, [b]),
            *[
                Row("multi_dot", lambda *xs: linalg.multi_dot(xs),
                    lambda *xs: np.linalg.multi_dot(xs), xs)
                for xs in (
                    [made(2, 3), made(3, 4)],
                    [made(9, 2), made(2, 9), made(9, 2), made(2, 3)],
                    [made(2), made(2, 9), made(9, 2), made(2)],
                )
            ],
        ]
    )  # fmt: skip


def test_multi_dot_takes_the_cheapest_order() -> None:
    with Graph() as graph:
        linalg.multi_dot([placeholder((100, 2)), placeholder((2, 100)), placeholder((100, 2))])
        y = linalg.multi_dot([placeholder((None, 2)), placeholder((2, 3)), placeholder((3, 2))])
    sizes = [n.outputs[0].shape for n in graph.nodes if n.op.name == "MatMul"]
    assert sizes[:2] == [(2, 2), (100, 2)]
    assert y.shape[1] == 2


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: linalg.norm(x, 7, axis=(0, 1)), AttributeValueError, "no norm of order 7"),
        (lambda x: linalg.norm(x, "fro", axis=0), AttributeValueError, "no norm of order 'fro'"),
        (lambda x: linalg.norm(x, 2), ShapeError, "must be a vector or a matrix"),
        (lambda x: linalg.norm(x, 2, (0, 1, 2)), AttributeValueError, "one axis or two"),
        (lambda x: linalg.matrix_norm(x[0, 0]), ShapeError, "must be a matrix"),
        (lambda x: linalg.cross(x, x, 0), ShapeError, "a must have 3 elements along axis 0, not 2"),
        (lambda x: linalg.multi_dot([x[0]]), ShapeError, "two or more arrays are needed, got 1"),
        (lambda x: linalg.multi_dot([x[0], x]), ShapeError, "number 1 must be a matrix"),
    ],
)
def test_errors(call, error, words) -> None:
    with Graph():
        x = placeholder((2, 4, 3))
        with pytest.raises(error, match=rf"(?s){words}.*at test_linalg.py:"):
            call(x)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: linalg.qr(a)[0], "QR: there is no gradient of a complete factorization"),
        (lambda a: linalg.svd(a)[1], "SVD: there is no gradient of full_matrices"),
    ],
)
def test_no_gradient(call, words) -> None:
    with Graph():
        a = placeholder((2, 3), "float64")
        y = call(a)
        with pytest.raises(GradientError, match=rf"(?s){words}.*at test_linalg.py:"):
            gradients(y, a)


def test_named_sizes() -> None:
    with Graph():
        a, b = placeholder(("n", "n"), "float64"), placeholder(("k", "n", 2), "float64")
        x = linalg.solve(a, b)
        assert x.shape == b.shape
        assert gradients(x, a).type == a.type
        assert linalg.svd(a)[1].shape == (a.shape[0],)
        assert linalg.matrix_rank(a, 1e-6).dtype == np.int32
        with pytest.raises(ShapeError, match="which a named size leaves open"):
            linalg.svd(b)
        with pytest.raises(ShapeError, match="rtol must be given"):
            linalg.matrix_rank(a)


def test_the_norm_of_zeros_is_flat() -> None:
    with Graph() as graph:
        x = placeholder((2, 3), "float64")
        norms = [linalg.norm(x), linalg.vector_norm(x, 3), linalg.norm(x, np.int64(2), np.int64(1))]
        slopes = [gradients(y, x) for y in norms]
    for slope in Session(graph).run(slopes, {x: np.zeros((2, 3))}):
        np.testing.assert_array_equal(slope, np.zeros((2, 3)))


def test_a_schur_decomposition_has_no_gradient() -> None:
    with Graph():
        a = placeholder((2, 2), name="a")
        with pytest.raises(GradientError, match="no gradient of a Schur decomposition"):
            gradients(linalg.schur(a)[0], a)


def test_lu_solve_of_a_vector_and_of_columns() -> None:
    a, b = SQUARE, made(3, 2)
    check([
        Row("vector", lambda m, v: linalg.lu_solve(linalg.lu_factor(m), v), np.linalg.solve,
            [a, b[:, 0]], 1e-8),
        Row("columns", lambda m, v: linalg.lu_solve(linalg.lu_factor(m), v), np.linalg.solve,
            [a, b], 1e-8),
    ])  # fmt: skip
    with Graph(), pytest.raises(ShapeError, match="takes one matrix of known size"):
        linalg.lu_solve(linalg.lu_factor(placeholder((4, 3, 3))), np.ones(3, np.float32))
