"""Control dependencies inside and outside loops: the nodes that they add to a run."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import FetchError, GraphError


@pytest.fixture
def graph():
    with gc.Graph() as g:
        yield g


def test_a_read_under_them_is_not_what_others_read(graph) -> None:
    v = gc.variable(np.float32(0), name="v")
    with gc.control_dependencies([v.assign_add(1)]):
        under = v.read()
    beside = v + 0
    session = gc.Session(graph)
    assert session.run(beside) == 0, "the assignment is not chosen"
    assert session.run([under, beside]) == [1, 1]


def test_a_loop_under_them(graph) -> None:
    v, one = gc.variable(np.float32(0), name="v"), gc.constant(1.0)
    with gc.control_dependencies([v.assign_add(1)]):
        c, _ = gc.scan(lambda c, _: (c * 2, None), one, length=2)
    assert gc.Session(graph).run([c, v]) == [4, 1]


def test_of_a_node_in_a_body_on_one_outside(graph) -> None:
    v = gc.variable(np.float32(0), name="v")
    bump = v.assign_add(1)

    def body(c, _):
        with gc.control_dependencies([bump]):
            return c * 2, None

    c, _ = gc.scan(body, 1.0, length=2)
    assert gc.Session(graph).run([c, v]) == [4, 1]


def test_of_a_node_in_a_body_on_one_beside_it(graph) -> None:
    v = gc.variable(np.float32(0), name="v")

    def body(c, _):
        with gc.control_dependencies([v.assign_add(1)]):
            return c + v, None

    c, _ = gc.scan(body, 0.0, length=3)
    assert gc.Session(graph).run([c, v]) == [6, 3]


def test_two_reads_in_one_body(graph) -> None:
    v = gc.variable(np.float32(2), name="v")

    def body(c, _):
        with gc.control_dependencies([c + 1]):
            under = v.read()
        return c + v * under, None

    c, _ = gc.scan(body, 0.0, length=3)
    assert gc.Session(graph).run([c, v]) == [12, 2]


def test_a_closed_bodys_tensor_cannot_be_named(graph) -> None:
    inside = []

    def body(c, _):
        inside.append(c * 2)
        return c, None

    gc.scan(body, 1.0, length=2)
    for use in (gc.group, lambda t: gc.control_dependencies([t]).__enter__()):
        with pytest.raises(GraphError, match="body that is closed"):
            use(inside[0])


def test_invalid_control_inputs_are_reported_at_the_users_line(graph) -> None:
    v = gc.variable(np.float32(0), name="v")
    with (
        pytest.raises(FetchError, match="neither a tensor nor a node") as caught,
        gc.control_dependencies([v]),
    ):
        pass
    assert "test_control_inputs.py" in str(caught.value)
