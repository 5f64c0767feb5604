"""Checkpoints in a folder: retention, one writer, failures, and leftovers of killed writers."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.checkpoints import folder as folders
from graphc.checkpoints import shards
from graphc.checkpoints.retention import Facts, Retention
from graphc.errors import AttributeValueError, CheckpointError, CopyError


@pytest.fixture
def session() -> gc.Session:
    graph = gc.Graph()
    with graph:
        gc.variable(np.zeros(1000, np.float32), name="w")
    return gc.Session(graph)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


# -- retention ----------------------------------------------------------------------------------


def test_the_latest_and_the_best_stay(session: gc.Session, tmp_path: Path) -> None:
    losses = [5.0, 1.0, 4.0, 2.0, 3.0, float("nan"), 9.0]
    with gc.train.Checkpointer(tmp_path, keep=2, keep_best=("loss", "min", 2)) as saver:
        for step, loss in enumerate(losses):
            saver.save(session, step, metrics={"loss": loss} if step != 4 else None)
        saver.wait()
        assert saver.steps() == [1, 3, 5, 6]
        assert saver.latest() == 6


FACTS = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.dictionaries(st.just("m"), st.sampled_from([float("nan"), 0.0, 1.0, 2.0, -5.0])),
    ),
    max_size=15,
    unique_by=lambda fact: fact[0],
).map(lambda pairs: [Facts(i, float(t), m) for i, (t, m) in enumerate(sorted(pairs, key=str))])


@given(
    facts=FACTS,
    latest=st.integers(1, 4),
    best=st.none() | st.tuples(st.just("m"), st.sampled_from(["min", "max"]), st.integers(1, 3)),
    every=st.none() | st.sampled_from([1.0, 100.0, 5000.0]),
)
def test_the_rules(facts: list[Facts], latest: int, best: Any, every: float | None) -> None:
    rules = Retention(latest, best, every)
    left = rules.leave(facts)
    stay = [fact for fact in facts if fact.step not in left]
    assert {f.step for f in facts[-latest:]} <= {f.step for f in stay}
    assert rules.leave(stay) == set()  # without new checkpoints, the rest stays
    if best is None and every is None:
        assert len(stay) == min(latest, len(facts))
    if best is not None:
        known = [f for f in facts if f.metrics.get("m", np.nan) == f.metrics.get("m")]
        worst = [f for f in known if f.step in left]
        kept = [f.metrics["m"] for f in known if f.step not in left]
        sign = 1 if best[1] == "min" else -1
        for fact in worst:
            assert sum(sign * m <= sign * fact.metrics["m"] for m in kept) >= best[2]
    if every is not None:
        times = sorted(f.created for f in stay)
        for fact in facts:
            assert any(t <= fact.created < t + every for t in times)


# -- the same step twice ------------------------------------------------------------------------


def test_a_checkpoint_of_the_same_step_is_replaced(session: gc.Session, tmp_path: Path) -> None:
    with gc.train.Checkpointer(tmp_path) as saver:
        for value in (1, 2, 3):
            session.set("w", np.full(1000, value, np.float32))
            saver.save(session, 7)
        saver.wait()
        assert saver.steps() == [7] and len(names(tmp_path)) == 1
        saver.restore(session)
    assert session.values()["w"][0] == 3


def test_gc_save_replaces_what_it_wrote(session: gc.Session, tmp_path: Path) -> None:
    for value in (1, 2):
        session.set("w", np.full(1000, value, np.float32))
        gc.save(session, tmp_path / "x")
    session.set("w", np.zeros(1000, np.float32))
    gc.train.restore(session, tmp_path / "x")
    assert session.values()["w"][0] == 2
    with pytest.raises(AttributeValueError, match="have signatures"):
        gc.save(session, tmp_path / "x", native=True)


# -- writers ------------------------------------------------------------------------------------


def test_a_second_writer_is_refused(session: gc.Session, tmp_path: Path) -> None:
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 1)
        second = gc.train.Checkpointer(tmp_path / ".." / tmp_path.name)
        with pytest.raises(CheckpointError, match="another Checkpointer writes"):
            second.save(session, 2)
        saver.wait()
        assert second.steps() == [1]  # readers need no lock
        assert second.restore(session) is not None
    second.save(session, 2, wait=True)
    second.close()
    assert second.steps() == [1, 2]


def test_a_writer_that_was_dropped_frees_the_folder(session: gc.Session, tmp_path: Path) -> None:
    saver = gc.train.Checkpointer(tmp_path)
    saver.save(session, 1, wait=True)
    del saver
    with gc.train.Checkpointer(tmp_path) as second:
        second.save(session, 2)
    assert second.steps() == [1, 2]


WRITER = """
import sys, numpy as np, graphc as gc
graph = gc.Graph()
with graph:
    gc.variable(np.zeros(1000, np.float32), name="w")
with gc.train.Checkpointer(sys.argv[1]) as saver:
    saver.save(gc.Session(graph), int(sys.argv[2]), wait=True)
    print("saved", flush=True)
    sys.stdin.read()
"""


def test_another_process_that_writes(session: gc.Session, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), "5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "saved\n"
    saver = gc.train.Checkpointer(tmp_path)
    with pytest.raises(CheckpointError, match=rf"process {child.pid} on "):
        saver.save(session, 6)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    saver.save(session, 6, wait=True)
    saver.close()
    assert saver.steps() == [5, 6]


def test_what_a_killed_writer_left_is_removed(session: gc.Session, tmp_path: Path) -> None:
    (tmp_path / ".writing-0123").mkdir()
    (tmp_path / ".writing-0123" / "values-00000.safetensors").write_bytes(b"part")
    (tmp_path / "notes.txt").write_text("mine")
    assert gc.train.Checkpointer(tmp_path).steps() == []
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 1)
    assert names(tmp_path) == ["notes.txt", "step-0000000001"]


def test_a_forked_process_is_refused(session: gc.Session, tmp_path: Path) -> None:
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 1, wait=True)
        saver._process += 1  # as in a child; with pytest's threads, a real fork is forbidden
        with pytest.raises(CheckpointError, match="forked"):
            saver.save(session, 2)


def test_threads_take_turns_with_steps(tmp_path: Path) -> None:
    """Each checkpoint holds the state between two steps."""
    graph = gc.Graph()
    with graph:
        a, b = gc.variable(0, name="a"), gc.variable(0, name="b")
        both = gc.group([a.assign_add(1), b.assign_add(1)])
    session = gc.Session(graph)
    session.run(both)
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            session.run(both)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        with gc.train.Checkpointer(tmp_path, keep=50) as saver:
            for step in range(30):
                saver.save(session, step)
    finally:
        stop.set()
        thread.join()
    other = gc.Session(graph)
    for step in range(30):
        gc.train.Checkpointer(tmp_path).restore(other, step)
        assert other.get("a") == other.get("b")


# -- failures -----------------------------------------------------------------------------------


class FullDisk:
    """`shards._write_all` for a disk that is full after some bytes."""

    def __init__(self, room: int) -> None:
        self.room, self.write = room, shards._write_all

    def __call__(self, raw: Any, data: memoryview) -> None:
        self.write(raw, data[: self.room])
        self.room -= min(self.room, len(data))
        if not self.room:
            raise OSError(28, "No space left on device")


@pytest.mark.parametrize("room", [0, 1, 100, 3000, 4200, 5000])
@pytest.mark.parametrize("wait", [True, False], ids=["wait", "thread"])
def test_a_full_disk(
    room: int, wait: bool, session: gc.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = gc.train.Checkpointer(tmp_path)
    saver.save(session, 1, wait=True)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "_write_all", FullDisk(room))
        with pytest.raises(CheckpointError, match="No space left on device"):
            saver.save(session, 2, wait=wait)
            saver.wait()
    assert names(tmp_path) == ["step-0000000001"]
    saver.wait()  # the failure was raised once
    saver.save(session, 3)
    saver.close()
    assert saver.steps() == [1, 3]


@pytest.mark.parametrize("how", ["save", "check", "wait", "close", "exit"])
def test_the_failure_of_a_thread_is_raised_by_the_next_call(
    how: str, session: gc.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = gc.train.Checkpointer(tmp_path)
    monkeypatch.setattr(shards, "_write_all", FullDisk(10))
    saver.save(session, 1)
    while saver._background.is_running:
        pass
    with pytest.raises(CheckpointError, match="No space left"):
        if how == "save":
            saver.save(session, 2)
        elif how == "exit":
            with saver:
                pass
        else:
            getattr(saver, how)()
    saver.check()
    saver.close()


@pytest.mark.slow
def test_a_failure_that_nobody_saw_is_printed() -> None:
    child = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, graphc as gc\n"
            "from graphc.checkpoints import shards\n"
            "def full(*_): raise OSError(28, 'No space left on device')\n"
            "shards._write_all = full\n"
            "saver = gc.train.Checkpointer('/tmp/graphc-unseen')\n"
            "saver.save(gc.Session(gc.Graph()), 1)\n",
        ],
        capture_output=True,
        text=True,
    )
    assert "a checkpoint was not written" in child.stderr
    assert "No space left on device" in child.stderr


@pytest.mark.parametrize("place", ["/proc/nothing/here", "/dev/null/x"])
def test_a_folder_that_cannot_be_written(place: str, session: gc.Session) -> None:
    with (
        gc.train.Checkpointer(place) as saver,
        pytest.raises(CheckpointError, match="cannot write a checkpoint"),
    ):
        saver.save(session, 1)


def test_an_interrupt_while_it_writes_leaves_nothing(
    session: gc.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 1, wait=True)
        for name in ("_write_all", "_header"):
            with monkeypatch.context() as patch:
                patch.setattr(shards, name, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    saver.save(session, 2, wait=True)
        assert names(tmp_path) == ["step-0000000001"]
        saver.save(session, 2, wait=True)


def test_a_checkpoint_half_removed_is_no_checkpoint(session: gc.Session, tmp_path: Path) -> None:
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 1)
        saver.save(session, 2)
    (tmp_path / "step-0000000002" / "manifest.json").unlink()
    assert saver.steps() == [1]
    assert [each.step for each in folders.found(tmp_path)] == [1]


def test_a_read_only_folder_opens(session: gc.Session, tmp_path: Path) -> None:
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 1)
    (tmp_path / ".lock").unlink()
    before = os.stat(tmp_path).st_mtime_ns
    assert gc.train.Checkpointer(tmp_path).restore(session) is not None
    assert os.stat(tmp_path).st_mtime_ns == before  # nothing was written


# -- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"folder": 3}, "folder must be the path"),
        ({"folder": ""}, "folder must be the path"),
        ({"keep": 0}, "keep must be a number"),
        ({"keep": True}, "keep must be a number"),
        ({"keep_best": "loss"}, "keep_best must be"),
        ({"keep_best": ("loss", "least", 1)}, "keep_best must be"),
        ({"keep_every": 0}, "keep_every must be"),
        ({"keep_every": "1h"}, "keep_every must be"),
    ],
    ids=str,
)
def test_wrong_arguments(arguments: Any, what: str) -> None:
    with pytest.raises(AttributeValueError, match=what):
        gc.train.Checkpointer(**{"folder": "x", **arguments})


def test_wrong_calls(session: gc.Session, tmp_path: Path) -> None:
    saver: Any = gc.train.Checkpointer(tmp_path)
    for step in (-1, 1.5, None, True, 10**18):
        with pytest.raises(AttributeValueError, match="step must be an int"):
            saver.save(session, step)
    with pytest.raises(AttributeValueError, match="first argument must be a session"):
        saver.save(session.graph, 1)
    with pytest.raises(AttributeValueError, match="must be a dict of figures"):
        saver.save(session, 1, metrics=[1])
    with pytest.raises(AttributeValueError, match=r"metrics\['a'\] must be one number"):
        saver.save(session, 1, metrics={"a": "b"})
    with pytest.raises(CheckpointError, match="no checkpoint of step 4"):
        saver.restore(session, 4)
    assert saver.restore(session) is None
    with pytest.raises(CopyError):
        pickle.dumps(saver)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(AttributeValueError, match="not a file"):
        gc.train.Checkpointer(tmp_path / "file")
    saver.close()
    with pytest.raises(CheckpointError, match="closed"):
        saver.save(session, 1)
    assert os.listdir(tmp_path) == ["file"]
