"""TensorFlow's names for NumPy functions, and functions that NumPy lacks."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import (
    ArgumentError,
    AttributeValueError,
    DTypeError,
    ExecutionError,
    ShapeError,
)
from tests import near

A = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
B = np.array([[3.0, 4.0], [0.3, 0.4]], np.float32)


def value(make):
    with gc.Graph() as graph:
        result = make()
    return np.asarray(gc.Session(graph).run(result))


def assert_near(got, want):
    near.assert_near(np.asarray(got), np.asarray(want), 1e-6, 1e-6)


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
        (  # 9998, the number of the cell, does not fit int8
            lambda: gc.confusion_matrix(np.int8([99]), np.int8([98]), 100)[99, 98],
            1,
        ),
        (lambda: gc.confusion_matrix(np.int32([-1, 0]), np.int32([0, 0]), 2), [[1, 0], [0, 0]]),
        (lambda: gc.add_n(t for t in (A, A)), 2 * A),
        (lambda: gc.global_norm([A * 1e4, B * 1e4]), 1e4 * np.sqrt((A**2).sum() + (B**2).sum())),
        (lambda: gc.clip_by_norm(np.float16([300, 400]), 5.0), [3, 4]),
        (lambda: gc.clip_by_norm(np.complex64([3j, 4]), 1.0), [0.6j, 0.8]),
        (lambda: gc.range(0.0, 1.0, 0.25), np.arange(0, 1, 0.25)),
        (lambda: gc.boolean_mask(A, A[:, 0] > -5, 3), [*A[1:], np.zeros(4)]),
        (
            lambda: gc.stack(gc.dynamic_partition(A, [1, 0, 1], 2, 2)),
            [[A[1], np.zeros(4)], [A[0], A[2]]],
        ),
        (lambda: gc.dynamic_stitch([[2, 0], [1]], [A[:2], A[2:]], 3), A[[1, 2, 0]]),
        (lambda: gc.dynamic_stitch([0, [0, 1]], [A[0], A[1:]], 3), [A[1], A[2], np.zeros(4)]),
        (
            lambda: gc.reverse_sequence(A, [0, 2, 4]),
            [A[0], [A[1, 1], A[1, 0], A[1, 2], A[1, 3]], A[2, ::-1]],
        ),
        (lambda: gc.reverse_sequence(A.T, [0, 2, 4], axis=0, batch_axis=1).T[2], A[2, ::-1]),
        (lambda: gc.cumsum(A, 1, exclusive=True), np.cumsum(A, 1) - A),
        (
            lambda: gc.cumsum(A, 0, exclusive=True, reverse=True),
            np.cumsum(A[::-1], 0)[::-1] - A,
        ),
        (lambda: gc.cumprod(A, 1, exclusive=True)[:, 1:], np.cumprod(A, 1)[:, :-1]),
        (lambda: gc.cumprod(A, 1, exclusive=True)[:, 0], np.ones(3)),
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


def test_gradients_of_norms_at_zero():
    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        clipped = gc.gradients(gc.clip_by_norm(x, 0.5), x)
        norm = gc.gradients(gc.global_norm([x, 2 * x]), x)
    found = gc.Session(graph).run([clipped, norm], {x: np.zeros(3, "f")})
    assert_near(found[0], np.ones(3))  # no value is clipped
    assert_near(found[1], np.zeros(3))


def test_clipping_zeros_divides_by_nothing():
    with gc.Graph() as graph:
        clipped = gc.clip_by_norm(gc.placeholder((3,), name="x"), 0.5)
    session = gc.Session(graph, options=gc.CompileOptions(check_numerics=True))
    assert_near(session.run(clipped, {"x": np.zeros(3, "f")}), np.zeros(3))


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
        (lambda: gc.add_n(3), AttributeValueError, "takes a list of at least one tensor, got 3"),
        (lambda: gc.global_norm([]), AttributeValueError, "global_norm: takes a list"),
        (lambda: gc.global_norm(gc.constant(A)), AttributeValueError, "gc.linalg.norm"),
        (lambda: gc.confusion_matrix([0], [0], 0), AttributeValueError, "at least 1, got 0"),
        (lambda: gc.confusion_matrix([0, 1], [0], 2), ShapeError, "predictions must have the sha"),
        (lambda: gc.confusion_matrix([0], [0], 2, [1.0, 2]), ShapeError, "weights must have"),
        (lambda: gc.confusion_matrix([0.0], [0], 2), DTypeError, "labels must be integers"),
        (lambda: gc.case({}, lambda: 1), AttributeValueError, "takes a list of pairs"),
        (lambda: gc.case([True], lambda: 1), AttributeValueError, "takes a list of pairs"),
        (lambda: gc.boolean_mask(A, A > 0), ArgumentError, "missing a required argument: 'size'"),
        (lambda: gc.dynamic_partition(A, [0, 1, 0], 0, 3), AttributeValueError, "count must be"),
        (lambda: gc.dynamic_stitch([], [], 3), AttributeValueError, "equal numbers of data and"),
        (lambda: gc.dynamic_stitch([[0, 1]], [A], 3), ShapeError, "the shape of the indices"),
        (lambda: gc.reverse_sequence(A, [1, 2]), ShapeError, "one length for each example"),
        (lambda: gc.reverse_sequence(A, [1, 2, 3], 0), AttributeValueError, "must differ"),
    ],
)
def test_errors(make, error, match):
    with gc.Graph(), pytest.raises(error, match=match) as caught:
        make()
    assert "test_other_names.py" in str(caught.value)


@pytest.mark.parametrize(
    ("axis", "batch_dims", "shape"),
    [(None, 1, (2, 2)), (2, 1, (2, 3)), (-1, 2, (2, 3, 1)), (2, 2, (2, 3))],
)
def test_gather_with_batch_dims_is_that_of_tensorflow(axis, batch_dims, shape):
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    indices = np.random.default_rng(0).integers(0, 3, shape).astype("int32")
    place = batch_dims if axis is None else axis % 3
    want = np.empty(x.shape[:place] + shape[batch_dims:] + x.shape[place + 1 :], "float32")
    for example in np.ndindex(*x.shape[:batch_dims]):
        want[example] = np.take(x[example], indices[example], place - batch_dims)
    assert_near(value(lambda: gc.gather(x, indices, axis, batch_dims)), want)


def test_gather_with_batch_dims_takes_named_sizes():
    with gc.Graph() as graph:
        x = gc.placeholder((None, None, 2), name="x")
        last = gc.placeholder((None,), "int32", name="last")
        y = gc.gather(x, last, axis=1, batch_dims=1)
    fed = np.arange(12, dtype="float32").reshape(2, 3, 2)
    got = np.asarray(gc.Session(graph).run(y, {x: fed, last: [2, 0]}))
    assert_near(got, fed[[0, 1], [2, 0]])
    with graph.extend(), pytest.raises(AttributeValueError, match="batch_dims=2"):
        gc.gather(x, last, axis=1, batch_dims=2)


def test_assert_fails_the_run_and_shows_the_data():
    with gc.Graph() as graph:
        x = gc.placeholder((None,), name="x")
        count = gc.variable(0, name="count")
        check = gc.Assert(x > 0, ["of", x, "the sum is", gc.sum(x)], name="positive")
        with gc.control_dependencies([check]):
            bump = count.assign_add(1)
    session = gc.Session(graph)
    session.run(bump, {x: [1.0, 2.0]})
    with pytest.raises(ExecutionError, match="Assert 'positive': the condition is false") as caught:
        session.run(bump, {x: [1.0, -2.0]})
    assert "  of\n  [ 1. -2.]\n  the sum is\n  -1." in str(caught.value)
    assert "test_other_names.py" in str(caught.value)
    assert session.get("count") == 1  # a run that fails changes nothing
    session.run(bump, {x: [3.0]})
    assert session.get("count") == 2


def test_a_placeholder_with_a_default_need_not_be_fed():
    with gc.Graph() as graph:
        rate = gc.placeholder_with_default(0.5, (), name="rate")
        y = rate * 2.0
    session = gc.Session(graph)
    assert session.run(y) == 1.0
    assert session.run(y, {rate: 3.0}) == 6.0
    assert session.run(y, {"rate": 4.0}) == 8.0
    with graph.extend(), pytest.raises(ShapeError, match="does not have the shape"):
        gc.placeholder_with_default([1.0, 2.0], (3,))
