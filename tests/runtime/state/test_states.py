"""States of executables: ownership, sharing and lifetime."""

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.errors import DTypeError, ExecutionError, ShapeError, StateError, UnknownNameError
from graphc.runtime.buffers import packing
from graphc.runtime.targets import room


def counter(name: str = "v", shape: tuple[int, ...] = ()):
    graph = gc.Graph()
    with graph:
        v = gc.variable(np.zeros(shape, np.float32), name=name)
        more = v.assign_add(gc.random.uniform(()) * 0 + 1)
    return graph, v, more


def hungry():
    """A step that needs more memory than any machine has, and its graph."""
    graph, v, _ = counter()
    with graph:
        huge = gc.zeros((1 << 42,), "float32") + v.assign_add(1)
    return graph, huge


def test_a_state_serves_executables_made_before_the_graph_grew() -> None:
    graph, v, more = counter()
    old = gc.compile(graph, more)
    with graph.extend():
        w = gc.variable(np.full(3, 7, np.float32), name="w")
        both = w + v
    new = gc.compile(graph, both)
    value, state = old(new.init())
    assert value == 1
    got, state = new(state)
    np.testing.assert_array_equal(got, [8, 8, 8])
    np.testing.assert_array_equal(state["w"], [7, 7, 7])
    with pytest.raises(StateError, match=r"'w' as f32\[3\].*no such variable"):
        new(old.init())


def test_a_state_of_another_graph_is_refused() -> None:
    step = gc.compile(*counter()[::2])
    for other in (counter("u"), counter("v", (4,))):
        with pytest.raises(StateError, match="this step takes 'v'"):
            step(gc.compile(*other[::2]).init())
    with pytest.raises(StateError, match="must be a state, got dict"):
        step({})


def test_a_state_moves_between_one_device_and_several() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 2), name="x")
        v = gc.variable(np.zeros(2, np.float32), name="v")
        more = v.assign_add(gc.reduce_mean(x, axis=0))
    one = gc.compile(graph, more, {x: (8, 2)})
    four = gc.compile(graph, more, {x: (8, 2)}, strategy=gc.devices.DataParallel(4))
    feeds = {x: np.ones((8, 2), np.float32)}
    _, state = one(one.init(), feeds)
    _, state = four(state, feeds)
    value, _ = one(state, feeds)
    np.testing.assert_array_equal(value, [3, 3])


def test_a_step_that_assigns_nothing_gives_the_same_state() -> None:
    graph, v, more = counter()
    with graph:
        value = v + 0
    look, step = gc.compile(graph, value), gc.compile(graph, more)
    first = look.init()
    _, second = look(first)
    step(second)
    for state in (first, second):
        with pytest.raises(StateError, match="consumed"):
            look(state)


def test_states_that_share_variables_say_when_they_are_gone() -> None:
    graph, _, more = counter()
    step = gc.compile(graph, more)
    state = step.init()
    other = state.with_value("v", np.float32(5))
    assert step(other)[0] == 6
    with pytest.raises(StateError, match="shares variables"):
        step(state)


def test_a_new_value_is_checked() -> None:
    state = gc.compile(*counter()[::2]).init()
    with pytest.raises(ShapeError, match=r"'v' is f32\[\]"):
        state.with_value("v", np.ones(3, np.float32))
    with pytest.raises(DTypeError, match="float64"):
        state.with_value("v", np.float64(1))


def test_a_run_that_fails_after_it_took_state_says_so(monkeypatch) -> None:
    monkeypatch.setattr(room, "has_room", lambda size: True)  # the check passes; the run fails
    step = gc.compile(*hungry())
    state = step.init()
    with pytest.raises(StateError, match="after it had consumed state"):
        step(state)
    with pytest.raises(StateError, match="consumed by a run that failed"):
        step(state)


def test_a_run_that_would_find_no_memory_takes_no_state() -> None:
    graph, huge = hungry()
    step = gc.compile(graph, huge)
    state = step.init()
    session = gc.Session(graph)
    for run in (lambda: step(state), lambda: session.run(huge)):
        with pytest.raises(
            ExecutionError, match="before it began: it needs 16777216 MiB"
        ) as caught:
            run()
        assert "smaller batch" in str(caught.value)
    assert state["v"] == 0 and session.get("v") == 0 and session.run("v") == 0


def test_a_run_that_fails_without_having_taken_state_leaves_the_session_usable() -> None:
    graph, v, more = counter()
    with graph:
        huge = gc.zeros((1 << 42,), "float32") + v
    session = gc.Session(graph)
    assert session.run(more) == 1
    with pytest.raises(ExecutionError, match="the run failed"):
        session.run(huge)
    assert session.run(more) == 2


def test_what_xla_does_not_compile() -> None:
    options = gc.CompileOptions(xla_options={"no_such_option": 1})
    with pytest.raises(ExecutionError, match="no_such_option") as caught:
        gc.compile(*counter()[::2], options=options)
    assert "xla_options" in str(caught.value)


def test_an_interrupt_while_waiting_loses_no_state(monkeypatch) -> None:
    graph, _, more = counter()
    session = gc.Session(graph, options=gc.CompileOptions(max_in_flight=1))
    session.run(more)

    class Interrupted:
        def is_deleted(self) -> bool:
            return False

        def block_until_ready(self) -> None:
            raise KeyboardInterrupt

    waiting = session.executables[0].executor._in_flight._waiting
    waiting[0] = [Interrupted()]
    with pytest.raises(KeyboardInterrupt):
        session.run(more)
    waiting[0] = [jax.numpy.zeros(())]
    assert session.run(more) == 2


def test_an_earlier_failure_breaks_a_session_whose_state_came_of_it() -> None:
    graph, _, more = counter()
    session = gc.Session(graph, options=gc.CompileOptions(max_in_flight=1))
    session.run(more)

    class Failed:
        def is_deleted(self) -> bool:
            return False

        def block_until_ready(self) -> None:
            raise jax.errors.JaxRuntimeError("out of luck")

    session.executables[0].executor._in_flight._waiting[0] = [Failed()]
    with pytest.raises(StateError, match="an earlier run failed: out of luck"):
        session.run(more)
    with pytest.raises(StateError, match="the session is broken"):
        session.get("v")


def test_members_of_a_flat_buffer_taken_together() -> None:
    with gc.Graph() as graph:
        values = {f"v{n}": np.full((n, 2), n, "float32") for n in range(1, 6)}
        steps = [gc.variable(v, name=name).assign_add(1) for name, v in values.items()]
    state = gc.compile(graph, steps).init()
    assert state.layout.buffer_of("v1").kind == "flat"
    packing._all_taker.cache_clear()
    for _ in range(packing.ONE_BY_ONE + 2):
        for names in ([*values], ["v3", "v1", "v5"], ["v2"]):
            for name, found in zip(names, state.several(names), strict=True):
                assert np.array_equal(found, values[name])
    with pytest.raises(UnknownNameError):
        state.several(["v1", "w"])
    info = packing._all_taker.cache_info()
    assert info.misses == 1 and info.hits > packing.ONE_BY_ONE


def test_values_put_in_place() -> None:
    with gc.Graph() as graph:
        steps = [gc.variable(np.zeros((n, 2)), name=f"v{n}").assign_add(1) for n in range(1, 4)]
    step = gc.compile(graph, steps)
    state = step.init()
    old = state["v1"]
    state.put({"v1": np.ones((1, 2)), "v3": np.full((3, 2), 5.0)})
    assert [float(state[f"v{n}"][0, 0]) for n in range(1, 4)] == [1, 0, 5]
    assert np.array_equal(old, [[0, 0]])
    with pytest.raises(ShapeError, match=r"variable 'v3' is f64\[3, 2\]"):
        state.put({"v1": np.zeros((1, 2)), "v3": np.zeros(3)})
    with pytest.raises(DTypeError, match="the value float32"):
        state.put({"v1": np.ones((1, 2), "float32")})
    assert float(state["v1"][0, 0]) == 1  # nothing was changed
    step(state)
    with pytest.raises(StateError, match="this state was consumed"):
        state.put({"v1": np.ones((1, 2))})
