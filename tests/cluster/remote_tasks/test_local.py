"""One program on several tasks; here all tasks are in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.cluster import RemoteTasks
from graphc.cluster.remote_tasks import runner
from graphc.errors import (
    AttributeValueError,
    DeviceError,
    GraphError,
    NumericsError,
    StateError,
)
from graphc.ir.serial import from_bytes, load_program
from graphc.ops.catalogue import CATALOGUE
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.state.live_state import LiveState
from tests.cluster.remote_tasks.local_tasks import LocalTasks
from tests.near import assert_near

JOBS = {"worker": 2, "ps": 1}


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runner, "Actors", LocalTasks)
    monkeypatch.setattr(RemoteTasks, "resolve", lambda self: None)
    yield


def replicated(dtype: str = "float64", where: bool = True) -> tuple[gc.Graph, list[Any]]:
    """The classic form: a server has the variables, each worker has a copy of the model, and one
    update uses the mean of the workers' gradients."""

    def on(name: str) -> Any:
        return gc.device(name if where else "")

    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((8, 4), dtype, name="x")
        y = gc.placeholder((8,), dtype, name="y")
        with on("/job:ps/task:0"):
            hidden = gc.nn.Dense(16, activation="tanh", dtype=dtype, name="hidden")
            out = gc.nn.Dense(1, dtype=dtype, name="out")
            hidden(x[:1]), out(gc.zeros((1, 16), dtype))  # creates the variables
            steps = gc.variable(0, name="steps", trainable=False)
        losses = []
        for i in range(2):
            with on(f"/job:worker/task:{i}"):
                part = slice(4 * i, 4 * i + 4)
                h = gc.nn.dropout(hidden(x[part]), 0.2)
                losses.append(gc.reduce_mean(gc.square(out(h)[:, 0] - y[part])))
        with on("/job:ps/task:0"):
            loss = (losses[0] + losses[1]) / 2
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
        with on("/job:worker/task:1"):  # not on the variable's device
            count = steps.assign(steps + 1)
    return graph, [train, loss, count, losses[1]]


def data(count: int = 20) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.standard_normal((8, 4)), "y": rng.standard_normal(8)} for _ in range(count)]


def check_steps(session: gc.Session, fetches: list[Any]) -> None:
    """Checks that the steps of a session of `replicated()` equal those of one process."""
    graph, own = replicated(where=False)
    with gc.Session(graph) as alone:
        want = [alone.run(own, feeds)[1:] for feeds in data()]
        values = alone.values()
    found = [session.run(fetches, feeds)[1:] for feeds in data()]
    assert all(isinstance(value, jax.Array) for value in found[0])
    assert found[0][0].dtype == np.float64
    assert_near(np.array(found), np.array(want), rtol=1e-9)
    for name, value in session.values().items():
        assert_near(value, values[name], rtol=1e-9, err_msg=name)
    assert int(session.get("steps")) == 20


def test_steps_are_those_of_one_process() -> None:
    graph, fetches = replicated()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        check_steps(session, fetches)
        assert min(LocalTasks.made.ran.values()) >= 20  # every task has run programs
    assert LocalTasks.made.closed


def test_the_optimizer_computes_in_float32() -> None:
    """A process sees a part of the step, so the precision is chosen before the step is divided."""
    graph, fetches = replicated("float32")
    options = gc.CompileOptions(precision="bf16")
    feeds = {name: value.astype(np.float32) for name, value in data(1)[0].items()}
    with gc.Session(graph, strategy=RemoteTasks(JOBS), options=options) as session:
        session.run(fetches, feeds)
        calls = [c for s in LocalTasks.made.stations.values() for c in s._calls.values() if c.sent]
        dtypes: dict[str, set[str]] = {}
        for call in calls:
            assert call.sent.options.precision is None
            program = load_program(*from_bytes(call.sent.data), CATALOGUE)
            for node in program.walk():
                dtypes.setdefault(node.op.name, set()).add(node.outputs[0].dtype.name)
        assert dtypes["MatMul"] == {"bfloat16"}
        assert dtypes["Sqrt"] == {"float32"}  # of adam


def test_a_second_start_compiles_nothing() -> None:
    def run() -> float:
        graph, fetches = replicated()
        with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
            return float(session.run(fetches, data(1)[0])[1])

    first, before = run(), COUNTERS.compiles
    assert (run(), COUNTERS.compiles) == (first, before)


def test_several_steps_in_one_call() -> None:
    graph, fetches = replicated()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        want = [session.run(fetches, feeds)[1] for feeds in data(3)]
    graph, fetches = replicated()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        found = session.run_steps(fetches, data(3), 3)[1]
    assert_near(found, np.array(want), rtol=1e-12)


def test_variables_stay_on_their_tasks_until_they_are_read() -> None:
    graph, fetches = replicated()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        asked: list[str] = []
        session.run(fetches, data(1)[0])
        tasks, ask = LocalTasks.made, LocalTasks.made.ask

        def counted(task: str, method: str, *arguments: Any) -> Any:
            asked.append(f"{method} {task}")
            return ask(task, method, *arguments)

        tasks.ask = counted  # type: ignore[method-assign]
        for feeds in data(3):
            session.run(fetches, feeds)
        assert asked == []
        session.get("steps")
        session.values()
        assert asked == ["get /job:worker/task:0", "get /job:ps/task:0"] or asked == [
            "get /job:ps/task:0",
            "get /job:worker/task:0",
        ]
        asked.clear()
        session.run(fetches, data(1)[0])
        assert asked == []  # reading changed nothing
        session.set("steps", 100)
        session.run(fetches, data(1)[0])
        assert any(each.startswith("set /job:ps") for each in asked)
        assert int(session.get("steps")) == 101


def test_only_what_another_task_needs_is_sent() -> None:
    """Each step sends the variables to both workers, gradients back, a loss, and the counter."""
    graph, fetches = replicated()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        session.run(fetches, data(1)[0])
        before = LocalTasks.made.sent
        session.run(fetches, data(1)[0])
        parameters = (4 * 16 + 16 + 16 + 1) * 8
        assert LocalTasks.made.sent - before <= 4 * parameters + 2000


def test_a_variable_is_read_before_it_changes() -> None:
    """Another task, or a later cluster of the same task, uses the old value."""
    graph = gc.Graph()
    with graph:
        with gc.device("/job:ps/task:0"):
            v = gc.variable(1.0, name="v")
            old = v.read()
        with gc.device("/job:worker/task:0"):
            there = old + 10
        with gc.device("/job:ps/task:0"):
            again = old + there  # runs after the worker, so maybe after the assignment
            new = v.assign(old * 2)
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        assert [list(map(float, session.run([new, there, again]))) for _ in range(3)] == [
            [2.0, 11.0, 12.0], [4.0, 12.0, 14.0], [8.0, 14.0, 18.0]
        ]  # fmt: skip
        assert float(session.get("v")) == 8.0


def test_a_variable_that_its_task_reads_again_changes_last() -> None:
    """The first cluster on the server computes the new value, and the second reads the old one."""
    graph = gc.Graph()
    with graph:
        with gc.device("/job:ps/task:0"):
            v = gc.variable(1.0, name="v")
            old = v.read()
            more = old + 5
        with gc.device("/job:worker/task:0"):
            there = more + 10
        with gc.device("/job:ps/task:0"):
            again = old + there
            new = v.assign(more)
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        assert [list(map(float, session.run([new, again]))) for _ in range(3)] == [
            [6.0, 17.0], [11.0, 27.0], [16.0, 37.0]
        ]  # fmt: skip
        assert float(session.get("v")) == 16.0
        assert not any(station._values for station in LocalTasks.made.stations.values())


def test_the_log_names_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    graph, fetches = replicated()
    strategy = RemoteTasks(JOBS)
    with gc.Session(graph, strategy=strategy, log_placement=True) as session:
        session.run(fetches, data(1)[0])
        session.run(fetches, data(1)[0])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Devices:", "/job:worker/replica:0/task:0/device:CPU:0"]
    server = "/job:ps/replica:0/task:0/device:CPU:0"
    assert lines.count(f"hidden/kernel: (Variable) {server}") == 1
    assert any("(MatMul) /job:worker/replica:0/task:1/device:CPU:0" in line for line in lines)


def test_what_names_no_task_runs_on_the_first() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2,), name="x")
        n = gc.variable(0, name="n")
        fetches = [gc.exp(x), n.assign_add(1), gc.constant(3.0), x]
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        exp, one, three, same = session.run(fetches, {x: [0.0, 1.0]})
        assert_near(exp, np.exp([0.0, 1.0]), rtol=1e-6)
        assert (int(one), float(three), same.tolist()) == (1, 3.0, [0.0, 1.0])
        ran = LocalTasks.made.ran
        assert ran["/job:worker/task:0"] == sum(ran.values()) > 0


def test_micro_batches_and_devices_of_a_task() -> None:
    """Each task has four virtual devices."""

    def loss_of(places: list[str]) -> tuple[gc.Graph, list[Any]]:
        graph = gc.Graph(seed=0)
        with graph:
            x = gc.placeholder((None, 4), "float64", name="x")
            h = x
            for i, place in enumerate(places):
                with gc.device(place):
                    h = gc.nn.Dense(4, activation="tanh", dtype="float64", name=f"layer{i}")(h)
            with gc.device(places[-1]):
                loss = gc.reduce_mean(gc.square(h))
            train = gc.minimize(loss, optax.sgd(0.1), accumulate=4)
        return graph, [train, loss]

    rows = np.random.default_rng(0).standard_normal((16, 4))
    places = ["/job:worker/task:0/cpu:1", "/job:worker/task:1/cpu:3", "/job:ps/task:0"]
    results = []
    for where, strategy in (["/cpu:0"] * 3, None), (places, RemoteTasks(JOBS)):
        graph, fetches = loss_of(where)
        with gc.Session(graph, strategy=strategy) as session:
            results.append([float(session.run(fetches, {"x": rows})[1]) for _ in range(5)])
    assert_near(results[1], results[0], rtol=1e-9)


def test_training_with_checkpoints(tmp_path: Any) -> None:
    def train(steps: int, folder: Any) -> dict[str, Any]:
        graph, (step, loss, *_) = replicated()
        rows = {name: np.concatenate([each[name] for each in data(10)]) for name in "xy"}
        batches = gc.data.from_arrays(rows).repeat().batch(8)
        job = gc.train.Job(graph, step, batches, metrics={"loss": loss})
        with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
            gc.train.fit(session, job, steps=steps, checkpoint=folder, progress=False)
            return session.values()

    whole = train(30, tmp_path / "whole")
    train(13, tmp_path / "parts")
    for name, value in train(30, tmp_path / "parts").items():
        assert_near(value, whole[name], rtol=0, err_msg=name)


def test_errors_before_a_step() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2,), name="x")
        with gc.device("/job:worker/task:2"):
            gc.exp(x, name="y")
        with gc.device("/gpu:0"):
            z = gc.exp(x, name="z")
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        with pytest.raises(DeviceError, match="no device '/job:worker/task:2' for 'y'") as caught:
            session.run(z, {x: [1.0, 2.0]})
        assert "/job:ps/task:0/device:CPU:0" in str(caught.value)
        with pytest.raises(GraphError, match="compiled by its tasks"):
            session.compile(z, {x: (2,)})
    with pytest.raises(AttributeValueError, match="RemoteTasks is for sessions"):
        gc.compile(graph, z, {x: (2,)}, strategy=RemoteTasks(JOBS))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (({},), "jobs must be numbers"),
        (({"worker": 0},), "jobs must be numbers"),
        ((3,), "jobs must be numbers"),
        (({"worker": 1}, {"ps": {}}), "options are for 'ps'"),
        (({"worker": 1}, {"num_gpus": 1}), "options must be mappings by the name of the job"),
        (({"worker": 1}, 4), "options must be mappings by the name of the job"),
    ],
)
def test_wrong_arguments(arguments: Any, says: str) -> None:
    with pytest.raises(AttributeValueError, match=says):
        RemoteTasks(*arguments)


def test_a_kind_that_the_cluster_lacks_falls_back_within_the_task() -> None:
    def graph_on_gpu() -> tuple[gc.Graph, Any, Any]:
        graph = gc.Graph()
        with graph:
            x = gc.placeholder((2,), name="x")
            with gc.device("/job:worker/task:1/gpu:0"):
                y = gc.exp(x)
        return graph, x, y

    graph, x, y = graph_on_gpu()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        assert_near(session.run(y, {x: [0.0, 1.0]}), np.exp([0.0, 1.0]), rtol=1e-6)
    graph, x, y = graph_on_gpu()
    with (
        gc.Session(graph, strategy=RemoteTasks(JOBS), soft_placement=False) as session,
        pytest.raises(DeviceError, match="in the cluster"),
    ):
        session.run(y, {x: [0.0, 1.0]})


def test_a_task_that_ends_breaks_the_session() -> None:
    graph, fetches = replicated()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        session.run(fetches, data(1)[0])
        LocalTasks.made.ended = "/job:worker/task:1"
        with pytest.raises(StateError, match="it was killed"):
            session.run(fetches, data(1)[0])
        with pytest.raises(StateError, match="it was killed"):
            session.get("steps")


def test_a_step_that_fails() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2,), name="x")
        with gc.device("/job:ps/task:0"):
            v = gc.variable([0.0, 0.0], name="v")
        with gc.device("/job:worker/task:1"):
            y = gc.log(x, name="y")
        with gc.device("/job:ps/task:0"):
            add = v.assign_add(y)
    options = gc.CompileOptions(check_numerics=True)
    with gc.Session(graph, strategy=RemoteTasks(JOBS), options=options) as session:
        with pytest.raises(NumericsError, match="made a NaN"):
            session.run(y, {x: [-1.0, 1.0]})
        assert session.run(y, {x: [1.0, 1.0]}).tolist() == [0.0, 0.0]  # the state was not lost
        with pytest.raises(StateError, match="made a NaN"):
            session.run(add, {x: [-1.0, 1.0]})


def counters() -> tuple[gc.Graph, gc.Tensor]:
    graph = gc.Graph()
    with graph, gc.device("/job:ps/task:0"):
        a = gc.variable(0, name="a")
        gc.variable(0, name="b")
        return graph, a.assign_add(1)


def test_an_interrupt_while_variables_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, add = counters()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        session.run(add), session.run(add)
        set_all = LiveState.set
        monkeypatch.setattr(LiveState, "set", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.get("a")
        monkeypatch.setattr(LiveState, "set", set_all)
        assert int(session.get("a")) == 2
        session.set("b", 1)
        assert int(session.run(add)) == 3


def test_an_interrupt_while_variables_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, add = counters()
    with gc.Session(graph, strategy=RemoteTasks(JOBS)) as session:
        ask = LocalTasks.ask

        def once(self: LocalTasks, task: str, method: str, *arguments: Any) -> Any:
            if method == "set":
                monkeypatch.setattr(LocalTasks, "ask", ask)
                raise KeyboardInterrupt
            return ask(self, task, method, *arguments)

        monkeypatch.setattr(LocalTasks, "ask", once)
        with pytest.raises(KeyboardInterrupt):
            session.run(add)
        assert [int(session.run(add)) for _ in range(2)] == [1, 2]


def interrupted(*arguments: Any, **options: Any) -> None:
    raise KeyboardInterrupt
