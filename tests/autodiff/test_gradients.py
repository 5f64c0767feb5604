"""The meaning of `gc.gradients`; tests/laws tests the rules of the operators."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, GradientError, GraphError


@pytest.fixture
def graph():
    with gc.Graph() as g:
        yield g


def scalar(name: str) -> gc.Tensor:
    return gc.placeholder((), name=name)


def values(graph, fetches, **feeds):
    return [float(v) for v in gc.Session(graph).run(fetches, feeds)]


def test_all_paths_and_all_ys_add_up(graph) -> None:
    x = scalar("x")
    a = x * 3
    y, z = a * x + a, x * 5
    dy = gc.gradients(y, x)
    both = gc.gradients([y, z], [x])
    assert values(graph, [dy, both[0]], x=2.0) == [15, 20]


def test_an_x_between_another_x_and_the_y(graph) -> None:
    x = scalar("x")
    h = x * x
    assert values(graph, gc.gradients(h * x, [x, h]), x=3.0) == [27, 3]


def test_of_a_y_with_respect_to_itself(graph) -> None:
    x = scalar("x")
    assert values(graph, [gc.gradients(x, x)]) == [1]


def test_adjoints_of_ys(graph) -> None:
    x = gc.placeholder((None,), name="x")
    s = scalar("s")
    d = gc.gradients([x * x, x * s], x, grad_ys=[x * 10, None])
    fed = {"x": np.float32([2, 3]), "s": 5.0}
    np.testing.assert_array_equal(gc.Session(graph).run(d, fed), [85, 185])


def test_adjoints_of_a_size_known_to_be_equal(graph) -> None:
    x, seed = gc.placeholder(("n",), name="x"), gc.placeholder(("m",), name="seed")
    _ = x + seed  # from here on, n == m
    d = gc.gradients(x * 2, x, grad_ys=seed)
    fed = {"seed": np.float32([1, 4])}
    np.testing.assert_array_equal(gc.Session(graph).run(d, fed), [2, 8])


def test_with_respect_to_a_variable_sums_over_its_reads(graph) -> None:
    v = gc.variable(np.float32(3), name="v")
    first = v.read()
    v.assign(v * 10)
    d = gc.gradients(first * v.read(), v)
    assert values(graph, [d]) == [6], "the assignment is not chosen, both reads see 3"


def test_unconnected(graph) -> None:
    x, z = scalar("x"), scalar("z")
    y = x * 2
    with pytest.raises(GradientError, match="no gradient path from 'z:0'") as caught:
        gc.gradients(y, [x, z])
    assert "test_gradients.py" in str(caught.value) and 'unconnected="zero"' in str(caught.value)
    assert gc.gradients(y, [z], unconnected="none") == [None]
    assert values(graph, gc.gradients(y, [x, z], unconnected="zero")) == [2, 0]
    with pytest.raises(AttributeValueError, match="unconnected"):
        gc.gradients(y, x, unconnected="maybe")


def test_stop_gradient_and_integers_end_a_path(graph) -> None:
    x = scalar("x")
    through = gc.cast(gc.cast(x, "int32"), "float32")
    for y in (gc.stop_gradient(x) * 2, through):
        with pytest.raises(GradientError, match="no gradient path"):
            gc.gradients(y, x)
    assert values(graph, [gc.gradients(gc.stop_gradient(x) * x, x)], x=7.0) == [7]


def test_third_derivative(graph) -> None:
    x = scalar("x")
    y = x * x * x * x
    d = gc.gradients(gc.gradients(gc.gradients(y, x), x), x)
    assert values(graph, [d], x=2.0) == [48]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda x, i: gc.gradients(x, i), "only floating and complex"),
        (lambda x, i: gc.gradients(i, x), "only floating and complex"),
        (lambda x, i: gc.gradients(x, 3.0), "must be a tensor or a variable"),
        (lambda x, i: gc.gradients([], x), "ys is empty"),
        (lambda x, i: gc.gradients(x, x, grad_ys=[1.0, 2.0]), "1 ys and 2 grad_ys"),
        (lambda x, i: gc.gradients(x, x, grad_ys=np.ones(2, np.float32)), "must be"),
    ],
)
def test_wrong_arguments(graph, make, match: str) -> None:
    x, i = scalar("x"), gc.placeholder((), "int32", name="i")
    with pytest.raises(GradientError, match=match) as caught:
        make(x, i)
    assert "test_gradients.py" in str(caught.value)


def test_tensors_of_another_graph(graph) -> None:
    x = scalar("x")
    y = x * 2
    with gc.Graph():
        z = scalar("z")
        v = gc.variable(np.float32(0), name="v")
        with pytest.raises(GraphError, match="another graph"):
            gc.gradients(y, x)
        for other in (x, [v, x]):
            with pytest.raises(GraphError, match="'x:0' belongs to another graph"):
                gc.gradients(z * v, other)


def test_not_through_an_assignment(graph) -> None:
    x = scalar("x")
    v = gc.variable(np.float32(0), name="v")
    with pytest.raises(GradientError, match="assignment of 'v'"):
        gc.gradients(v.assign(x * 2) * 3, x)


def test_gradients_choose_no_control_inputs(graph) -> None:
    x = scalar("x")
    y = x * x
    v = gc.variable(np.float32(0), name="v")
    with gc.control_dependencies([v.assign_add(1)]):
        d = gc.gradients(y, x)
    session = gc.Session(graph)
    assert session.run(d, {x: 2.0}) == 4
    assert session.get("v") == 0
