"""Sessions and states whose variables share buffers: users see no difference."""

import json
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices import DataParallel
from graphc.errors import StateError, UnknownNameError
from graphc.ir.dtypes import as_dtype
from graphc.passes.manager import PassReport
from graphc.runtime.buffers import packing
from graphc.runtime.buffers.layout import FLAT, OWN
from graphc.runtime.feeds.fetches import FetchSet
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets import room
from graphc.runtime.targets.executors import Executor
from graphc.runtime.targets.interface import Interface
from tests.near import assert_near


def perceptron(dtype="float64"):
    graph = gc.Graph(seed=1)
    with graph:
        x = gc.placeholder((None, 6), dtype, name="x")
        h = x
        for i, width in enumerate((5, 4, 3)):
            w = gc.variable(np.cos(np.arange(h.shape[-1] * width)).reshape(-1, width).astype(dtype),
                            name=f"w{i}")  # fmt: skip
            b = gc.variable(np.zeros(width, dtype), name=f"b{i}")
            h = gc.tanh(gc.matmul(h, w) + b)
        loss = gc.reduce_mean(gc.square(h - 0.5), name="loss")
        train = gc.minimize(loss, optax.adam(0.01), name="train")
    return graph, x, loss, train


FEED = np.sin(np.arange(48.0)).reshape(8, 6)


def kinds(layout):
    return [buffer.kind for buffer in layout.buffers]


def test_small_variables_share_buffers_by_what_updates_them() -> None:
    graph, x, loss, train = perceptron()
    session = gc.Session(graph)
    session.run([train, loss], {x: FEED})
    layout = session._state.layout
    assert len(layout.types) == 3 * 6 + 1 + 2 + 2  # random generator state and loss scale
    groups = {b.members[0]: len(b.members) for b in layout.buffers if b.kind == FLAT}
    assert sorted(groups.values()) == [6, 6, 6]
    (step,) = session.executables
    assert len(step.interface.written) == 4  # parameters, both moments, the step count
    assert "19 variables assigned" in repr(step)


@pytest.mark.parametrize("devices", [1, 4])
def test_the_numbers_are_those_of_separate_variables(devices: int) -> None:
    strategy = DataParallel(devices) if devices > 1 else None
    results = []
    for grouped in (True, False):
        graph, x, loss, train = perceptron()
        options = gc.CompileOptions(state_buffers="packed" if grouped else "separate")
        session = gc.Session(graph, strategy=strategy, options=options)
        losses = [float(session.run([train, loss], {x: FEED})[1]) for _ in range(20)]
        assert (FLAT in kinds(session._state.layout)) == grouped
        results.append((losses, session.values()))
    (losses, values), (other_losses, other_values) = results
    assert_near(losses, other_losses, rtol=1e-9)
    for name, value in values.items():
        assert_near(value, other_values[name], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("devices", [1, 4])
def test_get_and_set_by_name(devices: int) -> None:
    graph, x, loss, train = perceptron()
    session = gc.Session(graph, strategy=DataParallel(devices) if devices > 1 else None)
    session.set("b1", [1, 2, 3, 4])  # before the shared buffers exist
    before = session.values()
    np.testing.assert_array_equal(before["b1"], [1, 2, 3, 4])
    session.run(loss, {x: FEED})
    for name, value in before.items():
        np.testing.assert_array_equal(session.get(name), value)
    got = session.get("w1")
    session.set("w1", np.ones((5, 4)))
    session.set("b0", np.arange(5.0))
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, before["w1"])
    after = session.values()
    np.testing.assert_array_equal(after["w1"], np.ones((5, 4)))
    np.testing.assert_array_equal(after["b0"], np.arange(5))
    for name in before.keys() - {"w1", "b0"}:
        np.testing.assert_array_equal(after[name], before[name])
    session.run(train, {x: FEED})
    np.testing.assert_array_equal(got, before["w1"])


def test_setting_all_at_once_is_all_or_nothing() -> None:
    graph, x, loss, train = perceptron()
    session = gc.Session(graph)
    session.run([train, loss], {x: FEED})
    saved = session.values()
    first = session.run([train, loss], {x: FEED})[1]
    session.set_all(saved)
    assert session.run([train, loss], {x: FEED})[1] == first
    kept = session.values()
    for wrong in ({"w0": saved["w0"], "b0": np.ones(99)}, {"w0": saved["w0"], "no": 1.0}):
        with pytest.raises((gc.errors.ShapeError, UnknownNameError)):
            session.set_all(wrong)
    for name, value in session.values().items():
        np.testing.assert_array_equal(value, kept[name])
    part = {name: saved[name] * 0 + 7 for name in ("w2", "b1", "w0/train/0/mu")}
    session.set_all(part)
    for name, value in session.values().items():
        np.testing.assert_array_equal(value, part.get(name, kept[name]))


def test_a_member_is_compiled_for_once_not_for_each_place() -> None:
    graph = gc.Graph()
    with graph:
        vs = [gc.variable(np.full(3, i, np.float32), name=f"v{i}") for i in range(8)]
        total = vs[0] + vs[1] + vs[2] + vs[3] + vs[4] + vs[5] + vs[6] + vs[7]
    session = gc.Session(graph)
    session.run(total)
    where = session._state.buffers[0].sharding
    packing._taker.cache_clear()
    packing._putter.cache_clear()
    for i in range(8):
        np.testing.assert_array_equal(session.get(f"v{i}"), [i] * 3)
        session.set(f"v{i}", [10 * i] * 3)
    np.testing.assert_array_equal(session.run(total), [280] * 3)
    assert packing._taker(FLAT, (3,), where)._cache_size() <= 2
    assert packing._putter(FLAT, where, True)._cache_size() <= 2


def test_executables_that_lost_a_buffer_are_compiled_again() -> None:
    graph, x, loss, train = perceptron()
    with graph:
        look = graph.variables["b0"].read() + 0
    session = gc.Session(graph)
    zero = session.run(look)
    assert kinds(session._state.layout)[:2] == [OWN, OWN]
    session.run([train, loss], {x: FEED})
    assert session.compile_count == 1
    assert not np.array_equal(session.run(look), zero)
    np.testing.assert_array_equal(session.run(look), session.get("b0"))
    assert session.compile_count == 2
    session.run([train, loss], {x: FEED})
    assert session.compile_count == 2


def test_a_graph_that_grows_keeps_the_values_and_the_executables() -> None:
    graph, x, loss, train = perceptron()
    session = gc.Session(graph)
    first = session.run([train, loss], {x: FEED})[1]
    kept = session.values()
    with graph.extend():
        more = [gc.variable(np.full(2, i, np.float32), name=f"more{i}") for i in range(3)]
        total = more[0] + more[1] + more[2] + gc.cast(gc.reduce_sum(graph.variables["b0"]), "f32")
    wanted = 3 + kept["b0"].sum()
    assert_near(session.run(total), [wanted, wanted], rtol=1e-6)
    assert session.run([train, loss], {x: FEED})[1] < first
    assert session.compile_count == 2
    np.testing.assert_array_equal(session.get("more2"), [2, 2])


def test_states_of_any_layout_serve_any_executable() -> None:
    graph, x, loss, train = perceptron()
    with graph:
        look = graph.variables["b0"].read() * 2
    early = gc.compile(graph, look)  # reads only b0, from its own buffer
    old = early.init()
    step = gc.compile(graph, [train, loss], {x: (8, 6)})
    assert early.layout is not step.layout
    (_, first), state = step(old, {x: FEED})  # moves the state into the new buffers
    assert old.layout is step.layout
    (_, plain), _ = step(step.init(), {x: FEED})
    assert first == plain
    doubled, state = early(state)  # and moves it back
    np.testing.assert_array_equal(doubled, 2 * np.asarray(state["b0"]))
    session = gc.Session(graph)
    session.run(loss, {x: FEED})
    (_, third), after = step(session.state(), {x: FEED})
    assert third == plain
    _, after = step(after, {x: FEED})
    assert set(after) == set(graph.variables)


def test_one_value_of_a_state_in_a_shared_buffer() -> None:
    graph, x, loss, train = perceptron()
    step = gc.compile(graph, [train, loss], {x: (8, 6)})
    state = step.init()
    other = state.with_value("b1", np.full(4, 3.0))
    np.testing.assert_array_equal(other["b1"], [3, 3, 3, 3])
    np.testing.assert_array_equal(state["b1"], [0, 0, 0, 0])
    np.testing.assert_array_equal(other["w1"], state["w1"])
    step(other, {x: FEED})
    with pytest.raises(StateError, match="shares variables"):
        state["b1"]


def test_an_interface_is_enough_to_run() -> None:
    graph, x, loss, train = perceptron()
    for strategy in (None, DataParallel(4)):
        step = gc.compile(graph, [train, loss], {x: (8, 6)}, strategy=strategy)
        text = json.dumps(step.interface.to_json())
        interface = Interface.from_json(json.loads(text))
        assert interface == step.interface
        executor = Executor(interface, lambda s=step: s.executor.compiled, step.devices, 4)

        unknown: Any = None  # a loaded program runs without its original graph
        again = Executable(
            FetchSet.of(graph, [train, loss], [x]), executor, layout=step.layout,
            report=PassReport(), key=step.cache_key, stages=unknown, load_seconds=0.0,
        )  # fmt: skip
        (_, value), state = again(again.init(), {"x": FEED})
        (_, wanted), other = step(step.init(), {"x": FEED})
        assert value == wanted
        np.testing.assert_array_equal(state["w0"], other["w0"])
        assert repr(again) == repr(step) and "ENTRY" in again.hlo()
    with pytest.raises(gc.errors.GraphError, match="not the interface"):
        Interface.from_json({"name": "x"})


def test_dtypes_of_every_width_share_no_bits() -> None:
    graph = gc.Graph()
    dtypes = ("bool", "int8", "bfloat16", "float16", "float8_e5m2", "float64", "int64", "complex64")
    with graph:
        values = {
            f"{dtype}/{i}": gc.variable(
                np.arange(i, i + 3).astype(np.int32).astype(as_dtype(dtype)),
                name=f"{dtype}/{i}",
            )
            for dtype in dtypes
            for i in (0, 1)
        }
        swapped = {d: (values[f"{d}/1"].read(), values[f"{d}/0"].read()) for d in dtypes}
        swap = [values[f"{d}/{i}"].assign(old) for d in dtypes for i, old in enumerate(swapped[d])]
    session = gc.Session(graph)
    before = session.values()
    session.run(gc_group(graph, swap))
    after = session.values()
    for dtype in dtypes:
        assert after[f"{dtype}/0"].dtype == before[f"{dtype}/0"].dtype
        for i in (0, 1):
            np.testing.assert_array_equal(after[f"{dtype}/{i}"], before[f"{dtype}/{1 - i}"])
    assert kinds(session._state.layout).count(FLAT) == len(dtypes)


def gc_group(graph, nodes):
    with graph:
        return gc.group(*nodes)


def test_a_run_that_fails_with_shared_state_breaks_the_session(monkeypatch) -> None:
    monkeypatch.setattr(room, "has_room", lambda size: True)  # the check passes; the run fails
    graph = gc.Graph()
    with graph:
        a, b = (gc.variable(np.zeros((), np.float32), name=n) for n in "ab")
        both = gc.group(a.assign_add(1), b.assign_add(2))
        huge = gc.zeros((1 << 42,), "float32") + a.assign_add(1) + b.assign_add(1)
    session = gc.Session(graph)
    session.run(both)
    with pytest.raises(StateError, match="after it had consumed state"):
        session.run(huge)
    with pytest.raises(StateError, match="the session is broken"):
        session.get("a")


def test_a_deleted_old_buffer_is_not_needed_again() -> None:
    graph, x, loss, train = perceptron()
    step = gc.compile(graph, [train, loss], {x: (8, 6)})
    start = step.init()
    old = [buffer for buffer in start.buffers]
    step(start, {x: FEED})
    written = {step.layout.number(buffer) for buffer in step.interface.written}
    assert {i for i, buffer in enumerate(old) if buffer.is_deleted()} == written
    assert jax.config.jax_enable_x64 is False
