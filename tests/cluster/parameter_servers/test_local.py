"""Parameter servers without Ray: everything runs in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.cluster.parameter_servers import pool, strategy
from graphc.cluster.parameter_servers.journal import Journal, Record
from graphc.errors import (
    AttributeValueError,
    CheckpointCorruptError,
    GraphError,
    NumericsError,
    StateError,
)
from graphc.runtime.workers.worker_threads import WorkerStep
from tests.cluster.parameter_servers.local_actors import LocalActors
from tests.near import assert_near


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Actors", LocalActors)
    monkeypatch.setattr(strategy, "ray", lambda user: None)


def model() -> gc.Graph:
    """A regression with a counter, a moving average and dropout."""
    graph = gc.Graph(seed=2)
    with graph:
        x = gc.placeholder((None, 3), "float64", name="x")
        y = gc.placeholder((None,), "float64", name="y")
        w = gc.variable(np.zeros((3, 8)), name="w")
        v = gc.variable(np.full(8, 0.1), name="v")
        mean = gc.variable(np.zeros(3), name="mean", trainable=False)
        count = gc.variable(np.int32(0), name="count", trainable=False)
        loss = gc.reduce_mean(gc.square(gc.matmul(x, w) @ v - y), name="loss")
        update = gc.minimize(loss, optax.adam(0.05), name="update")
        average = mean.assign(mean * 0.9 + gc.reduce_mean(x, axis=0) * 0.1)
        gc.group(update, average, count.assign_add(1), name="train")
    return graph


def batches(count: int, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        x = rng.normal(size=(4, 3))
        yield {"x": x, "y": x @ [1.0, -2.0, 0.5] + 0.3}


FETCHES = ["train", "loss:0", "count"]


@pytest.mark.parametrize("shards", [1, 3])
def test_without_staleness_it_is_sequential(shards: int) -> None:
    graph = model()
    sequential = gc.Session(graph)
    want = [sequential.run(FETCHES, feed)[1:] for feed in batches(30)]
    session = gc.Session(graph, strategy=gc.cluster.ParameterServers(3, staleness=0, shards=shards))
    run = session.run_workers(FETCHES, batches(30), keep=True)
    assert run.staleness == {0: 30} and run.updates == sum(run.steps) == 30
    assert_near([v[1:] for v in run.values], want, rtol=1e-9, atol=1e-12)
    values = sequential.values()
    for name, value in session.values().items():
        assert_near(value, values[name], rtol=1e-9, atol=1e-12, err_msg=name)
    # The session continues with the servers' values, and the servers with the session's values.
    feed = next(batches(1, seed=1))
    assert_near(session.run(FETCHES, feed)[1], sequential.run(FETCHES, feed)[1], rtol=1e-9)
    more = session.run_workers(FETCHES, batches(3, seed=2), keep=True)
    assert [int(v[2]) for v in more.values] == [32, 33, 34]


def test_variables_are_divided_by_size_and_stay_with_their_slots() -> None:
    session = gc.Session(model(), strategy=gc.cluster.ParameterServers(1, shards=2))
    session.run_workers(FETCHES, batches(1))
    holders = session._workers._assignment.holders
    assert {holders[name] for name in ("w", "w/update/0/mu", "w/update/0/nu")} == {(0,)}
    assert {holders[name] for name in ("v", "v/update/0/mu", "mean")} == {(1,)}
    assert holders["update/0/count"] == (0, 1)  # the steps of both optimizers read it


def test_staleness_is_bounded_and_counts_are_exact() -> None:
    session = gc.Session(model(), strategy=gc.cluster.ParameterServers(4, staleness=2, shards=2))
    run = session.run_workers(FETCHES, batches(60))
    assert run.updates == 60 and max(run.staleness) <= 2
    assert session.get("count") == 60 == session.get("update/0/count")


def test_restarted_servers_continue_with_the_same_bits() -> None:
    graph = model()
    undisturbed = gc.Session(graph, strategy=gc.cluster.ParameterServers(1, shards=2))
    undisturbed.run_workers(FETCHES, batches(40))
    strategy = gc.cluster.ParameterServers(1, shards=2, checkpoint_every=7)
    session = gc.Session(graph, strategy=strategy)

    def restart(step) -> None:
        if step.update % 3 == 0:
            session._workers._actors.restart(step.update % 2)

    session.run_workers(FETCHES, batches(40), on_step=restart)
    want = undisturbed.values()
    for name, value in session.values().items():
        np.testing.assert_array_equal(value, want[name], name)


def test_an_update_that_arrives_twice_is_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    push = LocalActors.push

    def twice(self, worker, number, sent, values):
        first = push(self, worker, number, sent, values)
        if number == 4:
            self.restart(0)  # the process ended before its answer arrived
        again = push(self, worker, number, sent, values)
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)
        return again

    monkeypatch.setattr(LocalActors, "push", twice)
    session = gc.Session(model(), strategy=gc.cluster.ParameterServers(2, shards=2))
    run = session.run_workers([*FETCHES, "update/0/count"], batches(20))
    assert run.updates == 20 and session.get("count") == 20 == session.get("update/0/count")
    repeated = [counts["repeated"] for counts in session._workers._actors.counts()]
    assert sum(repeated) > 20


def embeddings(rows: int) -> gc.Graph:
    graph = gc.Graph(seed=1)
    with graph:
        ids = gc.placeholder((None,), "int32", name="ids")
        table = gc.variable(np.ones((rows, 4), np.float32), name="table")
        out = gc.variable(np.ones((4, 1), np.float32), name="out")
        loss = gc.reduce_mean(gc.square(gc.matmul(gc.take(table, ids % rows), out)), name="loss")
        gc.minimize(loss, optax.adagrad(0.1), name="train")
    return graph


def test_only_rows_of_tables_travel() -> None:
    graph = embeddings(5000)
    feeds = [{"ids": np.arange(i, i + 6)} for i in range(0, 60, 3)]
    sequential = gc.Session(graph)
    want = [sequential.run(["train", "loss:0"], feed)[1] for feed in feeds]
    session = gc.Session(graph, strategy=gc.cluster.ParameterServers(2, staleness=0, shards=2))
    run = session.run_workers(["train", "loss:0"], feeds, keep=True)
    assert_near([v[1] for v in run.values], want, rtol=1e-5)
    assert_near(session.get("table"), sequential.get("table"), rtol=1e-5)
    actors = session._workers._actors
    assert actors.rows == 6 * len(feeds)
    assert actors.pushed < 1000 * len(feeds)  # a dense gradient has 80,000 bytes


def test_a_failing_step_changes_nothing_and_names_the_worker() -> None:
    options = gc.CompileOptions(check_numerics=True)
    session = gc.Session(
        model(), strategy=gc.cluster.ParameterServers(2, staleness=0), options=options
    )
    feeds = [*batches(5), {"x": np.full((4, 3), 1e200), "y": np.zeros(4)}, *batches(2)]
    with pytest.raises(NumericsError) as caught:
        session.run_workers(FETCHES, feeds)
    assert "a process of worker" in caught.value.__notes__[0]
    assert session.get("count") == 5
    assert session.run_workers(FETCHES, batches(3)).updates == 3


def test_closing_ends_the_processes_and_removes_their_files() -> None:
    session = gc.Session(model(), strategy=gc.cluster.ParameterServers(1))
    session.run_workers(FETCHES, batches(1))
    folder, actors = Path(session._workers._folder), session._workers._actors
    assert folder.exists()
    session.close()
    assert actors.closed and not folder.exists()
    with pytest.raises(StateError, match="closed"):
        session.run_workers(FETCHES, batches(1))


def test_workers_that_run_already() -> None:
    session = gc.Session(model(), strategy=gc.cluster.ParameterServers(1))
    session.run_workers(FETCHES, batches(1))
    entered, leave = threading.Event(), threading.Event()

    def wait(step) -> None:
        entered.set()
        leave.wait(20)

    thread = threading.Thread(
        target=session.run_workers, args=(FETCHES, batches(1)), kwargs={"on_step": wait}
    )
    thread.start()
    assert entered.wait(20)
    with pytest.raises(StateError, match="running already"):
        session.run_workers(FETCHES, batches(1))
    leave.set()
    thread.join()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"workers": 0}, "workers must be an int of 1 or more, got 0"),
        ({"workers": 2, "shards": True}, "shards must be an int"),
        ({"workers": 2, "staleness": -1}, "staleness must be an int of at least 0"),
        ({"workers": 2, "checkpoint_every": 0.5}, "checkpoint_every must be an int"),
    ],
)
def test_wrong_arguments(arguments, text) -> None:
    with pytest.raises(AttributeValueError, match=text):
        gc.cluster.ParameterServers(**arguments)


def test_a_step_is_not_compiled_for_it() -> None:
    with pytest.raises(AttributeValueError, match="ParameterServers is for sessions"):
        gc.compile(model(), ["loss:0"], {}, strategy=gc.cluster.ParameterServers(1))


def test_a_later_fetch_of_variables_on_two_servers() -> None:
    graph = model()
    with graph:
        both = gc.add(
            gc.reduce_sum(graph.variables["w"].read()), gc.reduce_sum(graph.variables["v"].read())
        )
        last = gc.variable(0.0, dtype="float64", name="last", trainable=False)
        together = last.assign(both)
    session = gc.Session(graph, strategy=gc.cluster.ParameterServers(1, shards=2))
    session.run_workers(FETCHES, batches(1))
    with pytest.raises(GraphError, match="on different parameter servers"):
        session.run_workers([*FETCHES, together], batches(1))


# -- the journal -------------------------------------------------------------------------------


def test_a_journal_keeps_every_dtype(tmp_path: Path) -> None:
    values = {
        "bf16": np.arange(3).astype("bfloat16") if hasattr(np, "bfloat16") else np.zeros(3, "f2"),
        "scalar": np.int32(3) * np.ones((), np.int32),
        "empty": np.zeros((0, 3)),
        "bool": np.array([True, False]),
        "complex": np.array([1 + 2j]),
    }
    journal = Journal(tmp_path)
    journal.checkpoint({"run": 1}, values)
    journal.append(Record({"number": 0}, [np.eye(2)]))
    journal.close()
    facts, found, updates = Journal(tmp_path).read()
    assert facts["run"] == 1 and list(found) == list(values)
    for name, value in values.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)
    np.testing.assert_array_equal(updates[0].arrays[0], np.eye(2))


@pytest.mark.parametrize("cut", [1, 5, 11, 13, 40])
def test_the_incomplete_end_of_a_log_is_cut_off(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path)
    journal.checkpoint({}, {})
    for number in range(3):
        journal.append(Record({"number": number}, [np.full(4, number)]))
    journal.close()
    log = tmp_path / "log.bin"
    log.write_bytes(log.read_bytes()[:-cut])
    again = Journal(tmp_path)
    assert [r.facts["number"] for r in again.read()[2]] == [0, 1]
    again.append(Record({"number": 2}, []))
    again.close()
    assert [r.facts["number"] for r in Journal(tmp_path).read()[2]] == [0, 1, 2]


def test_an_altered_checkpoint_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.checkpoint({}, {"w": np.ones(100)})
    journal.close()
    path = tmp_path / "state.bin"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointCorruptError, match="truncated or altered"):
        Journal(tmp_path).read()


def test_workers_join_and_leave_while_they_run() -> None:
    session = gc.Session(model(), strategy=gc.cluster.ParameterServers(1, staleness=4, shards=2))
    seen: list[set[int]] = [set(), set(), set()]

    late: set[int] = set()

    def on_step(step: WorkerStep) -> None:
        seen[min(step.update // 40, 2)].add(step.worker)
        if step.update >= 90:  # workers that left have finished their steps
            late.add(step.worker)
        if step.update == 39:
            session.resize_workers(3)
        if step.update == 79:
            session.resize_workers(1)

    run = session.run_workers(FETCHES, batches(160), on_step=on_step)
    assert run.updates == sum(run.steps) == 160 == session.get("count")
    assert len(run.steps) == 3 and seen[0] == {0}
    assert len(seen[1]) > 1  # other workers have joined
    assert len(late) == 1
    actors = session._workers._actors
    assert len(actors.workers) == 1  # the processes of workers that left have ended
    more = session.run_workers(FETCHES, batches(5))
    assert more.steps == (5,)
    session.resize_workers(2)
    assert len(session.run_workers(FETCHES, batches(5)).steps) == 2


def test_the_number_of_workers_that_cannot_change() -> None:
    session = gc.Session(model(), strategy=gc.cluster.ParameterServers(2))
    with pytest.raises(AttributeValueError, match="1 or more, got 0"):
        session.resize_workers(0)
    with pytest.raises(AttributeValueError, match="an iterable of batches of its own"):
        session.run_workers(
            FETCHES, [batches(3), batches(3)], on_step=lambda step: session.resize_workers(3)
        )
    session.close()
    with pytest.raises(StateError, match="closed"):
        session.resize_workers(3)
    for other in (None, gc.devices.AsyncDataParallel(1)):
        with pytest.raises(AttributeValueError, match="cannot change"):
            gc.Session(model(), strategy=other).resize_workers(2)
