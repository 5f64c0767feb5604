"""Many threads send requests while versions are loaded and unloaded: no request fails, and each
result comes from one version."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from graphc.serving.config import All, BatchingConfig, Latest, ModelConfig, Specific
from graphc.serving.models.manager import Manager
from tests.serving.models.saved import X, expected, put

CLIENTS = 6
ROUNDS = 8


def load(manager: Manager, change: Callable[[int], None], rounds: int = ROUNDS) -> list[set[int]]:
    """Runs clients during each `change(i)`. Returns the versions that answered in each round. Every
    client sends requests from before each change until after it. Barriers order the threads, so
    no test depends on time."""
    barrier = threading.Barrier(CLIENTS + 1, timeout=120)
    changed = threading.Event()
    answered: list[set[int]] = [set() for _ in range(rounds)]

    def client() -> None:
        for number in range(rounds):
            barrier.wait()
            last = False
            while not last:
                last = changed.is_set()  # one more request after the change
                with manager.use("m") as servable:
                    y = servable.predict("predict", {"x": X}).result(120)["y"]
                np.testing.assert_array_equal(y, expected(servable.version))
                answered[number].add(servable.version)
            barrier.wait()
            barrier.wait()

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(client) for _ in range(CLIENTS)]
        try:
            for number in range(rounds):
                barrier.wait()
                change(number)
                changed.set()
                barrier.wait()
                changed.clear()
                barrier.wait()
        except threading.BrokenBarrierError:
            pass  # a client failed; its error follows
        except BaseException:
            barrier.abort()
            changed.set()
            raise
        errors = [each.exception(120) for each in clients]
    for error in errors:
        if error is not None and not isinstance(error, threading.BrokenBarrierError):
            raise error
    assert not any(errors)
    return answered


@pytest.mark.parametrize("batching", [None, BatchingConfig(max_batch_size=8)])
def test_new_versions_under_load(tmp_path: Path, managing, batching) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path), batching=batching)

    def change(number: int) -> None:
        put(tmp_path, number + 2, number + 2)
        manager.poll()

    answered = load(manager, change)
    for number, versions in enumerate(answered):
        assert number + 2 in versions and versions <= {number + 1, number + 2}
    for thread in list(manager._updater.draining):
        thread.join(60)
    available = [s.version for s in manager.status("m") if s.state == "AVAILABLE"]
    assert available == [ROUNDS + 1]


def test_configurations_under_load(tmp_path: Path, managing) -> None:
    """Policies, labels and folders change, and bad versions appear; the model stays available."""
    for version in (1, 2, 3):
        put(tmp_path / "a", version, version)
    put(tmp_path / "b", 5, 5)
    (tmp_path / "a" / "4").mkdir()
    (tmp_path / "a" / "4" / "model.gcx").write_bytes(b"not an artifact")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    configs = [
        ModelConfig("m", a, Specific((1,))),
        ModelConfig("m", a, Specific((2, 3)), {"new": 3}, {2: 50, 3: 50}),
        ModelConfig("m", b),
        ModelConfig("m", a, Specific((1,))),
        ModelConfig("m", b, All()),
    ]
    manager = managing(ModelConfig("m", a, Latest(2)))

    load(manager, lambda number: manager.reload([configs[number % 5]]), rounds=10)


def test_the_same_version_number_again_under_load(tmp_path: Path, managing) -> None:
    """The file of a version is replaced; each answer comes from the old or the new file."""
    values = (1, 2)
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    allowed = [expected(value) for value in values]
    stop = threading.Event()

    def client() -> int:
        count = 0
        while not stop.is_set():
            with manager.use("m") as servable:
                y = servable.predict("predict", {"x": X}).result(120)["y"]
            assert any(np.array_equal(y, one) for one in allowed)
            count += 1
        return count

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(client) for _ in range(CLIENTS)]
        try:
            for number in range(ROUNDS):
                put(tmp_path, 1, values[(number + 1) % 2])
                manager.poll()
        finally:
            stop.set()
        assert all(each.result(120) >= 0 for each in clients)
