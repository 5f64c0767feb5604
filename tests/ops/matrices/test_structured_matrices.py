"""Matrices made of vectors, and matrix equations, compared with SciPy and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import graphc as gc
from graphc.build.placeholders import placeholder
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops import linalg
from tests.near import assert_near
from tests.ops.table import Row, check

RNG = np.random.default_rng(0)
C, R, M = RNG.normal(size=4), RNG.normal(size=3), RNG.normal(size=(2, 3))
Z = C + 1j


def test_structured() -> None:
    sl = scipy.linalg
    check(
        [
            Row("toeplitz", linalg.toeplitz, sl.toeplitz, [C]),
            Row("toeplitz of two", linalg.toeplitz, sl.toeplitz, [C, R]),
            Row("toeplitz, complex", linalg.toeplitz, sl.toeplitz, [Z]),
            Row("toeplitz, stack", linalg.toeplitz, lambda m: np.stack(list(map(sl.toeplitz, m))),
                [M]),
            Row("circulant", linalg.circulant, sl.circulant, [C]),
            Row("hankel", linalg.hankel, sl.hankel, [C]),
            Row("hankel of two", linalg.hankel, sl.hankel, [C, R]),
            Row("hilbert", lambda: linalg.hilbert(3, "float64"), lambda: sl.hilbert(3), []),
            Row("hadamard", lambda: linalg.hadamard(4), lambda: sl.hadamard(4), []),
            Row("block_diag", linalg.block_diag, sl.block_diag, [M, R, np.array(2.0)]),
            Row("khatri_rao", linalg.khatri_rao, sl.khatri_rao, [M, RNG.normal(size=(4, 3))]),
        ]
    )  # fmt: skip


def test_tensor_equations() -> None:
    a, b = RNG.normal(size=(2, 3, 6)), RNG.normal(size=(2, 3))
    moved = np.moveaxis(RNG.normal(size=(2, 3, 3, 2)), 2, 0)
    near = 1e-8
    check(
        [
            Row("tensorsolve", linalg.tensorsolve, np.linalg.tensorsolve, [a, b], near),
            Row("axes", lambda a, b: linalg.tensorsolve(a, b, (0,)),
                lambda a, b: np.linalg.tensorsolve(a, b, (0,)), [moved, b], near),
            Row("tensorinv", linalg.tensorinv, np.linalg.tensorinv, [a], near),
            Row("tensorinv of one", lambda a: linalg.tensorinv(a, 1),
                lambda a: np.linalg.tensorinv(a, 1), [RNG.normal(size=(6, 3, 2))], near),
        ]
    )  # fmt: skip


def test_named_sizes() -> None:
    with Graph():
        c = placeholder(("n",))
        assert linalg.toeplitz(c).shape == (c.shape[0], c.shape[0])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: linalg.toeplitz(x[0, 0]), ShapeError, "c must be a vector"),
        (lambda x: linalg.hadamard(3), AttributeValueError, "n must be a power of 2, got 3"),
        (lambda x: linalg.hilbert(0), AttributeValueError, "n must be a positive int"),
        (lambda x: linalg.block_diag(x, [[[1.0]]]), ShapeError, "block 1 must be a matrix"),
        (lambda x: linalg.block_diag(), AttributeValueError, "one or more"),
        (lambda x: linalg.khatri_rao(x, x[0]), ShapeError, "must be matrices"),
        (lambda x: linalg.khatri_rao(x, x[:, :2]), ShapeError, "same number of columns"),
        (lambda x: linalg.tensorsolve(x, x), ShapeError, "as many numbers again"),
        (lambda x: linalg.tensorinv(x, 1), ShapeError, "as many elements as the others"),
        (lambda x: linalg.tensorinv(x, 0), AttributeValueError, "ind must be a positive int"),
    ],
)
def test_errors(call, error, words) -> None:
    with Graph():
        x = placeholder((2, 3))
        with pytest.raises(error, match=rf"(?s){words}.*at test_structured_matrices.py:"):
            call(x)


def test_matrices_of_any_size_of_numbers() -> None:
    """Bisection squares the numbers, and Sylvester's equation has a limit for what counts as 0."""
    d, e = np.float32([1, 2, 1]), np.float32([1, 1])
    jordan = np.array([[2.0, 1.0], [0.0, 2.0]])
    with gc.Graph() as graph:
        sizes = [np.float32(s) for s in (1e-25, 1.0, 1e20)]
        w = [gc.linalg.eigh_tridiagonal(d * s, e * s) for s in sizes]
        small = gc.linalg.solve_sylvester(jordan * 1e-12, jordan * 1e-12, np.eye(2))
        apart = gc.linalg.solve_sylvester(*[np.diag([1.0, 1e-9])] * 2, np.ones((2, 2)))
    *found, small, apart = (np.asarray(v) for v in gc.Session(graph).run([*w, small, apart]))
    for values, size in zip(found, sizes, strict=True):
        assert_near(values / size, [0, 1, 3], rtol=1e-7, atol=1e-6)
    assert_near(jordan @ small + small @ jordan, np.eye(2) * 1e12, rtol=1e-7, atol=1e-2)
    assert_near(apart, [[0.5, 1.0], [1.0, 5e8]], rtol=1e-6)


def test_the_gradient_of_a_polar_factor_of_a_nearly_singular_matrix() -> None:
    rng = np.random.default_rng(0)
    left, right, weight = (np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(3))
    a = (left @ np.diag([1.0, 0.5, 1e-6]) @ right).astype(np.float32)
    with gc.Graph() as graph:
        x = gc.placeholder((3, 3), name="x")
        (slope,) = gc.gradients(gc.sum(gc.linalg.polar(x)[0] * weight.astype(np.float32)), [x])
    w, s, vh = np.linalg.svd(a.astype(np.float64))
    turned = w.T @ weight @ vh.T
    wanted = w @ ((turned - turned.T) / (s[:, None] + s)) @ vh
    assert_near(gc.Session(graph).run(slope, {x: a}), wanted, rtol=1e-7, atol=1e-4)


def test_groups_of_rows_counted_in_bytes() -> None:
    a = np.ones((200, 2), np.float32)
    b = np.arange(1.0, 7.0, dtype=np.float32).reshape(3, 2, 1)
    with gc.Graph() as graph:
        x = gc.placeholder(b.shape, name="b")
        y = gc.ragged_dot(a, x, np.int8([100, 60, 40]))
        (slope,) = gc.gradients(gc.sum(y), [x])
    y, slope = gc.Session(graph).run([y, slope], {x: b})
    np.testing.assert_array_equal(np.ravel(y), np.repeat([3, 7, 11], [100, 60, 40]))
    np.testing.assert_array_equal(np.ravel(slope), np.repeat([100, 60, 40], 2))
