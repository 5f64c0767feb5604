"""`gc.compile`: executables, their state, and their inspection."""

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, FeedError, StateError


@pytest.fixture(scope="module")
def model():
    g = gc.Graph(seed=0)
    with g:
        x = gc.placeholder(("batch", 4), name="x")
        y = gc.placeholder(("batch",), "int32", name="y")
        logits = gc.nn.Dense(3, name="out")(x)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y))
        train = gc.minimize(loss, optax.sgd(0.1), name="train")
    step = gc.compile(g, [train, loss], {x: (8, 4), y: (8,)})
    return g, x, y, loss, train, step


FEEDS = {"x": np.eye(8, 4, dtype=np.float32), "y": np.arange(8) % 3}


def test_steps_are_pure_in_values_and_consume_their_state(model) -> None:
    g, x, y, loss, train, step = model
    state = step.init()
    (_, first), after = step(state, FEEDS)
    with pytest.raises(StateError, match="consumed"):
        step(state, FEEDS)
    with pytest.raises(StateError, match="consumed"):
        state["out/kernel"]
    (_, second), _ = step(after, FEEDS)
    (_, again), _ = step(step.init(), FEEDS)
    assert second < first
    assert again == first


def test_without_donation_the_old_state_lives(model) -> None:
    g, x, y, loss, train, _ = model
    options = gc.CompileOptions(donate=False)
    step = gc.compile(g, [train, loss], {x: (8, 4), y: (8,)}, options=options)
    state = step.init()
    (_, first), _ = step(state, FEEDS)
    (_, again), _ = step(state, FEEDS)
    assert again == first


def test_one_state_serves_all_executables_of_a_graph(model) -> None:
    g, x, y, loss, train, step = model
    evaluate = gc.compile(g, {"loss": loss}, {x: (8, 4), y: (8,)})
    state = step.init()
    (_, trained), state = step(state, FEEDS)
    result, same = evaluate(state, FEEDS)
    assert result["loss"] < trained
    assert set(same) == {"out/kernel", "out/bias"} <= set(g.variables)


def test_looking_inside(model) -> None:
    *_, step = model
    assert "stablehlo.dot_general" in step.stablehlo()
    assert "ENTRY" in step.hlo()
    assert step.cost()["flops"] > 0
    assert step.memory()["aliased"] >= 4 * 15  # the kernel and the bias are updated in place
    assert set(step.seconds) == {"layout", "lower", "compile"}
    report = step.pass_report()
    assert "prune" in str(report) and report.rows[0].before >= report.rows[-1].after


def test_wrong_feeds(model) -> None:
    g, x, y, loss, train, step = model
    state = step.init()
    with pytest.raises(FeedError, match="feed 'y' is missing"):
        step(state, {"x": FEEDS["x"]})
    with pytest.raises(FeedError, match="compiled for that shape"):
        step(state, {"x": FEEDS["x"][:4], "y": FEEDS["y"][:4]})
    with pytest.raises(FeedError, match="'out/MatMul' is not one of this executable's"):
        step(state, {**FEEDS, "out/MatMul": 1.0})
    with pytest.raises(FeedError, match="is not a shape"):
        gc.compile(g, loss, {x: "many", y: (8,)})
    with pytest.raises(FeedError, match=r"expected size 8 on axis 0, got 7"):
        gc.compile(g, loss, {x: (8, 4), y: (7,)})
    step(state, FEEDS)  # the failed calls did not consume the state


def test_a_value_declares_a_feed_as_a_run_takes_it(model) -> None:
    g, x, y, loss, train, step = model
    values = {x: FEEDS["x"].astype(np.float64), y: FEEDS["y"].astype(np.int64)}
    assert gc.compile(g, [train, loss], values).cache_key == step.cache_key
    with pytest.raises(FeedError, match="feed 'y:0' is int32 in the graph, float32 in feeds"):
        gc.compile(g, loss, {x: (8, 4), y: np.ones(8, np.float32)})


def test_a_typed_key_declares_its_words() -> None:
    g = gc.Graph()
    with g:
        key = gc.placeholder((2,), "uint32", name="key")
        words = key + 1
    typed = jax.random.key(3)
    step = gc.compile(g, words, {key: typed})
    assert np.asarray(step(step.init(), {key: typed})[0]).tolist() == [1, 4]


def test_the_key_tells_programs_sizes_and_options_apart(model) -> None:
    g, x, y, loss, train, step = model
    same = gc.compile(g, [train, loss], {x: (8, 4), y: (8,)})
    assert same.cache_key == step.cache_key
    others = [
        gc.compile(g, [train, loss], {x: (4, 4), y: (4,)}),
        gc.compile(g, loss, {x: (8, 4), y: (8,)}),
        gc.compile(g, [train, loss], {x: (8, 4), y: (8,)}, options=gc.CompileOptions(donate=False)),
    ]
    keys = {step.cache_key, *(o.cache_key for o in others)}
    assert len(keys) == 4


def test_initial_values_do_not_enter_the_key() -> None:
    def key(value: float) -> str:
        g = gc.Graph()
        with g:
            v = gc.variable(np.float32(value), name="v")
            y = v * 2.0
        return gc.compile(g, y).cache_key

    assert key(1.0) == key(2.0)


def test_options_teach() -> None:
    with pytest.raises(AttributeValueError, match="pipeline must be one of"):
        gc.CompileOptions(pipeline="fast")
    g = gc.Graph()
    with g:
        c = gc.constant(1.0)
    with pytest.raises(AttributeValueError, match=r"options must be a gc\.CompileOptions"):
        gc.compile(g, c, options={"donate": False})
