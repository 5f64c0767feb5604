"""Versions are loaded concurrently, retried after errors, and freed."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphc.artifacts.sharing import Content, SharedArrays
from graphc.errors import ArtifactError, DataError
from graphc.serving.config import All, ModelConfig
from graphc.serving.models.loader import Loader
from graphc.serving.models.manager import Manager
from graphc.serving.models.updater import is_final
from graphc.web.failures import Failure
from tests.serving.models.saved import X, expected, put


class Gates:
    """Loads wait for their gate, or fail if the test says so."""

    def __init__(self) -> None:
        self.gates: dict[tuple[str, int], threading.Event] = {}
        self.begun: dict[tuple[str, int], threading.Event] = {}
        self.errors: list[Exception] = []
        self.tries = 0

    def hold(self, name: str, version: int) -> None:
        self.gates[name, version] = threading.Event()
        self.begun[name, version] = threading.Event()

    def around(self, load: Callable) -> Callable:
        def loading(loader, name, found):
            self.tries += 1
            key = (name, found.version)
            if key in self.gates:
                self.begun[key].set()
                assert self.gates[key].wait(60)
            if self.errors:
                raise self.errors.pop(0)
            return load(loader, name, found)

        return loading


@pytest.fixture
def gates(monkeypatch) -> Gates:
    found = Gates()
    monkeypatch.setattr(Loader, "load", found.around(Loader.load))
    return found


def state(manager: Manager, name: str, version: int) -> str:
    return manager.status(name, version)[0].state


def answer(manager: Manager, name: str) -> np.ndarray:
    with manager.use(name) as servable:
        return servable.run("predict", {"x": X})["y"]


@pytest.mark.slow
def test_a_slow_version_holds_up_no_other(tmp_path: Path, managing, gates: Gates) -> None:
    put(tmp_path / "slow", 1, 1), put(tmp_path / "fast", 1, 1)
    configs = [ModelConfig("slow", tmp_path / "slow"), ModelConfig("fast", tmp_path / "fast")]
    manager = managing(*configs)
    gates.hold("slow", 2)
    put(tmp_path / "slow", 2, 2), put(tmp_path / "fast", 2, 2)
    manager.search()
    assert gates.begun["slow", 2].wait(60)
    manager._updater.wait([manager._models["fast"]])
    np.testing.assert_array_equal(answer(manager, "fast"), expected(2))
    np.testing.assert_array_equal(answer(manager, "slow"), expected(1))
    assert (state(manager, "slow", 2), state(manager, "slow", 1)) == ("LOADING", "AVAILABLE")
    put(tmp_path / "fast", 3, 3)  # searches continue meanwhile
    manager.search()
    manager._updater.wait([manager._models["fast"]])
    np.testing.assert_array_equal(answer(manager, "fast"), expected(3))
    gates.gates["slow", 2].set()
    manager.poll()
    np.testing.assert_array_equal(answer(manager, "slow"), expected(2))


def test_versions_are_loaded_at_the_same_time(tmp_path: Path, managing, gates: Gates) -> None:
    put(tmp_path, 1, 1), put(tmp_path, 2, 2)
    manager = managing()
    gates.hold("m", 1), gates.hold("m", 2)
    manager.reload([ModelConfig("m", tmp_path, All())], wait=False)
    assert gates.begun["m", 1].wait(60) and gates.begun["m", 2].wait(60)
    for gate in gates.gates.values():
        gate.set()
    manager.poll()
    assert [s.state for s in manager.status("m")] == ["AVAILABLE"] * 2


def test_one_thread_loads_one_after_the_other(tmp_path: Path, managing, gates: Gates) -> None:
    put(tmp_path, 1, 1), put(tmp_path, 2, 2)
    manager = managing(load_threads=1)
    gates.hold("m", 2)
    manager.reload([ModelConfig("m", tmp_path, All())], wait=False)
    assert gates.begun["m", 2].wait(60) and gates.tries == 1
    gates.gates["m", 2].set()
    manager.poll()
    assert gates.tries == 2


def test_ready_when_each_model_is_available_or_has_failed(
    tmp_path: Path, managing, gates: Gates
) -> None:
    for name in ("good", "bad", "slow"):
        put(tmp_path / name, 1, 1)
    (tmp_path / "bad" / "1" / "model.gcx").write_bytes(b"no artifact")
    (tmp_path / "empty").mkdir()
    configs = {n: ModelConfig(n, tmp_path / n) for n in ("good", "bad", "slow", "empty")}
    manager = managing(configs["bad"])
    assert not manager.is_ready()  # no version is available
    manager = managing(configs["good"], configs["bad"])
    assert manager.is_ready()
    gates.hold("slow", 1)
    manager.reload([configs["good"], configs["slow"]], wait=False)
    assert gates.begun["slow", 1].wait(60) and not manager.is_ready()
    gates.gates["slow", 1].set()
    manager.poll()
    assert manager.is_ready()
    manager.reload([configs["good"], configs["empty"]], wait=False)
    manager.poll()
    assert not manager.is_ready()  # its first version may follow


def test_a_load_that_failed_for_another_reason_is_tried_again(
    tmp_path: Path, managing, gates: Gates
) -> None:
    put(tmp_path, 1, 1)
    put(tmp_path, 2, 2)
    gates.errors = [MemoryError("no room")]
    manager = managing(ModelConfig("m", tmp_path), load_retry_seconds=3600)
    np.testing.assert_array_equal(answer(manager, "m"), expected(1))  # while version 2 is retried
    (status,) = manager.status("m", 2)
    assert (status.state, status.error_code) == ("LOADING", "INTERNAL")
    assert status.error_message == "no room (try 1 of 6; the next one follows)"
    served = manager._models["m"]
    tries = gates.tries
    manager.poll()
    assert gates.tries == tries  # too early to retry
    with manager._lock:
        served.versions[2].retry_at = 0.0
    assert manager._updater.retry([served]) is None
    manager._updater.wait([served])
    np.testing.assert_array_equal(answer(manager, "m"), expected(2))
    assert manager.status("m", 2)[0].error_message == ""


def test_tries_end(tmp_path: Path, managing, gates: Gates) -> None:
    put(tmp_path, 1, 1)
    gates.errors = [OSError("gone")] * 9
    manager = managing(load_retries=2, load_retry_seconds=0)
    ended = threading.Event()
    failed = manager._updater._failed

    def noting(served, version, file, error) -> None:
        failed(served, version, file, error)
        if version.state == "END":
            ended.set()

    manager._updater._failed = noting
    manager.reload([ModelConfig("m", tmp_path)], wait=False)
    assert ended.wait(60) and gates.tries == 3
    assert manager.status("m", 1)[0].error_message == "gone"
    manager.poll()
    assert gates.tries == 3


def test_a_removed_model_that_is_being_loaded_is_freed(
    tmp_path: Path, managing, gates: Gates
) -> None:
    put(tmp_path, 1, 1)
    manager = managing()
    gates.hold("m", 1)
    manager.reload([ModelConfig("m", tmp_path)], wait=False)
    served = manager._models["m"]
    assert gates.begun["m", 1].wait(60)
    manager.reload([])
    gates.gates["m", 1].set()
    manager._updater.wait([served])
    for thread in list(manager._updater.draining):
        thread.join(60)
    assert served.versions[1].state == "END" and not len(manager.sharing.arrays)


def test_closing_while_a_version_is_loaded(tmp_path: Path, managing, gates: Gates) -> None:
    put(tmp_path, 1, 1)
    manager = managing()
    gates.hold("m", 1)
    manager.reload([ModelConfig("m", tmp_path)], wait=False)
    assert gates.begun["m", 1].wait(60)
    assert not manager.close(timeout=0)
    gates.gates["m", 1].set()
    assert manager.close(timeout=60)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (ArtifactError("damaged"), True),
        (caused(ArtifactError("cannot be read"), PermissionError(13, "denied")), False),
        (caused(ArtifactError("cannot be read"), OSError(22, "not a regular file")), True),
        (caused(Failure("INTERNAL", "the log says why"), ArtifactError("altered")), True),
        (DataError("bad records"), True),
        (Failure("INVALID_ARGUMENT", "a bad request"), True),
        (Failure("INTERNAL", "the run failed"), False),
        (MemoryError(), False),
        (RuntimeError("the device was lost"), False),
    ],
    ids=[f"{i}" for i in range(9)],
)
def test_errors_that_are_final(error: Exception, final: bool) -> None:
    assert is_final(error) is final


def test_an_array_is_made_once_by_files_that_are_loaded_at_the_same_time() -> None:
    shared, made, checked = SharedArrays(), [], []
    begun, gate = threading.Event(), threading.Event()
    content, results = Content("0", "f32", (2,)), []

    class Value:
        nbytes = 8

    def make():
        made.append(1)
        begun.set()
        assert gate.wait(60)
        return Value()

    def get() -> None:
        results.append(shared.get(content, None, lambda: checked.append(1), make))

    threads = [threading.Thread(target=get) for _ in range(2)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    gate.set()
    for thread in threads:
        thread.join(60)
    assert (len(made), len(checked), len(set(results))) == (1, 1, 1)
