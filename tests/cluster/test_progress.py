"""Which processes make others wait, according to the reports of their `fit`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import graphc as gc
from graphc.cluster import progress
from graphc.cluster.progress import Progress, Stragglers
from graphc.train.callbacks.sign_of_life import SignOfLife


class Told:
    """Processes with invented reports and an invented clock."""

    def __init__(self, folder: Path, count: int, patch: pytest.MonkeyPatch) -> None:
        self.processes = [Progress(f"worker {i}", folder / str(i)) for i in range(count)]
        self.stragglers, self.now, self.step = Stragglers(), 0.0, 0
        self.late, self.own = [0.0] * count, [0.0] * count
        patch.setattr(progress.time, "monotonic", lambda: self.now)

    def go_on(self, seconds: float, *late: float, own: float = 0.0, steps: int = 10) -> list[str]:
        """The messages of a period in which each process is late by its part of each second. Other
        work takes as long as the largest part, and at least `own`."""
        said = []
        for _ in range(int(seconds)):
            self.now, self.step = self.now + 1.0, self.step + steps
            for i, (process, part) in enumerate(zip(self.processes, late, strict=True)):
                self.late[i] += part
                self.own[i] += max(part, own)
                told = {"step": self.step, "of": None, "late": self.late[i], "own": self.own[i]}
                process.path.write_text(json.dumps(told))
                process.look()
            said += self.stragglers.new(self.processes)
        return said


def test_who_makes_others_wait_is_named_once(tmp_path: Path, monkeypatch) -> None:
    told = Told(tmp_path, 3, monkeypatch)
    assert told.go_on(20, 0.02, 0.01, 0.03) == []
    (text,) = told.go_on(60, 0.02, 0.6, 0.02)
    assert text.startswith("worker 1 is slow: the others wait for it ") and "a step" in text
    assert told.go_on(60, 0.02, 0.02, 0.02) == []
    (text,) = told.go_on(60, 0.02, 0.6, 0.02)  # reported again
    assert text.startswith("worker 1 is slow")
    (text,) = told.go_on(20, 0.02, 0.02, 0.9)
    assert text.startswith("worker 2 is slow")


def test_all_that_wait_for_their_input_are_no_stragglers(tmp_path: Path, monkeypatch) -> None:
    told = Told(tmp_path, 2, monkeypatch)
    assert told.go_on(60, 0.8, 0.0, own=0.75) == []  # late without others that wait for it


def test_who_waits_for_the_values_of_a_step_is_no_straggler(tmp_path: Path, monkeypatch) -> None:
    told = Told(tmp_path, 2, monkeypatch)
    told.own[0] = 0.0
    for _ in range(30):
        assert told.go_on(1, 0.01, 0.0) == []
        told.own[0] += 0.9


def test_few_steps_and_one_process_say_nothing(tmp_path: Path, monkeypatch) -> None:
    assert Told(tmp_path, 1, monkeypatch).go_on(60, 0.9) == []
    assert Told(tmp_path, 2, monkeypatch).go_on(60, 0.9, 0.0, steps=0) == []


@pytest.mark.parametrize(
    "text", ["", "17", "[]", '{"step": 1}', '{"step": "a", "of": 1, "late": 0, "own": 0}']
)
def test_files_of_something_else(text: str, tmp_path: Path) -> None:
    (tmp_path / "0").write_text(text)
    process = Progress("worker 0", tmp_path / "0")
    process.look()
    assert process.sign is None and process.silence == 0.0


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_the_device_waits_for_slow_callbacks(pause: float, tmp_path: Path) -> None:
    class Slow(gc.train.Callback):
        def on_step(self, run: gc.train.Run) -> None:
            time.sleep(pause)

    class Last(gc.train.Callback):
        def on_step(self, run: gc.train.Run) -> None:
            sign._next = 0.0
            if run.step == 20:
                told.update(json.loads((tmp_path / "sign").read_text()))

    told: dict[str, float] = {}
    graph = gc.Graph()
    with graph:
        w = gc.variable(8.0, name="w")
        job = gc.train.Job(graph, w.assign_sub(0.1 * w), [{}] * 20, steps=20, metrics={"w": w})
    sign = SignOfLife(str(tmp_path / "sign"))
    gc.train.fit(gc.Session(graph), job, callbacks=[sign, Slow(), Last()], progress=False)
    assert told["step"] == 20 and told["of"] == 20
    if pause:
        assert 0.7 * 19 * pause < told["late"]
    assert told["late"] >= 0
    assert not (tmp_path / "sign").exists()
