"""Deep models: their repeated blocks run in loops, which change only the time.

Each model is trained with the default pipeline and with "O1": in float64 all variables agree to
1e-8 (adam makes whole steps from gradients that are zero except for rounding).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.passes import pipelines
from tests.near import assert_near

F64, WIDTH, ROWS, STEPS = "float64", 6, 8, 4
NORMAL = gc.nn.initializers.Normal(stddev=0.3)


@pytest.fixture(autouse=True)
def few_turns_are_worth_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default on CPU is six; with four blocks, the programs without loops compile faster."""
    monkeypatch.setattr(pipelines, "_FEWEST_TURNS", 3)


class Model(NamedTuple):
    graph: gc.Graph
    train: gc.Node
    loss: gc.Tensor


def dense(x, name, units=WIDTH):
    return gc.nn.Dense(units, kernel_initializer=NORMAL, name=name, dtype=F64)(x)


def block(x, rate=0.0):
    """A residual block with as much work as 8 variables, so that three blocks justify a loop."""
    y = gc.nn.LayerNorm(name="norm", dtype=F64)(x)
    y = gc.tanh(dense(y, "up", 2 * WIDTH))
    if rate:
        y = gc.nn.dropout(y, rate)
    y = dense(y, "down")
    gate = gc.sigmoid(dense(x, "gate"))
    y = gc.exp(-gc.square(y)) * gate + (1.0 - gate) * x
    return x + gc.sin(y) * gc.cos(y) + gc.nn.softmax(y)


def built(body: Callable[[gc.Tensor, int], gc.Tensor], tx: Any = None, blocks: int = 4) -> Model:
    """A model of `blocks` blocks and its training step, with adam by default."""
    graph = gc.Graph(seed=3)
    with graph:
        x = gc.placeholder((None, WIDTH), F64, name="x")
        y = gc.placeholder((None, WIDTH), F64, name="y")
        h = dense(x, "first")
        for i in range(blocks):
            with gc.name_scope(f"block{i}"):
                h = body(h, i)
        loss = gc.reduce_mean(gc.square(dense(h, "last") - y), name="loss")
        train = gc.minimize(loss, tx or optax.adam(1e-2), name="train")
    return Model(graph, train, loss)


def shared_weights() -> Model:
    shared: dict[str, gc.Variable] = {}

    def body(h, i):
        if not shared:
            with gc.name_scope("shared"):
                shared["w"] = gc.variable(NORMAL, shape=(WIDTH, WIDTH), dtype=F64, name="w")
        return gc.tanh(block(h) @ shared["w"])

    return built(body)


def alternating(h, i):
    return block(h) if i % 2 else gc.tanh(dense(h, "plain")) * h


def ends_differ(h, i):
    if i == 0:
        return gc.nn.relu(block(h))
    return block(h) if i < 4 else block(h) * 2.0


def normed(h, i):
    return block(gc.nn.BatchNorm(name="batch_norm", dtype=F64)(h, training=True))


def clipped() -> Model:
    tx = optax.chain(
        optax.clip_by_global_norm(0.1),
        optax.adamw(optax.cosine_decay_schedule(1e-2, 10), weight_decay=0.1),
    )
    return built(lambda h, i: block(h), tx)


MODELS: dict[str, Callable[[], Model]] = {
    "plain": lambda: built(lambda h, i: block(h)),
    "ends differ": lambda: built(ends_differ, blocks=5),
    "alternating": lambda: built(alternating, blocks=8),
    "dropout": lambda: built(lambda h, i: block(h, rate=0.3)),
    "shared weights": shared_weights,
    "batch norm": lambda: built(normed),
    "clipped, decayed": clipped,
    "momentum": lambda: built(lambda h, i: block(h), optax.sgd(0.1, momentum=0.9)),
}


def data(rows: int = ROWS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal((rows, WIDTH)), "y": rng.standard_normal((rows, WIDTH))}


def session(model: Model, pipeline: str = "O2", **options: Any) -> gc.Session:
    return gc.Session(model.graph, options=gc.CompileOptions(pipeline=pipeline), **options)


def loops(sess: gc.Session) -> list[int]:
    """The lengths of the loops in the session's last program."""
    nodes = sess.executables[-1].program.nodes
    return [node.attrs["length"] for node in nodes if node.op.name == "Scan"]


def agree(a: gc.Session, b: gc.Session) -> None:
    left, right = a.values(), b.values()
    assert list(left) == list(right)
    for name, value in left.items():
        assert_near(value, right[name], rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_same_rolled_and_unrolled(name: str) -> None:
    model = MODELS[name]()
    rolled, unrolled = session(model), session(model, "O1")
    for _ in range(STEPS):
        _, a = rolled.run([model.train, model.loss], data())
        _, b = unrolled.run([model.train, model.loss], data())
        assert_near(a, b, rtol=1e-10)
    assert len(loops(rolled)) == 2, "one loop forward, one backward"
    assert loops(unrolled) == []
    agree(rolled, unrolled)


def test_the_program_does_not_grow_with_depth() -> None:
    sizes = []
    for blocks in (4, 8):
        model = built(lambda h, i: block(h), blocks=blocks)
        sess = session(model)
        sess.run([model.train, model.loss], data())
        executable = sess.executables[-1]
        sizes.append((len(executable.program.nodes), executable.stablehlo().count("\n")))
        assert loops(sess) == [blocks, blocks]
    assert sizes[0] == sizes[1]


@pytest.mark.slow
@pytest.mark.one_jax
def test_what_is_inside_a_block_can_be_fetched_and_fed() -> None:
    model = built(lambda h, i: block(h, rate=0.3))
    inside = ["block1/up/MatMul:0", "block3/down/Add:0"]
    rolled, unrolled = session(model), session(model, "O1")
    for sess in (rolled, unrolled):
        sess.run([model.train, model.loss], data())
    fed = {**data(), "block2/up/MatMul:0": np.ones((ROWS, 2 * WIDTH))}
    for feeds in (data(), fed):
        fetches = [model.train, model.loss, *inside]
        for left, right in zip(
            rolled.run(fetches, feeds)[1:], unrolled.run(fetches, feeds)[1:], strict=True
        ):
            assert_near(left, right, rtol=1e-8)
        assert loops(unrolled) == []
    agree(rolled, unrolled)


def test_variables_keep_their_names() -> None:
    model = built(lambda h, i: block(h))
    sess = session(model)
    sess.run(model.train, data())
    kernel = np.arange(WIDTH * 2 * WIDTH, dtype=np.float64).reshape(WIDTH, 2 * WIDTH) / 100
    before = sess.values()
    sess.set("block2/up/kernel", kernel)
    np.testing.assert_array_equal(sess.get("block2/up/kernel"), kernel)
    for name, value in sess.values().items():
        if name != "block2/up/kernel":
            np.testing.assert_array_equal(value, before[name], err_msg=name)
    other = session(model, "O1")
    for name, value in sess.values().items():
        other.set(name, value)
    for each in (sess, other):
        each.run(model.train, data())
    agree(sess, other)


@pytest.mark.slow
def test_one_state_serves_every_executable() -> None:
    model = built(lambda h, i: block(h))
    rolled, unrolled = session(model), session(model, "O1")
    inner = "block2/up/MatMul:0"
    for fetches in [[model.loss], [model.train, model.loss], [model.loss], [inner], [model.train]]:
        feeds = {"x": data()["x"]} if fetches == [inner] else data()
        a, b = rolled.run(fetches, feeds)[-1], unrolled.run(fetches, feeds)[-1]
        if a is not None:
            assert_near(a, b, rtol=1e-8)
    agree(rolled, unrolled)


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("name", ["plain", "batch norm", "clipped, decayed"])
def test_on_two_devices_as_on_one(name: str) -> None:
    model = MODELS[name]()
    one = session(model)
    two = session(model, strategy=gc.devices.DataParallel(2))
    for _ in range(STEPS):
        for sess in (one, two):
            sess.run([model.train, model.loss], data())
    assert len(loops(two)) == 2
    agree(one, two)


@pytest.mark.slow
def test_replicas_exchange_what_is_stacked_at_once() -> None:
    counts = []
    for blocks in (4, 8):
        model = built(lambda h, i: block(h), blocks=blocks)
        step = gc.compile(
            model.graph,
            [model.train, model.loss],
            {"x": (ROWS, WIDTH), "y": (ROWS, WIDTH)},
            strategy=gc.devices.DataParallel(2, bucket_bytes=None),
        )
        counts.append(step.stablehlo().count("all_reduce"))
    assert counts[0] == counts[1]


def test_a_function_of_jax_is_rolled_too() -> None:
    import jax
    from jax import numpy as jnp

    def network(params, x):
        for p in params:
            h = jnp.tanh(x @ p["w"] + p["b"])
            h = h - h.mean(-1, keepdims=True)
            x = x + h * jax.lax.rsqrt(jnp.square(h).mean(-1, keepdims=True) + 1e-5)
        return jnp.square(x).mean()

    rng = np.random.default_rng(0)
    start = [
        {"w": rng.standard_normal((WIDTH, WIDTH)), "b": rng.standard_normal(WIDTH)}
        for _ in range(6)
    ]
    tx = optax.adam(1e-2)

    def step(params, opt_state, x):
        loss, slopes = jax.value_and_grad(network)(params, x)
        updates, opt_state = tx.update(slopes, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    graph = gc.Graph()
    with jax.enable_x64(True), graph:
        x = gc.placeholder((ROWS, WIDTH), F64, name="x")
        state = jax.tree.map(gc.variable, (start, tx.init(start)))
        *new, loss = gc.from_jax(step)(*state, x)
        assigned = jax.tree.map(lambda v, t: v.assign(t), state, tuple(new))
        train = gc.group(*jax.tree.leaves(assigned), name="train")
    model = Model(graph, train, loss)
    rolled, unrolled = session(model), session(model, "O1")
    for sess in (rolled, unrolled):
        for _ in range(STEPS):
            sess.run([train, loss], {"x": data()["x"]})
    assert len(loops(rolled)) == 2
    agree(rolled, unrolled)
