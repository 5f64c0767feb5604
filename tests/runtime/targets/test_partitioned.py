"""Programs that run over several devices: results, state, the cache, loops of steps, errors."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.config import CompileOptions
from graphc.errors import DeviceError, NumericsError
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.targets.partitioned import PartitionedProgram
from tests.near import assert_near

CPU = jax.devices("cpu")
ONE, FOUR = ["/cpu:0"] * 4, [f"/cpu:{i}" for i in range(4)]


def layered(
    places: list[str], dtype: str = "float64", **minimize: Any
) -> tuple[gc.Graph, gc.Tensor, gc.Tensor, gc.Tensor, gc.Node]:
    """Four layers, each on its own device; the loss is on the device of the last layer."""
    g = gc.Graph(seed=0)
    with g:
        x = gc.placeholder((None, 6), dtype, name="x")
        y = gc.placeholder((None, 2), dtype, name="y")
        h = x
        for i, place in enumerate(places):
            with gc.device(place):
                width = 5 if i < 3 else 2
                h = gc.nn.Dense(width, activation=gc.tanh, name=f"layer{i}", dtype=dtype)(h)
        with gc.device(places[-1]):
            loss = gc.reduce_mean(gc.square(h - y), name="loss")
        train = gc.minimize(loss, optax.adam(1e-2), name="train", **minimize)
    return g, x, y, loss, train


def batches(count: int, dtype: str = "float64", rows: int = 8) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(1)
    return [
        (rng.normal(size=(rows, 6)).astype(dtype), rng.normal(size=(rows, 2)).astype(dtype))
        for _ in range(count)
    ]


@cache
def on_one_device(dtype: str) -> tuple[Any, dict[str, Any]]:
    """Losses and variables of the same training on one device."""
    losses, sess = trained(ONE, dtype)
    return losses, sess.values()


def trained(places: list[str], dtype: str = "float64", **minimize: Any) -> tuple[Any, gc.Session]:
    g, x, y, loss, train = layered(places, dtype, **minimize)
    sess = gc.Session(g)
    losses = [sess.run([train, loss], {x: a, y: b})[1] for a, b in batches(20, dtype)]
    return np.array([float(value) for value in losses]), sess


def partition_of(sess: gc.Session) -> PartitionedProgram:
    made = sess.executables[0].stages.in_jax
    assert isinstance(made, PartitionedProgram)
    return made


@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-9), ("float32", 1e-4)])
def test_four_devices_equal_one(dtype: str, bound: float) -> None:
    expected, values = on_one_device(dtype)
    got, sess = trained(FOUR, dtype)
    assert_near(got, expected, rtol=bound)
    for name, value in values.items():
        assert_near(sess.values()[name], value, rtol=bound, atol=bound, err_msg=name)
    assert sess.compile_count == 1
    made = partition_of(sess)
    # Forward through the devices and back, with as few clusters as possible.
    assert [c.device[-1] for c in made.partition.clusters] == list("0123210")
    for i in range(4):
        for name in (f"layer{i}/kernel", f"layer{i}/kernel/train/0/mu"):
            assert sess.get(name).devices() == {CPU[i]}, name
    (step,) = sess.executables
    assert step.devices == tuple(CPU) and step.memory()["arguments"] > 0
    assert step.hlo().count("HloModule") == 7 and step.cost()["flops"] > 0
    assert "stablehlo" in step.stablehlo()


@pytest.mark.slow
def test_micro_batches_run_through_the_stages() -> None:
    expected, _ = on_one_device("float64")
    got, sess = trained(FOUR, accumulate=4)
    assert_near(got, expected, rtol=1e-9)
    made = partition_of(sess)
    turns = [c.micro_batch for c in made.partition.clusters]
    assert [turns.count(m) for m in range(4)] == [7, 7, 7, 7]
    assert len(made.kernels) == len(turns) - 3 * 7  # each is compiled once for all micro-batches


@pytest.mark.slow
def test_steps_in_one_call_and_ahead_of_time() -> None:
    g, x, y, loss, train = layered(FOUR)
    data = batches(6)
    sess = gc.Session(g)
    singly = [float(sess.run([train, loss], {x: a, y: b})[1]) for a, b in data]
    again = gc.Session(g)
    _, losses = again.run_steps([train, loss], ({x: a, y: b} for a, b in data), 6)
    assert_near(losses, singly, rtol=1e-12)
    assert losses.devices() == {CPU[3]}
    step = gc.compile(g, [train, loss], {x: (8, 6), y: (8, 2)})
    state = step.init()
    for (a, b), expected in zip(data, singly, strict=True):
        (_, value), new = step(state, {x: a, y: b})
        assert float(value) == pytest.approx(expected, rel=1e-12)
        with pytest.raises(gc.errors.StateError, match="consumed"):
            state["layer0/kernel"]
        state = new
    assert_near(state["layer3/kernel"], sess.get("layer3/kernel"), rtol=1e-12)


@pytest.mark.slow
def test_the_cache_serves_it() -> None:
    expected, first = trained(FOUR)
    assert not first.executables[0].cached
    got, second = trained(FOUR)
    assert second.executables[0].cached
    np.testing.assert_array_equal(got, expected)
    _, elsewhere = trained(["/cpu:1", "/cpu:0", "/cpu:2", "/cpu:3"])
    assert not elsewhere.executables[0].cached


@pytest.mark.slow
def test_random_streams_control_flow_and_statistics_cross_the_cut() -> None:
    def run(first: str, second: str) -> tuple[Any, dict[str, Any]]:
        g = gc.Graph(seed=3)
        with g:
            x = gc.placeholder((None, 4), "float64", name="x")
            with gc.device(first):
                h = gc.nn.BatchNorm(name="norm", dtype="float64")(x, training=True)
                h = gc.nn.dropout(h, 0.4)
                h, _ = gc.scan(lambda c, i: (gc.tanh(c) * 1.1, c), h, gc.arange(3))
            with gc.device(second):
                noise = gc.random.normal((4,), dtype="float64")
                h = gc.cond(gc.reduce_sum(h) > 0.0, lambda: h * 2.0, lambda: h - noise)
                h = gc.nn.Dense(3, name="out", dtype="float64")(h)
                loss = gc.reduce_mean(gc.square(h), name="loss")
            train = gc.minimize(loss, optax.sgd(0.1), name="train")
        sess = gc.Session(g)
        values = [sess.run([train, loss, h], {x: a[:, :4]})[1:] for a, _ in batches(5)]
        kind = sess.executables[0].interface.kind
        assert kind == ("single" if first == second else "partitioned")
        return [[np.array(v) for v in row] for row in values], sess.values()

    expected, state = run("/cpu:1", "/cpu:1")
    got, other = run("/cpu:1", "/cpu:2")
    for rows in zip(got, expected, strict=True):
        for a, b in zip(*rows, strict=True):
            assert_near(a, b, rtol=1e-9)
    for name, value in state.items():
        assert_near(other[name], value, rtol=1e-9, err_msg=name)


def test_an_embedding_on_another_device_than_the_dense_part() -> None:
    """The table is not moved: only the used rows and their gradients are transferred."""
    g = gc.Graph(seed=0)
    with g:
        ids = gc.placeholder((16,), "int32", name="ids")
        with gc.device("/cpu:1"):
            table = gc.variable(np.ones((1000, 8), "float32"), name="table")
            rows = gc.take(table, ids, axis=0)
        out = gc.nn.Dense(1, name="dense")(rows)
        loss = gc.reduce_mean(gc.square(out - 1.0), name="loss")
        train = gc.minimize(loss, optax.adagrad(0.1), name="train")
    sess = gc.Session(g)
    first = float(sess.run([train, loss], {ids: np.arange(16, dtype="int32")})[1])
    for _ in range(10):
        last = float(sess.run([train, loss], {ids: np.arange(16, dtype="int32")})[1])
    assert last < first
    assert sess.get("table").devices() == {CPU[1]}
    assert sess.get("dense/kernel").devices() == {CPU[0]}
    sizes = [int(np.prod(s.tensor.type.shape)) for s in partition_of(sess).partition.sends]
    assert sizes and max(sizes) == 16 * 8


def test_variables_are_set_moved_and_fetched_across_devices() -> None:
    g = gc.Graph()
    with g:
        with gc.device("/cpu:1"):
            v = gc.variable(np.arange(3.0), name="v")
        with gc.device("/cpu:2"):
            w = gc.variable(np.arange(3.0) + 10, name="w")
        a, b = v.read(), w.read()
        swap = gc.group(v.assign(b), w.assign(a))
    sess = gc.Session(g)
    for turn in range(3):
        _, new_v, new_w, old = sess.run([swap, v, w, a])
        low, high = ([10, 11, 12], [0, 1, 2]) if turn % 2 == 0 else ([0, 1, 2], [10, 11, 12])
        assert new_v.tolist() == low and new_w.tolist() == high and old.tolist() == high
    assert old.devices() == {CPU[1]} and sess.get("w").devices() == {CPU[2]}
    kept = sess.run(v)
    sess.set("v", [7.0, 8.0, 9.0])
    sess.run(swap)
    assert sess.get("w").tolist() == [7, 8, 9] and kept.tolist() == [10, 11, 12]
    assert sess.get("v").devices() == {CPU[1]}


def test_a_step_without_fetches_is_bounded_and_waited_for() -> None:
    g, x, y, loss, train = layered(FOUR)
    sess = gc.Session(g, options=CompileOptions(max_in_flight=1))
    for a, b in batches(5):
        assert sess.run(train, {x: a, y: b}) is None
    expected, _ = on_one_device("float64")
    (a, b) = batches(6)[5]
    assert float(sess.run(loss, {x: a, y: b})) == pytest.approx(expected[5], rel=1e-9)


def test_checks_of_numerics_name_the_node() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((2,), "float32", name="x")
        with gc.device("/cpu:1"):
            y = gc.log(x, name="bad")
        with gc.device("/cpu:2"):
            z = gc.exp(y, name="z")
    sess = gc.Session(g, options=CompileOptions(check_numerics=True))
    assert sess.run(z, {x: np.ones(2, "float32")}).tolist() == [1, 1]
    with pytest.raises(NumericsError, match="'bad'"):
        sess.run(z, {x: -np.ones(2, "float32")})


@pytest.mark.slow
def test_other_options_and_what_cannot_be() -> None:
    expected, _ = on_one_device("float32")
    for options in (
        CompileOptions(pipeline="O0"),
        CompileOptions(pipeline="O3", donate=False),
    ):
        g, x, y, loss, train = layered(FOUR, "float32")
        sess = gc.Session(g, options=options)
        for (a, b), value in zip(batches(3, "float32"), expected, strict=False):
            assert float(sess.run([train, loss], {x: a, y: b})[1]) == pytest.approx(value, rel=1e-4)
    g, x, y, loss, train = layered(FOUR)
    sess = gc.Session(g, options=CompileOptions(memory_limit="1GiB"))
    (a, b), *_ = batches(1)
    with pytest.raises(DeviceError, match="the limit is for one"):
        sess.run([train, loss], {x: a, y: b})


def test_requests_that_no_device_fits() -> None:
    g, x, y, loss, train = layered(["/gpu:0", "/gpu:1", "/cpu:0", "/cpu:0"])
    (a, b), *_ = batches(1)
    step = gc.compile(g, [train, loss], {x: (8, 6), y: (8, 2)})
    assert step.devices == (CPU[0],)
    assert sum("no device /device:GPU:" in note for note in step.notes) == 2
    with pytest.raises(DeviceError, match="no device '/device:GPU:0'") as error:
        gc.Session(g, soft_placement=False).run([train, loss], {x: a, y: b})
    assert "test_partitioned.py" in str(error.value)


def test_strategies_override_devices() -> None:
    g, x, y, loss, train = layered(FOUR)
    expected, _ = on_one_device("float64")
    sess = gc.Session(g, strategy=gc.devices.DataParallel(2))
    for (a, b), value in zip(batches(3), expected, strict=False):
        assert float(sess.run([train, loss], {x: a, y: b})[1]) == pytest.approx(value, rel=1e-9)
    assert any("overrides requested devices" in note for note in sess.executables[0].notes)


@pytest.mark.slow
def test_it_lowers_for_gpus() -> None:
    _, sess = trained(FOUR, "float32", accumulate=2)
    lowered = partition_of(sess).lower(platforms=("cuda",))
    text = lowered.as_text()
    assert len(lowered.parts) == len(partition_of(sess).kernels)
    assert text.count("module @jit_cluster") + text.count("func.func public @main") >= len(
        lowered.parts
    )


def test_a_failing_step_leaves_what_was() -> None:
    g, x, y, loss, train = layered(FOUR)

    def fail(value: Any) -> Any:
        if value > 0.1:
            raise ValueError("not today")
        return value

    with g, gc.device("/cpu:3"):
        checked = gc.py_callback(fail, gc.TensorSpec((), "float64"), loss)
    sess = gc.Session(g)
    before = sess.values()
    (a, b), *_ = batches(1)
    with pytest.raises(gc.errors.GraphcError, match="not today"):
        sess.run([train, checked], {x: a, y: b})
    for name, value in sess.values().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    sess.run([train, checked], {x: a * 0, y: b * 0})


@pytest.mark.slow
def test_later_steps_compile_nothing_and_leave_nothing() -> None:
    g, x, y, loss, train = layered(FOUR, accumulate=2)
    sess = gc.Session(g)
    data = batches(4)
    for turn in range(60):
        a, b = data[turn % 4]
        value = sess.run([train, loss], {x: a, y: b})[1]
        if turn == 3:
            float(value)
            before, arrays = COUNTERS.snapshot(), len(jax.live_arrays())
    assert float(value) < 10.0
    assert COUNTERS.snapshot() == before and sess.compile_count == 1
    assert len(jax.live_arrays()) == arrays


def test_nodes_without_operands_are_on_the_requested_device() -> None:
    with gc.Graph() as g:
        with gc.device("/cpu:1"):
            v = gc.variable(np.ones(3), name="v")
            c = gc.constant(np.full(3, 2.0), name="c")
            a = v.assign(gc.constant(np.zeros(3)))
        with gc.device("/cpu:2"):
            d = gc.constant(np.full(2, 3.0), name="d")
    sess = gc.Session(g)
    assert sess.run(c).devices() == {CPU[1]}
    got = sess.run([c, d, a])
    assert [value.devices() for value in got] == [{CPU[1]}, {CPU[2]}, {CPU[1]}]
    assert sess.get("v").devices() == {CPU[1]} and sess.get("v").tolist() == [0, 0, 0]
    again = gc.Session(g)
    again.run([c, d, a])
    assert again.executables[0].cached


def test_the_base_does_not_depend_on_what_runs_first() -> None:
    with gc.Graph(seed=0) as g:
        x = gc.placeholder((None, 3), "float32", name="x")
        with gc.device("/cpu:1"):
            count = gc.variable(np.int32(0), name="count")
        loss = gc.reduce_sum(gc.nn.Dense(2, name="dense")(x))
        train = gc.group(gc.minimize(loss, optax.sgd(0.1), name="train"), count.assign_add(1))
    sess = gc.Session(g)
    assert sess.run(count).devices() == {CPU[1]}
    sess.run(train, {x: np.ones((2, 3), "float32")})
    assert sess.get("dense/kernel").devices() == {CPU[0]}
    assert sess.get("count").devices() == {CPU[1]} and int(sess.get("count")) == 1


def test_calls_of_python_keep_their_order_across_devices() -> None:
    seen: list[str] = []

    def note(name: str) -> Any:
        return lambda value: (seen.append(name), value)[1]

    with gc.Graph() as g:
        x = gc.placeholder((200,), "float32", name="x")
        with gc.device("/cpu:3"):
            m = gc.sort(gc.exp(x))
        spec = gc.TensorSpec((200,), "float32")
        with gc.device("/cpu:1"):
            first = gc.py_callback(note("first"), spec, m)
        with gc.device("/cpu:2"):
            second = gc.py_callback(note("second"), spec, x)
        with gc.device("/cpu:1"):
            third = gc.py_callback(lambda value: seen.append("third"), None, x)
    sess = gc.Session(g)
    for _ in range(3):
        sess.run([third, second, first], {x: np.ones(200, "float32")})
    assert seen == ["first", "second", "third"] * 3


def test_steps_in_flight_are_bounded_on_every_device() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((), "float32", name="x")
        with gc.device("/cpu:2"):
            v = gc.variable(np.eye(300, dtype="float32"), name="v")
            heavy = v.read()
            for _ in range(12):
                heavy = gc.tanh(gc.matmul(heavy, heavy))
            slow = v.assign(heavy + x)
        with gc.device("/cpu:1"):
            quick = x + 1.0
    sess = gc.Session(g, options=CompileOptions(max_in_flight=1))
    sess.run([slow.node, quick], {x: 1.0})
    for _ in range(3):
        sess.run([slow.node, quick], {x: 1.0})
        waiting = sess.executables[0].executor._in_flight._waiting
        tokens = [token for step in waiting for token in step]
        assert {d for token in tokens for d in token.devices()} == {CPU[1], CPU[2]}
        assert len(waiting) == 1


def test_a_deleted_fetch_and_an_identity_elsewhere() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((3,), "float32", name="x")
        with gc.device("/cpu:2"):
            h = gc.tanh(x)
        with gc.device("/cpu:1"):
            y = gc.identity(h, name="y")
    sess = gc.Session(g)
    for _ in range(8):
        value = sess.run(y, {x: np.ones(3, "float32")})
        assert value.devices() == {CPU[1]}
        value.delete()


def test_one_graph_under_a_strategy_and_then_in_parts() -> None:
    g, x, y, loss, train = layered(FOUR)
    shapes = {x: (8, 6), y: (8, 2)}
    both = gc.compile(g, [train, loss], shapes, strategy=gc.devices.DataParallel(2))
    parts = gc.compile(g, [train, loss], shapes)
    assert len(parts.partition.clusters) == 7
    for buffer, home in parts.homes.items():
        places = {g.variables[name].device or "/device:CPU:0" for name in buffer.members}
        assert len(places) == 1 and home.device_set == {CPU[int(places.pop()[-1])]}
    (a, b), *_ = batches(1)
    results = [step(step.init(), {x: a, y: b})[0][1] for step in (both, parts)]
    assert float(results[0]) == pytest.approx(float(results[1]), rel=1e-9)
