"""Named sizes are solved from the feeds, checked and required."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import FeedError, ShapeError


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.fixture
def graph():
    with gc.Graph() as g:
        yield g


def test_a_size_that_was_found_to_be_another_plus_one(graph) -> None:
    x, y = gc.placeholder(("n",), name="x"), gc.placeholder(("k",), name="y")
    joined, doubled = gc.concatenate([y, ones(1)], axis=0) + x, x * 2
    session = gc.Session(graph)
    assert session.run(joined, {x: ones(3), y: ones(2)}).shape == (3,)
    assert session.run(doubled, {x: ones(5)}).shape == (5,), "y is not fed, x alone decides k"
    with pytest.raises(FeedError, match="got shape"):
        session.run(doubled, {x: ones(0)})


def test_a_size_that_was_found_to_be_twice_another(graph) -> None:
    x, y = gc.placeholder(("n",), name="x"), gc.placeholder(("k", 2), name="y")
    _, doubled = x + gc.reshape(y, (-1,)), x * 2
    session = gc.Session(graph)
    assert session.run(doubled, {x: ones(4)}).shape == (4,)
    with pytest.raises(FeedError, match=r"2\*k") as caught:
        session.run(doubled, {x: ones(3)})
    assert "test_named_sizes.py" in str(caught.value)


def test_an_equality_of_sizes_that_are_not_fed_is_not_checked(graph) -> None:
    a, b, c = (
        gc.placeholder(s, name=n) for n, s in (("a", ("n", 2)), ("b", ("m",)), ("c", ("k",)))
    )
    joined, doubled = gc.reshape(a, (-1,)) + gc.concatenate([b, c], axis=0), c * 2
    session = gc.Session(graph)
    assert session.run(doubled, {c: ones(7)}).shape == (7,)
    assert session.run(joined, {a: ones(3, 2), b: ones(2), c: ones(4)}).shape == (6,)
    with pytest.raises(FeedError, match=r"2\*n == k \+ m"):
        session.run(joined, {a: ones(3, 2), b: ones(2), c: ones(5)})


def test_a_size_alone_may_be_fetched_and_needs_a_feed_that_has_it(graph) -> None:
    x = gc.placeholder((None, 2), name="x")
    rows = gc.size(x, 0)
    session = gc.Session(graph)
    with pytest.raises(FeedError, match="no feed has") as caught:
        session.run(rows)
    assert "test_named_sizes.py" in str(caught.value)
    assert session.run(rows, {x: ones(3, 2)}) == 3


def test_nothing_in_a_batch(graph) -> None:
    x = gc.placeholder((None, 3), name="x")
    w = gc.variable(ones(3, 2), name="w")
    y = gc.matmul(x, w)
    total, rows = gc.scan(lambda c, row: (c + gc.reduce_sum(row), row), 0.0, x)
    d = gc.gradients(gc.reduce_sum(y), w)
    got = gc.Session(graph).run([y, total, rows, d], {x: ones(0, 3)})
    assert [v.shape for v in got] == [(0, 2), (), (0, 3), (3, 2)]
    assert not np.any(got[1]) and not np.any(got[3])


def test_a_loop_cannot_have_a_negative_length(graph) -> None:
    with pytest.raises(ShapeError, match="negative"):
        gc.scan(lambda c, _: (c, None), 0.0, length=-1)


def test_the_gradient_of_a_strided_slice_that_may_be_empty(graph) -> None:
    x = gc.placeholder((None, 3), name="x")
    slope = gc.gradients(gc.reduce_sum(gc.square(x[1::2, ::2])), [x])[0]
    session = gc.Session(graph)
    for rows in (1, 2, 5):
        expected = np.zeros((rows, 3), np.float32)
        expected[1::2, ::2] = 2.0
        np.testing.assert_array_equal(session.run(slope, {x: ones(rows, 3)}), expected)


def test_an_operator_that_does_not_take_a_size_names_the_line(graph) -> None:
    """The error is that of the same size in the graph, not one of the compiler."""
    x = gc.placeholder(("n", 3), name="x")
    last, best = x[-1], gc.argmax(x, 0)
    session = gc.Session(graph)
    with pytest.raises(ShapeError, match="ArgMax: there are no elements") as caught:
        session.run(best, {x: ones(0, 3)})
    assert "the feeds give n = 0" in str(caught.value)
    assert "last, best = x[-1], gc.argmax(x, 0)" in str(caught.value)
    with pytest.raises(ShapeError, match="is not within axis 0, of size 0"):
        session.run(last, {x: ones(0, 3)})
    assert session.run(best, {x: ones(1, 3)}).tolist() == [0, 0, 0]


def test_no_elements_of_an_empty_axis_can_be_taken(graph) -> None:
    x, i = gc.placeholder(("n", 2), name="x"), gc.placeholder(("k",), "int32", name="i")
    taken = gc.take(x, i, axis=0)
    session = gc.Session(graph)
    assert session.run(taken, {x: ones(0, 2), i: np.zeros(0, np.int32)}).shape == (0, 2)
    with pytest.raises(ShapeError, match="Take: axis 0 has no elements"):
        session.run(taken, {x: ones(0, 2), i: np.zeros(1, np.int32)})
