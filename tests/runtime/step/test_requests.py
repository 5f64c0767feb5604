"""Requests, backends, plans and keys as records."""

from collections import OrderedDict
from dataclasses import FrozenInstanceError, dataclass, replace
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.devices.strategy import DataParallel
from graphc.runtime.feeds.fetches import FetchSet
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.step.plans import Plan, ProgramKey
from graphc.runtime.targets.backends import OneDevice, OnMesh, Partitioned, Replicas
from graphc.runtime.targets.prepare import prepare
from tests.near import assert_near

OPTIONS = gc.CompileOptions(cache=None)


def model(place: str | None = None) -> tuple[gc.Graph, Any, Any]:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", 4), name="x")
        y = gc.nn.Dense(4, name="first")(x)
        with gc.device(place):
            y = gc.reduce_sum(gc.nn.Dense(4, name="second")(y), axis=1)
    return graph, x, y


def request(place: str | None = None, **how: Any) -> CompileRequest:
    graph, x, y = model(place)
    return CompileRequest(prepare(graph, [y], [x], OPTIONS), [(8, 4)], OPTIONS, **how)


def test_a_request_chooses_the_back_end() -> None:
    one = Compilation(request()).backend
    assert isinstance(one, OneDevice)
    assert (one.replicas, one.keeps_to_limit, one.parallel) == (1, True, None)
    shared = Compilation(request(strategy=DataParallel(2))).backend
    assert isinstance(shared, Replicas) and len(shared.devices) == shared.replicas == 2
    assert shared.keeps_to_limit and shared.parallel == DataParallel(2).meaning()
    mesh = gc.devices.Mesh({"data": 2})
    over = Compilation(request(strategy=mesh)).backend
    assert isinstance(over, OnMesh) and not over.keeps_to_limit
    assert over.parallel == mesh.meaning()
    parted = Compilation(request("/device:CPU:1"))
    assert isinstance(parted.backend, Partitioned) and parted.placement is not None
    assert len(parted.devices) == 2 and not parted.backend.keeps_to_limit


def test_a_request_for_one_device_overrides_the_placement() -> None:
    device = Compilation(request()).devices[0]
    compilation = Compilation(request("/device:CPU:1", device=device))
    assert compilation.backend == OneDevice(device) and compilation.placement is None


def test_a_request_under_other_options_is_another_request() -> None:
    first = request(steps=3, soft=False)
    options = gc.CompileOptions(pipeline="O0", cache=None)
    second = first.under(options)
    assert second.options is options and first.options is OPTIONS
    assert (second.steps, second.soft, second.shapes) == (3, False, first.shapes)
    assert second.prepared is not first.prepared
    with pytest.raises(FrozenInstanceError):
        first.steps = 4  # type: ignore[misc]


def test_one_step_and_a_loop_are_different_programs_of_a_plan() -> None:
    graph, x, y = model()
    session = gc.Session(graph, options=OPTIONS)
    value = np.ones((2, 4), np.float32)
    once = session.run(y, {x: value})
    for n in (1, 2):
        rows = session.run_steps(y, [{x: value}] * n, n)
        assert rows.shape == (n, 2)
        assert_near(rows[0], once, rtol=1e-6)
    (plan,) = session._programs.plans.values()
    assert list(plan.executables) == [ProgramKey(((2, 4),), n) for n in (None, 1, 2)]


def test_a_scalar_feed_is_no_number_of_steps() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((), "int32", name="x")
        y = x + 1
    session = gc.Session(graph, options=OPTIONS)
    assert session.run(y, {x: 3}) == 4
    assert session.run_steps(y, {x: np.arange(2, dtype=np.int32)}, 2).tolist() == [1, 2]
    assert session.compile_count == 2


def test_plans_of_one_program_share_it() -> None:
    graph, x, y = model()
    first = Plan.of(graph, [y], {x: 0}, OPTIONS)
    other = Plan.of(graph, {"y": y, "again": y}, {"x:0": 0}, OPTIONS, [first])
    assert other.prepared is first.prepared and other.executables is first.executables
    alone = Plan.of(graph, [y], {x: 0}, OPTIONS)
    assert alone.prepared is not first.prepared
    apart = Plan.of(graph, [y, graph.variable("first/bias")], {x: 0}, OPTIONS, [first])
    assert apart.prepared is not first.prepared


def test_a_fetch_set_is_one_program_whatever_its_nest_and_order() -> None:
    graph, x, y = model()
    bias = graph.variable("first/bias")
    first = FetchSet.of(graph, [y, bias], [x])
    assert first.program == FetchSet.of(graph, {"b": bias, "y": (y, y)}, [x]).program
    assert first.program != FetchSet.of(graph, [y], [x]).program


def test_the_key_tells_strategies_apart() -> None:
    pieces = DataParallel(2, shard_optimizer=True), DataParallel(2, shard_parameters=True)
    ways = [None, DataParallel(2), *pieces]
    keys = [Compilation(request(strategy=way)).program_key for way in ways]
    assert None not in keys and len(set(keys)) == len(keys)


def test_the_key_under_other_options_is_another() -> None:
    first = Compilation(request())
    keys = first.key, first.program_key
    second = first.under(gc.CompileOptions(pipeline="O0", cache=None))
    assert second.key != keys[0] and second.program_key != keys[1]
    assert (first.key, first.program_key) == keys


def test_the_memory_of_a_machine_is_a_limit_where_one_can_be_kept() -> None:
    for how, limit in (({}, 5), ({"strategy": gc.devices.Mesh({"data": 2})}, None)):
        compilation = Compilation(request(**how))
        compilation.request = replace(compilation.request, machine=SimpleNamespace(usable_memory=5))
        assert compilation.memory_limit == limit


def test_a_request_names_the_base() -> None:
    for base in ("/device:CPU:0", "/device:CPU:2"):
        backend = Compilation(request("/device:CPU:1", base=base)).backend
        assert isinstance(backend, Partitioned) and backend.base == base
        assert list(backend.named) == [base, "/device:CPU:1"]


def test_the_first_program_of_a_session_chooses_the_base() -> None:
    """Nodes that are added later without a device also run on the first program's base device."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((2, 4), name="x")
        with gc.device("/device:CPU:1"):
            y = gc.nn.Dense(4, name="dense")(x)
    value = np.ones((2, 4), np.float32)
    with gc.Session(graph, options=OPTIONS) as first, gc.Session(graph, options=OPTIONS) as other:
        first.run(y, {x: value})
        with graph.extend():
            z = gc.tanh(x)
        for session, devices in ((first, [1, 1]), (other, [0])):
            session.run(z, {x: value})
            assert [d.id for e in session.executables for d in e.devices] == devices


def test_fetches_of_one_program_in_another_order_give_their_own_values() -> None:
    graph, x, y = model()
    with graph:
        z = gc.reduce_max(x)
    session = gc.Session(graph, options=OPTIONS)
    value = np.full((2, 4), 3.0, np.float32)
    first, second = session.run([y, z], {x: value})
    swapped, again = session.run([z, y], {x: value})
    assert session.compile_count == 1 and float(second) == float(swapped) == 3.0
    assert_near(again, first, rtol=1e-6)


@dataclass
class Pair:
    value: Any


@dataclass
class Other:
    value: Any


def test_nests_of_other_kinds_are_other_calls() -> None:
    for kind in (Pair, Other):
        jax.tree_util.register_dataclass(kind, ["value"], [])
    graph, x, y = model()
    session = gc.Session(graph, options=OPTIONS)
    for kind in (Pair, Other, lambda value: {"a": value}, lambda value: OrderedDict(a=value)):
        got = session.run(kind(y), {x: np.ones((2, 4), np.float32)})
        assert type(got) is type(kind(y))


def test_a_child_process_has_a_lock_of_its_own() -> None:
    graph, _, _ = model()
    programs = gc.Session(graph, options=OPTIONS)._programs
    held, done = Event(), Event()

    def hold() -> None:
        with programs.compiling:
            held.set()
            done.wait()

    thread = Thread(target=hold)
    thread.start()
    held.wait()
    programs.forked()
    taken = programs.compiling.acquire(blocking=False)
    done.set()
    thread.join()
    assert taken


def test_seconds_of_a_stage_add_up() -> None:
    graph, x, y = model()
    stages = gc.compile(graph, y, {x: (2, 4)}, options=OPTIONS).stages
    assert stages.compiled is not None
    before = stages.seconds["lower"]
    stages._timed("lower", lambda: None)
    assert stages.seconds["lower"] > before > 0


@pytest.mark.parametrize(("strategy", "name"), [(2, "int"), ("dp", "str"), (DataParallel, "Data")])
def test_what_is_not_a_strategy_is_an_error(strategy: Any, name: str) -> None:
    graph, x, y = model()
    for function in (gc.compile, gc.compile_async):
        with pytest.raises(gc.errors.AttributeValueError, match=f"strategy must be .* got {name}"):
            function(graph, y, {x: (2, 4)}, strategy=strategy)
    with pytest.raises(gc.errors.AttributeValueError, match=f"strategy must be .* got {name}"):
        gc.Session(graph, strategy=strategy)
