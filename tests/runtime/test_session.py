"""Sessions: runs, state, the number of compilations, and use after errors."""

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import (
    DTypeError,
    FeedError,
    FetchError,
    GraphError,
    GraphFinalizedError,
    ShapeError,
    StateError,
    UnknownNameError,
)
from tests.near import assert_near


def counter_graph():
    g = gc.Graph()
    with g:
        v = gc.variable(np.float32(1), name="v")
        before = v.read()
        doubled = v.assign(v * 2)
        after = v.read() + 0
        tripled = v.assign(v * 3)
    return g, v, before, doubled, after, tripled


def test_fetches_choose_the_assignments_that_run() -> None:
    g, v, before, doubled, after, tripled = counter_graph()
    s = gc.Session(g)
    assert s.run(before) == 1
    assert s.run(after) == 1, "no assignment was chosen, so the read sees none"
    assert s.run([before, doubled, after]) == [1, 2, 2]
    assert s.get("v") == 2
    assert s.run([after, tripled]) == [2, 6]
    assert s.run([before, doubled, after, tripled]) == [6, 12, 12, 36]
    assert s.run(v) == 36


def test_fetching_a_variable_gives_its_value_after_the_run() -> None:
    g, v, before, doubled, *_ = counter_graph()
    assert gc.Session(g).run([v, doubled, before]) == [2, 2, 1]


def test_control_dependencies_add_to_the_choice() -> None:
    g = gc.Graph()
    with g:
        v = gc.variable(np.float32(0), name="v")
        bump = v.assign_add(1)
        with gc.control_dependencies([bump]):
            c = gc.identity(gc.constant(5.0))
    s = gc.Session(g)
    assert s.run(c) == 5
    assert s.get("v") == 1


def test_group_gives_none_and_runs_everything() -> None:
    g = gc.Graph()
    with g:
        a, b = (gc.variable(np.float32(0), name=n) for n in "ab")
        both = gc.group(a.assign_add(1), [b.assign_add(2)])
    s = gc.Session(g)
    assert s.run(both) is None
    assert (s.get("a"), s.get("b")) == (1, 2)


def test_nested_fetches_keep_their_form() -> None:
    g, v, before, doubled, *_ = counter_graph()
    result = gc.Session(g).run({"x": [before, (doubled, None)], "v": "v", "again": before})
    assert result == {"x": [1, (2, None)], "v": 2, "again": 1}


def test_any_tensor_can_be_fed_and_fetched_by_tensor_or_name() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((2,), name="x")
        y = gc.add(x, 1.0, name="y")
        z = gc.multiply(y, 2.0, name="z")
    s = gc.Session(g)
    np.testing.assert_array_equal(s.run(z, {x: [1, 2]}), [4, 6])
    np.testing.assert_array_equal(s.run("z:0", {"y": [1, 2]}), [2, 4])
    np.testing.assert_array_equal(s.run(["z", x], {y: [5, 6], "x:0": [0, 0]})[0], [10, 12])


def test_one_compile_per_fetch_set_and_feed_shapes() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((None, 2), name="x")
        y, z = x + 1, x * 2
    s = gc.Session(g)
    for rows in (3, 3, 4, 3):
        s.run([y, z], {x: np.ones((rows, 2), np.float32)})
    assert s.compile_count == 2
    s.run([y, z], {"x": np.ones((3, 2), np.float64)})  # converted within the kind: the same program
    assert s.compile_count == 2
    s.run(y, {x: np.ones((3, 2), np.float32)})
    assert s.compile_count == 3


def test_random_draws_differ_by_run_and_repeat_by_seed() -> None:
    def draws(seed):
        g = gc.Graph(seed=seed)
        with g:
            a, b = gc.random.normal((4,)), gc.random.normal((4,))
        s = gc.Session(g)
        return np.asarray([s.run([a, b]) for _ in range(3)])

    first = draws(1)
    assert len(np.unique(first)) == first.size
    np.testing.assert_array_equal(first, draws(1))
    assert not np.array_equal(first, draws(2))


@pytest.mark.parametrize("devices", [1, 4])
def test_a_reused_feed_buffer_never_changes_a_result(devices: int) -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((None, 512), name="x")
        y = gc.reduce_sum(gc.matmul(x, gc.transpose(x)))
    s = gc.Session(g, strategy=gc.devices.DataParallel(devices) if devices > 1 else None)
    buffer = np.empty((512, 512), np.float32)
    results = []
    for i in range(50):
        buffer[...] = i
        results.append(s.run(y, {x: buffer}))
        buffer[...] = -1  # immediately, while the run may still be in progress
    wanted = [512.0**3 * i * i for i in range(50)]
    assert_near([float(r) for r in results], wanted, rtol=1e-6)


@pytest.mark.parametrize("devices", [1, 4])
def test_values_fetched_and_got_survive_later_steps(devices: int) -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((None,), name="x")
        v = gc.variable(np.zeros(4, np.float32), name="v")
        total = gc.reduce_sum(x)
        bump = v.assign_add(total)
    s = gc.Session(g, strategy=gc.devices.DataParallel(devices) if devices > 1 else None)
    feeds = {x: np.full(4, 0.25, np.float32)}
    given = jax.numpy.ones(4)
    (fetched, _, passed), got = s.run([v, total, x], {x: given}), s.get("v")
    for _ in range(3):
        s.run(bump, feeds)
    assert float(np.sum(fetched)) == 0
    assert float(np.sum(got)) == 0
    assert float(np.sum(passed)) == float(np.sum(given)) == 4
    np.testing.assert_array_equal(s.get(v), [3, 3, 3, 3])


def test_set_and_get() -> None:
    g, v, *_ = counter_graph()
    s = gc.Session(g)
    s.set("v", 5)
    assert s.run(v) == 5
    s.set(v, np.float64(7))
    assert s.get("v") == 7
    with pytest.raises(ShapeError, match="variable 'v' has shape"):
        s.set("v", [1.0, 2.0])
    with pytest.raises(DTypeError, match="variable 'v' must be float32"):
        s.set("v", np.array(1j))
    with pytest.raises(UnknownNameError, match="did you mean 'v'"):
        s.set("vv", 1.0)
    assert s.get("v") == 7


def test_64_bit_types_need_no_global_flag() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((3,), "float64", name="x")
        n = gc.placeholder((), "int64", name="n")
        y, m = x / 3.0, n + 1
    third, big = gc.Session(g).run([y, m], {x: np.ones(3), n: 2**40})
    assert third.dtype == np.float64 and big.dtype == np.int64
    np.testing.assert_array_equal(third, np.ones(3) / 3)
    assert int(big) == 2**40 + 1
    assert not jax.config.jax_enable_x64


def test_graph_grown_after_the_first_run() -> None:
    g, v, *_ = counter_graph()
    s = gc.Session(g)
    s.run(v)
    with pytest.raises(GraphFinalizedError, match=r"test_session\.py:\d+") as error, g:
        v + 1
    assert "extend" in str(error.value)
    with g.extend():
        w = gc.variable(np.float32(3), name="w")
        total = v + w
    assert s.run(total) == 4
    assert s.run(v) == 1


def wrong_feeds():
    x = np.ones((2, 3), np.float32)
    y = np.ones((2,), np.int32)
    return [
        ({"x": x}, FeedError, r"placeholder 'y' \(i32\[.*\]\) is needed and not fed"),
        ({"x": x, "y": y.astype(np.float32)}, FeedError, "feed 'y' must be int32, got float32"),
        ({"x": x[:, :2], "y": y}, FeedError, "expected size 3 on axis 1, got 2"),
        ({"x": x, "y": y[:1]}, FeedError, r"expected size 2 on axis 0, got 1 \(.* by feed 'x'"),
        ({"x": x[0], "y": y}, FeedError, "expected rank 2, got rank 1"),
        ({"x": "text", "y": y}, FeedError, "feed 'x' is not an array of float32"),
        ({"x": x, "y": np.array([0, 2**40])}, FeedError, "with values that do not fit"),
        (
            {"x": x, "y": [0, 2**40]},
            FeedError,
            "must be int32, got list with values that do",
        ),
        ({"xx": x, "y": y}, UnknownNameError, "did you mean 'x'"),
        ({"x": x, "y": y, "w": 1.0}, UnknownNameError, "no node 'w'|cannot be fed"),
    ]


@pytest.mark.parametrize("feeds, error, match", wrong_feeds())
def test_wrong_feeds_teach_and_leave_the_session_usable(feeds, error, match) -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((None, 3), name="x")
        y = gc.placeholder((None,), "int32", name="y")
        w = gc.variable(np.ones((3, 4), np.float32), name="v")
        logits = gc.matmul(x, w)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y))
        bump = w.assign_add(1.0)
    s = gc.Session(g)
    good = {"x": np.ones((2, 3), np.float32), "y": [0, 1]}
    before = s.run(loss, good)
    with pytest.raises(error, match=match) as caught:
        s.run([loss, bump], feeds)
    assert "  at test_session.py:" in str(caught.value)
    assert "  hint: " in str(caught.value)
    assert s.run(loss, good) == before


def test_superfluous_feeds() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((), name="x")
        unused = gc.placeholder((), name="unused")
        y = x + 1
    s = gc.Session(g, unused_feeds="error")
    with pytest.raises(FeedError, match="'unused' is fed, and nothing fetched depends on it"):
        s.run(y, {x: 1.0, unused: 2.0})
    assert s.run(y, {x: 1.0}) == 2


def test_fetches_of_another_graph_and_wrong_kinds() -> None:
    g, v, *_ = counter_graph()
    other = gc.Graph()
    with other:
        foreign = gc.constant(1.0, name="foreign")
    s = gc.Session(g)
    refused = [
        (lambda: s.run(foreign), FetchError, "'foreign:0' is not of graph"),
        (lambda: s.run(v, {foreign: 1.0}), FeedError, "'foreign:0' is not of graph"),
        (lambda: s.run(v, [1.0]), FeedError, "feeds must be a mapping, got list"),
        (lambda: s.run([3.0]), FetchError, "cannot be fetched"),
        (lambda: s.run("vee"), UnknownNameError, "no tensor, node or variable 'vee'"),
        (lambda: s.get("vee"), UnknownNameError, "no variable 'vee'"),
    ]
    for use, error, match in refused:
        with pytest.raises(error, match=match) as caught:
            use()
        assert "  at test_session.py:" in str(caught.value)
    with pytest.raises(GraphError, match="belongs to another graph"), g:
        foreign + 1
    assert s.run(v) == 1


def test_a_closed_session_says_so() -> None:
    g, v, *_ = counter_graph()
    with gc.Session(g) as s:
        s.run(v)
    with pytest.raises(StateError, match="closed"):
        s.run(v)


def test_training_learns_and_slots_are_ordinary_variables() -> None:
    g = gc.Graph(seed=3)
    with g:
        x = gc.placeholder(("batch", 4), name="x")
        y = gc.placeholder(("batch", 1), name="y")
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(1, name="out")(x) - y), name="loss")
        train = gc.minimize(loss, optax.adam(0.1), name="train")
    s = gc.Session(g)
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(64, 4)).astype(np.float32)
    ys = xs @ np.array([[1], [2], [3], [4]], np.float32)
    losses = [float(s.run([train, loss], {x: xs, y: ys})[1]) for _ in range(200)]
    assert losses[-1] < 1e-2 * losses[0]
    assert s.get("train/0/count") == 200
    assert s.get("out/kernel/train/0/mu").shape == (4, 1)
    assert s.compile_count == 1
