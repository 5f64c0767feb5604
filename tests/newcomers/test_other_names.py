"""TensorFlow's names for functions of NumPy, and functions that NumPy lacks."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, ShapeError
from tests import near

A = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
B = np.array([[3.0, 4.0], [0.3, 0.4]], np.float32)


def value(make):
    with gc.Graph() as graph:
        result = make()
    return np.asarray(gc.Session(graph).run(result))


def assert_near(got, want):
    near.assert_near(got, np.asarray(want), 1e-6, 1e-6)


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda: gc.gather(A, [2, 0]), A[[2, 0]]),
        (lambda: gc.gather(A, [1], axis=1), A[:, [1]]),
        (lambda: gc.clip_by_value(A, -1, 2), A.clip(-1, 2)),
        (lambda: gc.fill((2, 3), 7), np.full((2, 3), 7)),
        (lambda: gc.range(4), np.arange(4)),
        (lambda: gc.range(1, 9, 3), np.arange(1, 9, 3)),
        (lambda: gc.add_n([A, A, A]), 3 * A),
        (lambda: gc.add_n([A]), A),
        (lambda: gc.squared_difference(A, 2), (A - 2) ** 2),
        (lambda: gc.global_norm([B[0], B[1]]), np.sqrt((B**2).sum())),
        (lambda: gc.clip_by_norm(B, 1.0, axis=1), [[0.6, 0.8], [0.3, 0.4]]),
        (lambda: gc.clip_by_norm(B[0], 1.0), [0.6, 0.8]),
        (lambda: gc.matrix_band_part(A, 0, -1), np.triu(A)),
        (lambda: gc.matrix_band_part(A, -1, 0), np.tril(A)),
        (lambda: gc.matrix_band_part(A, -1, -1), A),
        (lambda: gc.matrix_band_part(A, 1, 1), np.triu(np.tril(A, 1), -1)),
        (
            lambda: gc.confusion_matrix([0, 1, 2, 2, 5], [0, 2, 2, 2, 0], 3),
            [[1, 0, 0], [0, 0, 1], [0, 0, 2]],
        ),
        (
            lambda: gc.confusion_matrix([0, 1], [0, 0], 2, np.array([0.5, 2], "f")),
            [[0.5, 0], [2, 0]],
        ),
    ],
)
def test_values(make, want):
    assert_near(value(make), want)


@pytest.mark.parametrize(("number", "want"), [(0, 10.0), (1, 20.0), (2, 30.0)])
def test_case_takes_the_first_true_condition(number, want):
    with gc.Graph() as graph:
        x = gc.placeholder((), "int32", name="x")
        pairs = [(x == 0, lambda: gc.constant(10.0)), (x < 2, lambda: gc.constant(20.0))]
        y = gc.case(pairs, lambda: gc.constant(30.0))
    assert gc.Session(graph).run(y, {x: number}) == want


def test_the_gradient_of_clip_by_norm_at_zero():
    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        slope = gc.gradients(gc.clip_by_norm(x, 1.0), x)
    assert_near(gc.Session(graph).run(slope, {x: np.zeros(3, "f")}), np.ones(3))


def test_unknown_sizes():
    with gc.Graph() as graph:
        x = gc.placeholder((None, None), name="x")
        band = gc.matrix_band_part(x, 0, 0)
    assert_near(gc.Session(graph).run(band, {x: A}), np.triu(np.tril(A)))


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: gc.add_n([]), AttributeValueError, "takes a list of at least one tensor"),
        (lambda: gc.add_n(gc.constant(A)), AttributeValueError, "gc.sum adds the elements"),
        (lambda: gc.matrix_band_part(A[0], 0, 0), ShapeError, "at least two axes, got f32.4."),
        (lambda: gc.matrix_band_part(A, 0.5, 0), AttributeValueError, "below must be an int"),
        (lambda: gc.confusion_matrix([0], [0], 0), AttributeValueError, "at least 1, got 0"),
    ],
)
def test_errors(make, error, match):
    with gc.Graph(), pytest.raises(error, match=match):
        make()
