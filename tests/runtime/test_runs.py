"""Ways to call a session: orders and nestings that share one program, and feeds of all kinds."""

import collections
import dataclasses
import threading

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import AttributeValueError, FeedError, GraphFinalizedError


@pytest.fixture
def graph():
    with gc.Graph() as g:
        yield g


def test_order_and_nest_do_not_matter_to_what_is_compiled(graph) -> None:
    x, y = gc.placeholder((None,), name="x"), gc.placeholder((None,), name="y")
    difference, product = x - y, x * y
    session = gc.Session(graph)
    a, b = np.float32([5, 6]), np.float32([1, 2])
    for feeds in ({x: a, y: b}, {y: b, x: a}, {"y": b, x: a}):
        np.testing.assert_array_equal(session.run(difference, feeds), [4, 4])
        np.testing.assert_array_equal(session.run(difference, feeds), [4, 4])
    assert session.compile_count == 1
    pair = collections.namedtuple("pair", "d p")
    for feeds in ({x: a, y: b}, {y: b, x: a}):
        one = session.run([difference, product], feeds)
        two = session.run((product, difference, product), feeds)
        three = session.run({"p": product, "d": [difference, None]}, feeds)
        four = session.run(pair(difference, product), feeds)
        rows = (one[0], two[1], three["d"][0], four.d), (one[1], two[2], three["p"], four.p)
        for row, expected in zip(rows, ([4, 4], [5, 12]), strict=True):
            for value in row:
                np.testing.assert_array_equal(value, expected)
    assert session.compile_count == 2


def test_nests_of_a_class_that_jax_knows(graph) -> None:
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Both:
        a: object
        b: object

    x = gc.placeholder((), name="x")
    y = x * 2
    session = gc.Session(graph)
    for _ in range(3):  # each call gets a new, unhashable object
        assert session.run(Both(x, y), {x: 1.0}) == Both(1, 2)
        assert session.run(Both(y, x), {x: 1.0}) == Both(2, 1)
    assert len(session._programs.plans) == 2


def test_arrays_of_jax_of_other_widths_and_devices(graph) -> None:
    x, i = gc.placeholder((2,), "float64", name="x"), gc.placeholder((), "int64", name="i")
    v = gc.variable(np.ones(2), name="v")
    y = x * 2 + v + gc.cast(i, "float64")
    fed = {x: jax.device_put(np.ones(2, np.float32), jax.devices()[1]), i: jnp.int32(3)}
    got = gc.Session(graph).run(y, fed)
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, [6, 6])


def test_arrays_that_are_gone(graph) -> None:
    x = gc.placeholder((2,), name="x")
    gone = jnp.ones(2)
    gone.delete()
    with pytest.raises(FeedError, match="feed 'x' is an array that was deleted"):
        gc.Session(graph).run(x, {x: gone})


def test_a_read_only_view_of_an_array_that_is_written_to(graph) -> None:
    x = gc.placeholder((1000,), name="x")
    session = gc.Session(graph)
    base = np.ones(1000, np.float32)
    view = base[:]
    view.flags.writeable = False
    session.run(x, {x: base})
    (spec,) = next(iter(session._programs.plans.values())).specs
    assert spec.convert(view) is not view
    base.flags.writeable = False  # its owner can make it writeable again, so views are copied
    assert spec.convert(view) is not view
    same = np.frombuffer(base.tobytes(), np.float32)
    assert spec.convert(same) is same


@pytest.mark.parametrize("feeds", [[1, 2], [{}], "x", 5], ids=str)
def test_feeds_that_are_no_mapping(graph, feeds: object) -> None:
    x = gc.placeholder((), name="x")
    with pytest.raises(FeedError, match="feeds must be a mapping"):
        gc.Session(graph).run(x, feeds)
    with pytest.raises(FeedError, match="feeds must be a mapping"):
        gc.compile(graph, x, feeds)


def test_one_tensor_fed_by_two_keys(graph) -> None:
    x = gc.placeholder((), name="x")
    twice = {x: 1.0, "x": 2.0}
    step = gc.compile(graph, x, {x: ()})
    for call in (
        lambda: gc.Session(graph).run(x, twice),
        lambda: gc.compile(graph, x, {x: (), "x:0": ()}),
        lambda: step(step.init(), twice),
    ):
        with pytest.raises(FeedError, match="given twice"):
            call()


def test_a_tensor_is_no_value(graph) -> None:
    x = gc.placeholder((), name="x")
    with pytest.raises(FeedError, match="feed 'x'"):
        gc.Session(graph).run(x, {x: x})


def test_a_run_that_is_refused_does_not_finalize_the_graph(graph) -> None:
    x = gc.placeholder((2,), name="x")
    y = x * 2
    session = gc.Session(graph)
    with pytest.raises(FeedError):
        session.run(y, {x: np.ones(3, np.float32)})
    z = y + 1  # no run has started, so the graph may grow
    np.testing.assert_array_equal(session.run(z, {x: np.ones(2, np.float32)}), [3, 3])


def test_what_passes_straight_through_survives_donation(graph) -> None:
    x = gc.placeholder((4,), name="x")
    v, w = (gc.variable(np.full(4, i, np.float32), name=n) for i, n in enumerate("vw"))
    first, second = v.read(), w.read()
    swap = gc.group(v.assign(second), w.assign(first))
    session = gc.Session(graph)
    fed = jnp.full(4, 9.0, jnp.float32)
    results = [session.run([x, first, v, x, swap], {x: fed}) for _ in range(3)]
    got = [[float(value[0]) for value in row[:4]] for row in results]
    assert got == [[9, 0, 1, 9], [9, 1, 0, 9], [9, 0, 1, 9]]
    assert not fed.is_deleted()


@pytest.mark.slow
def test_thousands_of_nodes_in_a_row_with_their_gradient(graph) -> None:
    x = gc.placeholder((), name="x")
    y = x
    for _ in range(3000):
        y = y + x
    assert gc.Session(graph).run([y, gc.gradients(y, x)], {x: 2.0}) == [6002, 3001]


def test_sessions_in_threads_of_their_own() -> None:
    results = {}

    def work(dtype: str) -> None:
        with gc.Graph() as graph:
            x = gc.placeholder((None,), dtype, name="x")
            more = gc.variable(np.zeros((), dtype), name="v").assign_add(gc.reduce_sum(x))
        session = gc.Session(graph)
        for i in range(30):
            value = session.run(more, {x: np.ones(1 + i % 3)})
        results[dtype] = (float(value), value.dtype.name)

    threads = [threading.Thread(target=work, args=(d,)) for d in ("float32", "float64")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"float32": (60, "float32"), "float64": (60, "float64")}


@pytest.mark.parametrize("name", ["a:0", 5])
def test_names_that_could_not_be_found_again(graph, name: object) -> None:
    with pytest.raises(AttributeValueError, match="is not a name"):
        gc.identity(1.0, name=name)


def test_a_variable_cannot_be_fed_by_name_either(graph) -> None:
    v = gc.variable(np.float32(1), name="v")
    y = v + 1
    for key in (v, "v"):
        with pytest.raises(FeedError, match="variable 'v' cannot be fed") as caught:
            gc.Session(graph).run(y, {key: 1.0})
        assert "session.set" in str(caught.value)


def test_a_run_while_the_graph_is_extended_leaves_it_open(graph) -> None:
    x = gc.placeholder((), name="x")
    y = x + 1
    session = gc.Session(graph)
    session.run(y, {x: 1.0})
    with graph.extend():
        z = y * 2
        assert session.run(z, {x: 1.0}) == 4
        z = z * 2
        with graph.extend():
            z = z * 2
        z = z * 2
    assert session.run(z, {x: 1.0}) == 32
    with pytest.raises(GraphFinalizedError, match="has run"):
        _ = z * 2
