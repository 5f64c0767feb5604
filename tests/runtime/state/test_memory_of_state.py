"""Memory holds the state only once while it is made, moved and set."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import ExecutionError, StateError
from graphc.ir.dtypes import BY_SHORT
from graphc.ir.types import parse_type
from graphc.runtime.buffers import packing
from graphc.runtime.buffers.layout import STACKED, Buffer
from graphc.runtime.buffers.packing import filled, place_on
from graphc.runtime.state.initial import InitialValues, initial_values
from tests.near import assert_near as near


def assert_near(got: Any, wanted: Any) -> None:
    near(got, wanted, rtol=1e-5)


LAYERS, WIDTH = 12, 80  # kernels of more than 4096 elements: smaller ones would share flat buffers


def model(layers: int = LAYERS, width: int = WIDTH) -> tuple[gc.Graph, Any, Any, Any]:
    """A network of equal layers, which are stacked: its graph, its feed, its loss and its step."""
    graph = gc.Graph(seed=3)
    with graph:
        x = gc.placeholder((4, width), "float32", name="x", batch_axis=0)
        h = x
        for number in range(layers):
            h = gc.nn.Dense(width, activation=gc.tanh, name=f"layer{number}")(h)
        loss = gc.reduce_mean(h * h, name="loss")
        train = gc.minimize(loss, optax.adam(1e-2))
    return graph, x, loss, train


FEED = np.linspace(-1, 1, 4 * WIDTH, dtype=np.float32).reshape(4, WIDTH)


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either every buffer counts as large, or none."""
    if request.param == "large":
        monkeypatch.setattr("graphc.runtime.buffers.packing.LARGE", 1)
        monkeypatch.setattr("graphc.runtime.state.live_state.LARGE", 1)
        monkeypatch.setattr("graphc.runtime.buffers.packing.REUSED", 1)
    kind: str = request.param
    return kind


# -- initial values ---------------------------------------------------------------------------


def test_initial_values_are_made_when_taken_and_kept_for_those_that_read_them() -> None:
    made = []

    def drawn(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
        made.append(shape)
        return rng.standard_normal(shape).astype(dtype)

    with gc.Graph() as graph:
        base = gc.variable(drawn, shape=(2,), name="base")
        gc.variable(drawn, shape=(3,), name="other")
        twice = gc.variable(base * 2.0, name="twice")
        gc.variable(twice + base, name="thrice")
    values = InitialValues(graph)
    assert made == []
    thrice = values.take("thrice")
    assert made == [(2,)]
    base_value = values.take("base")
    assert_near(thrice, 3 * base_value)
    assert_near(values.take("twice"), 2 * base_value)
    assert made == [(2,)]
    assert values.take("other").shape == (3,) and made == [(2,), (3,)]
    assert set(values._kept) == {"base"}  # a second call of `drawn` could return another value
    assert_near(values.take("twice"), 2 * base_value)  # taken again, as after a failure


def test_values_of_graphcs_own_initializers_do_not_stay() -> None:
    with gc.Graph() as graph:
        base = gc.variable(gc.nn.initializers.Normal(), shape=(2,), name="base")
        gc.variable(base * 2.0, name="twice")
    values = InitialValues(graph)
    first, twice = values.take("base"), values.take("twice")
    assert not values._kept and np.array_equal(twice, 2 * first)
    assert np.array_equal(values.take("twice"), twice) and np.array_equal(
        values.take("base"), first
    )


def test_values_of_a_fetch_do_not_make_those_of_the_optimizer() -> None:
    made = []

    def drawn(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
        made.append(shape)
        return np.ones(shape, dtype)

    with gc.Graph() as graph:
        x = gc.placeholder((2,), "float32", name="x")
        used = gc.variable(drawn, shape=(2,), name="used")
        gc.variable(drawn, shape=(5,), name="unused")
        y = x * used
    session = gc.Session(graph)
    assert_near(session.run(y, {x: [1.0, 2.0]}), [1.0, 2.0])
    assert made == [(2,)]
    assert_near(session.get("unused"), np.ones(5))
    assert_near(session.values()["unused"], np.ones(5))
    assert made == [(2,), (5,)]


def test_a_value_that_is_set_before_it_is_made_is_not_made() -> None:
    def refused(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
        raise AssertionError("made")

    with gc.Graph() as graph:
        v = gc.variable(refused, shape=(2,), name="v")
        y = v * 2.0
    session = gc.Session(graph)
    session.set("v", [1.0, 2.0])
    assert_near(session.run(y), [2.0, 4.0])


def test_an_initializer_that_fails_leaves_the_session_usable() -> None:
    fails = [True]

    def drawn(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
        if fails:
            raise OSError("no such table")
        return np.ones(shape, dtype)

    with gc.Graph() as graph:
        y = gc.variable(drawn, shape=(2,), name="v") * 2.0
    session = gc.Session(graph)
    with pytest.raises(OSError, match="no such table"):
        session.run(y)
    fails.clear()
    assert_near(session.run(y), [2.0, 2.0])


def test_values_after_an_initializer_that_failed_once() -> None:
    drawn, fails = [], [True]

    def changing(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
        drawn.append(shape)
        return np.full(shape, len(drawn), dtype)

    def failing(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
        if fails:
            fails.clear()
            raise OSError("no such table")
        return np.ones(shape, dtype)

    with gc.Graph() as graph:
        base = gc.variable(changing, shape=(2,), name="base")
        twice = gc.variable(base * 2.0, name="twice")
        bad = gc.variable(failing, shape=(2,), name="bad")
        thrice = gc.variable(base * 3.0, name="thrice")
        sum_of = gc.variable(thrice + base, name="sum_of")
    session = gc.Session(graph)
    fetches = [base, twice, bad, sum_of]
    with pytest.raises(OSError, match="no such table"):
        session.run(fetches)
    for got, want in zip(session.run(fetches), (1, 2, 1, 4), strict=True):
        assert_near(got, np.full(2, want))


def test_variables_that_are_added_later_do_not_draw_others_again() -> None:
    drawn = []

    def changing(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
        drawn.append(shape)
        return np.full(shape, len(drawn), dtype)

    with gc.Graph() as graph:
        base = gc.variable(changing, shape=(2,), name="base")
        gc.variable(base * 2.0, name="twice")
    session = gc.Session(graph)
    assert_near(session.run(base), [1.0, 1.0])
    with graph.extend():
        more = gc.variable(np.ones(3, np.float32), name="more")
    assert_near(session.run(more), np.ones(3))
    assert_near(session.get("twice"), [2.0, 2.0])
    assert len(drawn) == 1


# -- buffers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i8", "c64", "bool", "i4"])
def test_a_large_stack_is_filled_member_by_member(size: str, dtype: str) -> None:
    type = parse_type(f"{dtype}[2,3]")
    buffer = Buffer(STACKED, ("a", "b", "c"), (type,) * 3)
    values = {n: np.arange(i, i + 6).reshape(2, 3).astype(type.dtype) for i, n in enumerate("abc")}
    asked: list[str] = []

    def value_of(name: str) -> Any:
        asked.append(name)
        return values[name]

    home = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    got = filled(buffer, value_of, home)
    assert asked == ["a", "b", "c"] and got.sharding == home and got.dtype == type.dtype
    assert np.array_equal(np.asarray(got), np.stack([values[n] for n in "abc"]))
    assert np.array_equal(filled(buffer, value_of, None), np.stack([values[n] for n in "abc"]))


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (1000,), (300, 300)])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex128, np.int8])
def test_placed_arrays_have_memory_of_their_own(shape: tuple[int, ...], dtype: Any) -> None:
    count = int(np.prod(shape))
    memory = np.zeros(count * np.dtype(dtype).itemsize + 256, np.uint8)
    start = -memory.ctypes.data % 64
    for offset in (0, np.dtype(dtype).itemsize, 64):
        piece = memory[start + offset :][: count * np.dtype(dtype).itemsize]
        array = piece.view(dtype).reshape(shape)
        placed = place_on(array, jax.devices()[0]).block_until_ready()
        first = memory.ctypes.data
        assert not first <= placed.unsafe_buffer_pointer() < first + memory.nbytes
        array[...] = 1
        assert not np.asarray(placed).any()
        array[...] = 0


# -- sessions ---------------------------------------------------------------------------------


def test_training_is_the_same_however_large_buffers_are(size: str) -> None:
    graph, x, loss, train = model()
    plain = {n: v for n, v in initial_values(graph).items() if n in graph.variables}
    session = gc.Session(graph)
    first = session.run(loss, {x: FEED})  # a program that only reads uses other buffers
    for name, value in session.values().items():
        assert np.array_equal(value, plain[name]), name
    assert_near(session.run([train, loss], {x: FEED})[1], first)
    step = gc.compile(graph, fetches=[train, loss], feeds={x: (4, WIDTH)})
    state = step.init()
    assert all(np.array_equal(state[name], plain[name]) for name in state)
    _, state = step(state, {x: FEED})
    after = session.values()
    assert all(np.array_equal(state[name], after[name]) for name in state)


def test_a_restored_session_goes_on_as_the_first_one(size: str) -> None:
    graph, x, loss, train = model()
    first, second = gc.Session(graph), gc.Session(graph)
    for _ in range(2):
        first.run(train, {x: FEED})
    second.set_all(first.values())  # before the first run
    assert_near(second.run([train, loss], {x: FEED})[1], first.run([train, loss], {x: FEED})[1])
    third = gc.Session(graph)
    third.run(train, {x: FEED})
    third.set_all(first.values())  # here the buffers are stacked
    given = first.values()["layer3/kernel"] * 2
    for session in (first, third):
        session.set("layer3/kernel", given)  # a member of a stack
    given[:] = 0
    for name, value in first.values().items():
        assert np.array_equal(value, third.values()[name]), name


@pytest.mark.parametrize("copy", [True, False])
def test_values_that_are_set_are_copied_unless_they_are_given_away(copy: bool) -> None:
    graph = gc.Graph()
    with graph:
        v = gc.variable(np.zeros((100, 100), np.float32), name="v")
        step = v.assign_add(gc.ones_like(v))
    session = gc.Session(graph)
    given = np.ones((100, 100), np.float32)
    session.set_all({"v": given}, copy=copy)
    held = session._state.buffers[0]
    assert np.shares_memory(held, given) is not copy
    session.run(step)
    assert (session.values()["v"] == 2).all()
    assert (given == 1).all()  # the step does not write into this array


def addresses(session: gc.Session) -> dict[str, set[int]]:
    """The address of each buffer of the state on each device."""
    live = session._state
    return {
        buffer.name: {shard.data.unsafe_buffer_pointer() for shard in value.addressable_shards}
        for buffer, value in zip(live.layout.buffers, live.buffers, strict=True)
        if isinstance(value, jax.Array) and buffer.kind != "flat"
    }


@pytest.mark.parametrize("devices", [1, 4])
def test_large_values_are_written_into_the_memory_of_the_old_ones(
    devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(jax.devices()) < devices:
        pytest.skip("too few devices")
    monkeypatch.setattr("graphc.runtime.buffers.packing.REUSED", 1)
    graph, x, loss, train = model()
    strategy = None if devices == 1 else gc.devices.DataParallel(devices, shard_optimizer=True)
    first, second = (gc.Session(graph, strategy=strategy) for _ in range(2))
    for _ in range(2):
        first.run(train, {x: FEED})
    second.run(train, {x: FEED})
    fetched = second.run(graph.variables["layer0/kernel"])
    kept, before = np.array(fetched), addresses(second)
    assert before
    given = first.values()
    second.set_all(given)
    assert addresses(second) == before
    for value in given.values():
        value[...] = 0  # the session does not share this memory
    assert np.array_equal(fetched, kept)  # and fetched values do not share memory with the state
    for name, value in first.values().items():
        assert np.array_equal(value, second.values()[name]), name
    assert_near(second.run([train, loss], {x: FEED})[1], first.run([train, loss], {x: FEED})[1])


@pytest.mark.parametrize("dtype", sorted(BY_SHORT.keys() - {"i4", "u4"}))  # JAX packs 4-bit values
def test_values_of_each_dtype_are_written_in_place(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that was compiled before accepts the written values."""
    monkeypatch.setattr("graphc.runtime.buffers.packing.REUSED", 1)
    graph = gc.Graph()
    with graph:
        shape = (5000,)  # smaller variables would share a buffer
        v = gc.variable(np.zeros(shape, BY_SHORT[dtype]), name="v", trainable=False)
    session = gc.Session(graph)
    session.run(v)
    given = (np.arange(5000) % 2).astype(np.float32).astype(BY_SHORT[dtype])
    session.set("v", given)
    assert np.asarray(session.run(v)).tobytes() == given.tobytes()


@pytest.mark.parametrize("consumed", [True, False], ids=["consumed", "intact"])
def test_a_write_that_fails_leaves_no_mixture(
    consumed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state holds the old values, or the session reports that they are lost."""
    monkeypatch.setattr("graphc.runtime.buffers.packing.REUSED", 1)
    graph = gc.Graph()
    with graph:
        v = gc.variable(np.zeros(5000, np.float32), name="v")  # smaller ones would share a buffer
        w = gc.variable(np.zeros(6000, np.float32), name="w")
        step = gc.group([v.assign_add(gc.ones_like(v)), w.assign_add(gc.ones_like(w))])
    session = gc.Session(graph)
    session.run(step)
    calls: list[Any] = []

    def failing(array: Any, buffer: Buffer, values: Any) -> Any:
        calls.append(buffer)
        if len(calls) == (2 if consumed else 1):
            raise MemoryError("no memory")
        return packing.overwritten(array, buffer, values)

    monkeypatch.setattr("graphc.runtime.state.live_state.overwritten", failing)
    with pytest.raises(MemoryError):
        session.set_all({"v": np.full(5000, 5.0), "w": np.full(6000, 6.0)})
    if consumed:
        with pytest.raises(StateError, match="broken"):
            session.values()
    else:
        assert all((value == 1).all() for value in session.values().values())


def test_replicas_hold_the_initial_values(size: str) -> None:
    if len(jax.devices()) < 2:
        pytest.skip("one device")
    graph, x, loss, train = model()
    strategy = gc.devices.DataParallel(2)
    with gc.Session(graph, strategy=strategy) as session, gc.Session(graph) as alone:
        for _ in range(2):
            got = session.run([train, loss], {x: FEED})[1]
            assert_near(got, alone.run([train, loss], {x: FEED})[1])


def test_a_move_that_fails_half_way_loses_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.runtime.buffers.packing.LARGE", 1)
    monkeypatch.setattr("graphc.runtime.state.live_state.LARGE", 1)
    graph, x, loss, train = model()
    session = gc.Session(graph)
    before = session.values()
    place, calls = packing.place_on, []

    def failing(value: Any, where: Any) -> Any:
        calls.append(where)
        if len(calls) == 4:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return place(value, where)

    monkeypatch.setattr("graphc.runtime.buffers.packing.place_on", failing)
    monkeypatch.setattr("graphc.runtime.state.live_state.place_on", failing)
    with pytest.raises(ExecutionError, match="could not be moved"):
        session.run(train, {x: FEED})
    monkeypatch.undo()
    kinds = {buffer.kind for buffer in session._state.layout.buffers}
    assert kinds == {"own", "stacked"}  # stopped between two layouts: small ones are not flat
    for name, value in session.values().items():
        assert np.array_equal(value, before[name]), name
    other = gc.Session(graph)
    assert_near(session.run([train, loss], {x: FEED})[1], other.run([train, loss], {x: FEED})[1])


_PEAK = """
import json, sys
import numpy as np, optax
import graphc as gc
from tests.runtime.state.test_memory_of_state import model

def megabytes(what):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1e3

graph, x, loss, train = model(layers=8, width=2048)
feed = np.ones((4, 2048), np.float32)
small, y, other, first = model()
gc.Session(small).run(first, {y: np.ones((4, 80), np.float32)})  # JAX's own first allocations
before = megabytes("VmRSS")
session = gc.Session(graph)
if "restored" in sys.argv:
    values = {name: np.full(v.type.shape, 0.1, v.type.dtype) for name, v in graph.variables.items()}
    session.set_all(values)
else:
    session.run(loss, {x: feed})
session.run([train, loss], {x: feed})[1].block_until_ready()
step = next(e for e in session.executables if e.consumes)
print(json.dumps({
    "state": sum(np.prod(v.type.shape) * 4 for v in graph.variables.values()) / 1e6,
    "temporaries": step.memory()["temporaries"] / 1e6,
    "peak": megabytes("VmHWM") - before,
}, default=float))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["new", "restored"])
def test_the_first_steps_take_memory_for_one_state(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, how], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    once = found["state"] + found["temporaries"]
    copies = found["state"] if how == "restored" else 0  # the array `values` is a copy
    # 160 MB cover the part that is being moved or made, and what JAX and XLA compile. Another copy
    # of the state would take 400 MB.
    assert found["peak"] < once + copies + 160, found
