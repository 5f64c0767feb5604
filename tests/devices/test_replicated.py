"""Programs on several devices compute the same values as on one."""

from __future__ import annotations

import re

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

import graphc as gc
from graphc.devices import DataParallel
from graphc.errors import DeviceError, LayoutError
from graphc.runtime.targets import replicated
from tests.near import assert_near

REPLICAS = 4
SIZES = (6, 5, 3)


def adam(v, gradient):
    """One Adam step written with graph operators; returns its assignments."""
    zeros = np.zeros(tuple(map(int, v.shape)), v.dtype)
    m = gc.variable(zeros, name=f"{v.name}/m")
    s = gc.variable(zeros, name=f"{v.name}/s")
    m_next = m.read() * 0.9 + gradient * 0.1
    s_next = s.read() * 0.99 + gradient * gradient * 0.01
    step = 0.01 * m_next / (gc.sqrt(s_next) + 1e-8)
    return [m.assign(m_next), s.assign(s_next), v.assign(v.read() - step)]


def perceptron(dtype="float64", update=adam):
    """A graph with x, y, out, loss and train in its collection "parts"."""
    rng = np.random.default_rng(3)
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, SIZES[0]), dtype, name="x")
        y = gc.placeholder((None, SIZES[2]), dtype, name="y")
        w1 = gc.variable(rng.normal(size=SIZES[:2]).astype(dtype), name="w1")
        b1 = gc.variable(np.zeros(SIZES[1], dtype), name="b1")
        w2 = gc.variable(rng.normal(size=SIZES[1:]).astype(dtype), name="w2")
        out = gc.matmul(gc.tanh(gc.matmul(x, w1) + b1), w2)
        loss = gc.reduce_mean(gc.square(out - y))
        variables = [w1, b1, w2]
        gradients = gc.gradients(loss, variables)
        train = gc.group([update(v, g) for v, g in zip(variables, gradients, strict=True)])
    return graph, x, y, out, loss, train


def batch(rows=8, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(rows, n)).astype(dtype) for n in (SIZES[0], SIZES[2])]


def compiled(strategy, rows=8, dtype="float64", **options):
    graph, x, y, out, loss, train = perceptron(dtype)
    feeds = {x: (rows, SIZES[0]), y: (rows, SIZES[2])}
    return gc.compile(
        graph, [train, loss, out], feeds, strategy=strategy, options=gc.CompileOptions(**options)
    )


def hand_written_adam():
    """The same step in plain JAX: `psum` of every gradient and of the loss."""

    def local_loss(params, x, y):
        w1, b1, w2 = params
        out = jnp.tanh(x @ w1 + b1) @ w2
        return jnp.sum(jnp.square(out - y)) / (REPLICAS * y.size)

    def step(params, m, s, x, y):
        loss, gradients = jax.value_and_grad(local_loss)(params, x, y)
        loss, gradients = jax.lax.psum((loss, gradients), "replica")
        m = [0.9 * a + 0.1 * g for a, g in zip(m, gradients, strict=True)]
        s = [0.99 * a + 0.01 * g * g for a, g in zip(s, gradients, strict=True)]
        params = [p - 0.01 * a / (jnp.sqrt(b) + 1e-8) for p, a, b in zip(params, m, s, strict=True)]
        return params, m, s, loss

    shapes = [SIZES[:2], (SIZES[1],), SIZES[1:]]
    weights = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    feeds = [jax.ShapeDtypeStruct((REPLICAS, 2, n), jnp.float32) for n in (SIZES[0], SIZES[2])]
    return jax.pmap(
        step, axis_name="replica", in_axes=(None, None, None, 0, 0), out_axes=None
    ).lower(weights, weights, weights, *feeds)


def reduced_arrays(hlo: str) -> int:
    """The number of arrays in the all-reduces of a compiled program, joined or separate."""
    calls = re.findall(r"= (\([^)]*\)|\S+) all-reduce(?:-start)?\(", hlo)
    return sum(len(re.findall(r"\w+\[[^]]*\]", call)) for call in calls)


def test_a_training_step_has_the_collectives_of_one_written_by_hand() -> None:
    step = compiled(DataParallel(REPLICAS, bucket_bytes=None), dtype="float32")
    lowered = hand_written_adam()
    by_hand = lowered.as_text().count("stablehlo.all_reduce")
    assert step.stablehlo().count("stablehlo.all_reduce") == by_hand == 4
    assert reduced_arrays(step.hlo()) == reduced_arrays(lowered.compile().as_text()) == 4
    for other in ("all-gather", "collective-permute", "all-to-all"):
        assert other not in step.hlo()


@pytest.mark.parametrize(
    ("dtype", "steps", "atol"), [("float64", 50, 1e-12), ("float32", 20, 1e-4)]
)
def test_training_equals_one_device(dtype: str, steps: int, atol: float) -> None:
    one, four = compiled(None, dtype=dtype), compiled(DataParallel(REPLICAS), dtype=dtype)
    a, b = one.init(), four.init()
    for i in range(steps):
        feeds = dict(zip("xy", batch(seed=i, dtype=dtype), strict=True))
        (_, loss, out), a = one(a, feeds)
        (_, loss4, out4), b = four(b, feeds)
        assert_near(np.asarray(loss4), np.asarray(loss), rtol=1e-7, atol=atol)
        assert_near(np.asarray(out4), np.asarray(out), rtol=1e-7, atol=atol)
    for name in a:
        assert_near(np.asarray(b[name]), np.asarray(a[name]), rtol=1e-7, atol=atol)


def test_many_steps_in_a_row() -> None:
    """Without a bound on queued steps, collectives starve each other of threads, and JAX aborts."""
    step = compiled(DataParallel(REPLICAS), dtype="float32")
    state = step.init()
    feeds = dict(zip("xy", batch(dtype="float32"), strict=True))
    for _ in range(2000):
        (_, loss, _), state = step(state, feeds)
    assert float(loss) < 1e-3


def test_state_has_no_leading_device_axis_and_is_donated() -> None:
    step = compiled(DataParallel(REPLICAS))
    start = step.init()
    old = start.buffers[0]
    assert start["w1"].shape == SIZES[:2] and old.sharding.is_fully_replicated
    assert len(old.sharding.device_set) == REPLICAS
    (_, loss, out), state = step(start, dict(zip("xy", batch(), strict=True)))
    assert old.is_deleted()
    assert state["w1"].sharding.is_fully_replicated
    assert out.shape == (8, SIZES[2]) and not out.sharding.is_fully_replicated
    assert loss.shape == ()
    assert step.memory()["aliased"] > 0


def test_without_donation_the_old_state_lives_on() -> None:
    step = compiled(DataParallel(REPLICAS), donate=False)
    start = step.init()
    feeds = dict(zip("xy", batch(), strict=True))
    (_, first, _), _ = step(start, feeds)
    (_, again, _), _ = step(start, feeds)
    assert float(first) == float(again)


def test_a_value_set_from_a_jax_array_is_the_sessions_own() -> None:
    graph, x, y, _, _, train = perceptron()
    session = gc.Session(graph, strategy=DataParallel(REPLICAS))
    with jax.enable_x64(True):
        mine = jnp.ones(SIZES[:2])
    session.set("w1", mine)
    xs, ys = batch()
    session.run(train, {x: xs, y: ys})
    session.run(train, {x: xs, y: ys})
    assert not mine.is_deleted()
    assert np.all(np.asarray(mine) == 1)


def test_feeds_may_lie_on_devices_already() -> None:
    step = compiled(DataParallel(REPLICAS))
    xs, ys = batch()
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:REPLICAS]), ("any",))
    state = step.init()
    losses = []
    for where in (None, jax.devices()[0], jax.devices()[3],
                  NamedSharding(mesh, PartitionSpec("any")),
                  NamedSharding(mesh, PartitionSpec(None))):  # fmt: skip
        with jax.enable_x64(True):
            fed = xs if where is None else jax.device_put(xs, where)
        (_, loss, _), _ = step(state, {"x": fed, "y": ys})
        losses.append(float(loss))
        state = step.init()
    assert len(set(losses)) == 1


def test_a_feed_written_to_after_the_call_does_not_change_the_result() -> None:
    step = compiled(DataParallel(REPLICAS), rows=4096)
    xs, ys = batch(4096)
    (_, expected, _), _ = step(step.init(), {"x": xs.copy(), "y": ys.copy()})
    for _ in range(10):
        mine = xs.copy()
        (_, loss, _), _ = step(step.init(), {"x": mine, "y": ys})
        mine[:] = 0
        assert float(loss) == float(expected)


def test_a_feed_cut_along_another_axis() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((3, None, 2), "float64", name="x", batch_axis=1)
        rows = gc.reduce_sum(x, 0)
        doubled = x * 2.0
        top = gc.reduce_max(x)
    session = gc.Session(graph, strategy=DataParallel(REPLICAS))
    xs = np.random.default_rng(0).normal(size=(3, 8, 2))
    got = session.run([rows, doubled, top, x], {x: xs})
    for value, wanted in zip(got, (xs.sum(0), xs * 2, xs.max(), xs), strict=True):
        assert_near(np.asarray(value), wanted, rtol=1e-7, atol=1e-15)


@pytest.mark.parametrize("rows", [8, 7])
def test_a_tensor_fed_in_the_middle_is_split_like_the_placeholder(rows: int) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None, 3), name="x")
        columns = gc.transpose(gc.tanh(x), name="columns")
        total = gc.reduce_sum(gc.square(columns), name="total")
        twice, both = columns * 2, gc.reduce_mean(columns) + gc.reduce_max(x)
    feeds = {columns: np.arange(3.0 * rows).reshape(3, rows), x: -np.ones((rows, 3))}
    alone = gc.Session(graph, unused_feeds="ignore").run([twice, total, both], feeds)
    session = gc.Session(graph, strategy=DataParallel(REPLICAS), unused_feeds="ignore")
    for got, want in zip(session.run([twice, total, both], feeds), alone, strict=True):
        assert np.array_equal(got, want)
    assert np.array_equal(session.run(total, {columns: feeds[columns]}), alone[1])


def test_sums_shared_weights_and_extremes_equal_one_device() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 4), "float64", name="x")
        w = gc.variable(np.random.default_rng(1).normal(size=(4, 4)), name="w")
        h = gc.tanh(gc.matmul(x, w))
        h = gc.matmul(gc.matmul(h, w), gc.transpose(w))
        loss = gc.reduce_sum(gc.square(h)) + gc.reduce_max(h) * 2 + gc.reduce_sum(gc.square(w))
        (gradient,) = gc.gradients(loss, [w])
        norm = gc.sqrt(gc.reduce_sum(gc.square(gradient)))
        least = gc.reduce_min(h, 0)
        train = w.assign(w.read() - 0.01 * gradient / norm)
    fetches = [train, loss, norm, least, gc.cumsum(h, 0)]
    feeds = {x: np.random.default_rng(2).normal(size=(8, 4))}
    alone = gc.Session(graph).run(fetches, feeds)
    together = gc.Session(graph, strategy=DataParallel(REPLICAS)).run(fetches, feeds)
    for a, b in zip(alone, together, strict=True):
        assert_near(np.asarray(b), np.asarray(a), rtol=1e-12, atol=1e-12)


def test_batch_statistics_are_those_of_the_whole_batch() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 4), "float64", name="x")
        w = gc.variable(np.random.default_rng(1).normal(size=(4, 4)), name="w")
        h = gc.matmul(x, w)
        centred = h - gc.reduce_mean(h, 0, keepdims=True)
        scale = gc.rsqrt(gc.reduce_mean(gc.square(centred), 0, keepdims=True) + 1e-5)
        loss = gc.reduce_mean(gc.sigmoid(centred * scale))
        (gradient,) = gc.gradients(loss, [w])
    feeds = {x: np.random.default_rng(2).normal(size=(8, 4))}
    alone = gc.Session(graph).run([loss, gradient], feeds)
    together = gc.Session(graph, strategy=DataParallel(REPLICAS)).run([loss, gradient], feeds)
    for a, b in zip(alone, together, strict=True):
        assert_near(np.asarray(b), np.asarray(a), rtol=1e-12, atol=1e-12)


def recurrent():
    """A trained loop over time. The batch is the second axis of the scanned values."""
    rng = np.random.default_rng(0)
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((5, None, 3), "float64", name="x", batch_axis=1)
        w = gc.variable(rng.normal(size=(7, 4)) * 0.3, name="w")
        rows = x.shape[1]

        def step(carry, x_t):
            h, total, sums = carry
            h = gc.tanh(gc.matmul(gc.concatenate([x_t, h], 1), w))
            carry = (h, total + gc.reduce_sum(gc.square(h)), sums + gc.reduce_sum(h, 1))
            return carry, gc.reduce_mean(h)

        first = (
            gc.zeros((rows, 4), "float64"),
            gc.zeros((), "float64"),
            gc.zeros((rows,), "float64"),
        )
        (h, total, sums), means = gc.scan(step, first, x)
        loss = gc.reduce_mean(gc.square(h)) + total * 0.1 + gc.reduce_mean(sums)
        (gradient,) = gc.gradients(loss, [w])
        train = w.assign(w.read() - 0.1 * gradient)
    return graph, [train, loss, h, sums, means]


def test_a_loop_over_time_equals_one_device_with_no_collective_inside() -> None:
    graph, fetches = recurrent()
    shape = {"x": (5, 8, 3)}
    one = gc.compile(graph, fetches, shape)
    four = gc.compile(graph, fetches, shape, strategy=DataParallel(REPLICAS))
    # The gradient, the loss and the stack of means share one bucket.
    assert four.stablehlo().count("stablehlo.all_reduce") == 1
    assert "stablehlo.all_gather" not in four.stablehlo()
    a, b = one.init(), four.init()
    for i in range(3):
        feeds = {"x": np.random.default_rng(i).normal(size=shape["x"])}
        alone, a = one(a, feeds)
        together, b = four(b, feeds)
        for p, q in zip(alone, together, strict=True):
            assert_near(np.asarray(q), np.asarray(p), rtol=1e-12, atol=1e-12)


def test_masks_differ_between_replicas_and_repeat_between_runs() -> None:
    graph = gc.Graph(seed=5)
    with graph:
        x = gc.placeholder((None, 64), "float32", name="x")
        y = gc.nn.dropout(x, rate=0.5)
    feeds = {x: np.ones((8, 64), np.float32)}
    first = np.asarray(gc.Session(graph, strategy=DataParallel(REPLICAS)).run(y, feeds))
    again = np.asarray(gc.Session(graph, strategy=DataParallel(REPLICAS)).run(y, feeds))
    np.testing.assert_array_equal(first, again)
    pieces = first.reshape(REPLICAS, 2, 64)
    assert all(not np.array_equal(pieces[0], piece) for piece in pieces[1:])


def test_nothing_fetched_and_devices_chosen_by_name() -> None:
    graph, x, y, _, loss, train = perceptron("float32")
    strategy = DataParallel(["/cpu:3", "/cpu:1"])
    session = gc.Session(graph, strategy=strategy)
    xs, ys = batch(dtype="float32")
    before = float(session.run(loss, {x: xs, y: ys}))
    for _ in range(20):
        assert session.run(train, {x: xs, y: ys}) is None
    after = session.run(loss, {x: xs, y: ys})
    assert float(after) < before
    assert {d.id for d in after.sharding.device_set} == {1, 3}


def test_one_replica_is_one_device() -> None:
    one, same = compiled(None), compiled(DataParallel(1))
    feeds = dict(zip("xy", batch(), strict=True))
    (_, loss, _), _ = one(one.init(), feeds)
    (_, again, _), _ = same(same.init(), feeds)
    assert_near(float(again), float(loss), rtol=1e-14)


def test_what_is_gathered_is_in_the_executables_notes() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None,), "float32", name="x")
        total = gc.cumsum(x, 0)
    step = gc.compile(graph, total, {x: (8,)}, strategy=DataParallel(REPLICAS))
    (note,) = step.notes
    assert re.fullmatch(r"gathered x for CumSum at .*test_replicated\.py:\d+: .*axis 0", note)


def graph_with_no_batch() -> gc.Graph:
    graph = gc.Graph()
    with graph:
        gc.exp(gc.placeholder((3,), name="x"), name="y")
    return graph


def test_errors_reach_the_user() -> None:
    graph, x, y, _, loss, _ = perceptron()
    with pytest.raises(LayoutError, match="no feed has a batch axis"):
        gc.compile(graph_with_no_batch(), "y", {"x": (3,)}, strategy=DataParallel(REPLICAS))
    with pytest.raises(DeviceError, match="64 devices requested"):
        gc.Session(graph, strategy=DataParallel(64))


def test_penalties_on_parameters_count_once() -> None:
    """Replicas with few rows or none count the penalty no less, and several replicas no more."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 3), "float64", name="x")
        h = gc.nn.Dense(4, dtype="float64", name="hidden")(x)
        y = gc.nn.Dense(1, dtype="float64", name="out")(gc.tanh(h))
        graph.add_to_collection("losses", gc.reduce_mean(gc.square(y - 1.0)))
        for v in graph.variables.values():
            graph.add_to_collection("losses", gc.reduce_sum(gc.square(v)) * 0.3)
        graph.add_to_collection("losses", gc.reduce_mean(gc.square(h)) * 0.1)  # of activations
        loss = sum(graph.collection("losses"))
        train = gc.minimize(loss, optax.sgd(0.1))
    alone, together = gc.Session(graph), gc.Session(graph, strategy=DataParallel(REPLICAS))
    for rows in (8, 5):
        feeds = {x: np.random.default_rng(rows).normal(size=(rows, 3))}
        wanted, found = (float(s.run([train, loss], feeds)[1]) for s in (alone, together))
        assert_near(found, wanted, rtol=1e-9)
    after = together.values()
    for name, value in alone.values().items():
        assert_near(after[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("rows", [8, 6])
@pytest.mark.parametrize("shard_optimizer", [False, True])
def test_by_shard_map_the_numbers_are_those_by_pmap(
    shard_optimizer: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests even and uneven batches, sharded and replicated fetches, and dropout, whose masks
    depend on the replica."""
    found = []
    for form in ("pmap", "shard_map"):
        monkeypatch.setattr(replicated, "MAPPED_BY", form)
        if form == "shard_map":
            monkeypatch.delattr(jax, "pmap")
        with gc.Graph(seed=1) as graph:
            x = gc.placeholder((None, 6), "float64", name="x")
            hidden = gc.nn.Dense(8, activation=gc.tanh, name="hidden")(x)
            out = gc.nn.Dense(1, name="out")(gc.nn.dropout(hidden, 0.5))
            loss = gc.reduce_mean(gc.square(out - gc.reduce_max(x, axis=1, keepdims=True)))
            train = gc.minimize(loss, optax.adam(0.01))
        strategy = DataParallel(REPLICAS, shard_optimizer=shard_optimizer)
        session = gc.Session(graph, strategy=strategy, options=gc.CompileOptions(cache=None))
        fed = {x: batch(rows)[0]}
        steps = [session.run([train, loss, out], fed)[1:] for _ in range(3)]
        found.append([*[np.asarray(v) for step in steps for v in step], *session.values().values()])
    for a, b in zip(*found, strict=True):
        assert_near(b, a, rtol=1e-12)


EMPTY = {
    "scan": lambda x: gc.scan(lambda c, row: (c + row, c), gc.zeros((3,)), x)[0],
    "sort": lambda x: gc.sort(x, 0),
    "sum": lambda x: gc.reduce_sum(x, 0),
    "outer product": lambda x: x @ gc.transpose(x),
    "several rows as one": lambda x: gc.reshape(gc.concatenate([x, x], 0), (-1,)),
    "vmap": lambda x: gc.vmap(gc.sort)(x),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_batch_without_rows(name, replicas):
    with gc.Graph() as graph:
        x = gc.placeholder((None, 3), name="x")
        y = EMPTY[name](x)
    feeds = {x: np.zeros((0, 3), np.float32)}
    wanted = np.asarray(gc.Session(graph).run(y, feeds))
    session = gc.Session(graph, strategy=gc.devices.DataParallel(replicas))
    found = np.asarray(session.run(y, feeds))
    assert found.shape == wanted.shape and np.array_equal(found, wanted)
    assert np.asarray(session.run(y, {x: np.ones((5, 3), np.float32)})).size > 0
