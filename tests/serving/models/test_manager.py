"""The life of versions: when each one is loaded, takes requests, and is unloaded."""

import gc as collector
import logging
import shutil
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

from graphc.serving.config import All, BatchingConfig, Latest, ModelConfig, Specific
from graphc.serving.models.loader import Loader
from graphc.serving.models.manager import Manager
from graphc.serving.models.versions import VersionStatus
from graphc.web.failures import Failure
from tests.serving.models.asked import check, refused, states
from tests.serving.models.saved import BODY, X, break_file, expected, put


def test_the_latest_version_is_served(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1), put(tmp_path, 2, 2)
    manager = managing(ModelConfig("m", tmp_path))
    check(manager, 2)
    check(manager, 2, version=2)
    assert states(manager) == {2: "AVAILABLE"}
    assert manager.names() == ["m"] and manager.is_ready()
    assert refused(manager, version=1).code == "NOT_FOUND"
    assert str(refused(manager, version=7)) == (
        "NOT_FOUND: Servable not found for request: Specific(m, 7)"
    )


def test_a_new_version_displaces_the_old_one(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    check(manager, 1)
    put(tmp_path, 2, 2)
    check(manager, 1)
    manager.poll()
    check(manager, 2)
    assert states(manager) == {1: "END", 2: "AVAILABLE"}


def test_a_version_is_tried_again(tmp_path: Path, managing, monkeypatch) -> None:
    put(tmp_path, 1, 1), put(tmp_path, 2, 2)
    with monkeypatch.context() as patch:
        real = Loader.load

        def load(loader, name, file):
            if file.version == 2:
                raise Failure("INVALID_ARGUMENT", "version 2 is not valid")
            return real(loader, name, file)

        patch.setattr(Loader, "load", load)
        manager = managing(ModelConfig("m", tmp_path))
    assert states(manager) == {2: "END", 1: "AVAILABLE"}
    assert manager.overview("m").shares == {1: 100.0}
    manager.poll()
    assert states(manager) == {2: "END", 1: "AVAILABLE"}  # its file did not change
    manager.retry("m")
    manager.poll()
    assert states(manager) == {2: "AVAILABLE", 1: "END"}
    assert manager.status("m", 2) == [VersionStatus(2, "AVAILABLE")]
    with pytest.raises(Failure, match="NOT_FOUND"):
        manager.retry("other")


def test_the_overview(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1), put(tmp_path, 2, 2)
    labels, traffic = {"old": 1, "next": 7}, {"old": 60, 2: 20, 7: 20}
    config = ModelConfig("m", tmp_path, All(), labels, traffic)
    manager = managing(config, batching=BatchingConfig())
    found = manager.overview("m")
    assert found.labels == {"old": 1} and found.shares == {1: 75.0, 2: 25.0}
    assert found.waiting == {"predict": 0, "noisy": 0}
    with pytest.raises(Failure, match="NOT_FOUND"):
        manager.overview("other")


def test_two_versions_at_once(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    put(tmp_path, 2, 2), put(tmp_path, 3, 3)
    manager.poll()
    assert states(manager) == {1: "END", 3: "AVAILABLE"}
    manager.reload([ModelConfig("m", tmp_path, All())])
    assert states(manager) == {1: "AVAILABLE", 2: "AVAILABLE", 3: "AVAILABLE"}
    for version in (1, 2, 3):
        check(manager, version, version=version)


def test_a_version_in_use_is_not_unloaded(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    with manager.use("m") as old:
        put(tmp_path, 2, 2)
        manager.poll()
        statuses = {status.version: status.state for status in manager.status("m")}
        assert statuses == {1: "UNLOADING", 2: "AVAILABLE"}
        assert refused(manager, version=1).code == "NOT_FOUND"
        np.testing.assert_array_equal(old.run("predict", {"x": X})["y"], expected(1))
    assert states(manager) == {1: "END", 2: "AVAILABLE"}


def test_a_request_that_is_running_keeps_its_version(tmp_path: Path, managing) -> None:
    """The future is read after the context has ended, as when a client disconnects."""
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path), threads=1)
    gate = threading.Event()
    manager._pool.submit(gate.wait)
    with manager.use("m") as servable:
        future = servable.predict("predict", {"x": X})
    put(tmp_path, 2, 2)
    manager.poll()
    assert {s.version: s.state for s in manager.status("m")} == {1: "UNLOADING", 2: "AVAILABLE"}
    gate.set()
    np.testing.assert_array_equal(future.result(60)["y"], expected(1))
    assert states(manager) == {1: "END", 2: "AVAILABLE"}


def test_a_deleted_folder_in_use(tmp_path: Path, managing) -> None:
    """A deleted version is unloaded only after another one works. New sizes still compile."""
    put(tmp_path, 1, 1), put(tmp_path, 2, 2)
    manager = managing(ModelConfig("m", tmp_path))
    with manager.use("m") as servable:
        shutil.rmtree(tmp_path / "2")
        manager.poll()
        y = servable.run("predict", {"x": X[:3]})["y"]
        np.testing.assert_array_equal(y, expected(2)[:3])
    check(manager, 1)
    shutil.rmtree(tmp_path / "1")
    manager.poll()
    check(manager, 1)
    shutil.rmtree(tmp_path)
    manager.poll()
    check(manager, 1)


# -- weights ------------------------------------------------------------------------------------


@pytest.fixture
def no_collector():
    collector.disable()
    yield
    collector.enable()


@pytest.mark.parametrize("batching", [None, BatchingConfig(2)])
def test_versions_share_weights_and_free_them(
    tmp_path: Path, managing, no_collector, batching
) -> None:
    """A second version costs only its head. No memory waits for the garbage collector."""
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path, All()), batching=batching)
    arrays, head = manager.sharing.arrays, expected(0).nbytes
    one = arrays.nbytes
    assert BODY.nbytes + head <= one
    put(tmp_path, 2, 2)
    manager.poll()
    assert arrays.nbytes == one + head
    for version in (1, 2):
        check(manager, version, version=version)
    manager.reload([ModelConfig("m", tmp_path, Latest(1))])
    assert states(manager) == {1: "END", 2: "AVAILABLE"}
    assert arrays.nbytes == one
    check(manager, 2)
    manager.reload([])
    for thread in list(manager._updater.draining):
        thread.join(60)
    assert len(arrays) == 0


# -- labels and traffic -------------------------------------------------------------------------


def test_labels(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1), put(tmp_path, 2, 2)
    labels = {"stable": 1, "canary": 2}
    manager = managing(ModelConfig("m", tmp_path, All(), labels))
    check(manager, 1, label="stable")
    check(manager, 2, label="canary")
    assert manager.labels("m") == labels
    failure = refused(manager, label="old")
    assert failure.code == "INVALID_ARGUMENT"
    assert failure.message == "Unrecognized servable version label: old"
    assert refused(manager, label="stable", version=1).code == "INVALID_ARGUMENT"


def test_a_label_needs_an_available_version(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path, All(), {"stable": 1}))
    with pytest.raises(Failure) as info:
        manager.reload([ModelConfig("m", tmp_path, All(), {"stable": 5})])
    assert info.value.code == "FAILED_PRECONDITION"
    assert info.value.message == (
        "Request to assign label to version 5 of model m, which is not currently available for "
        "inference"
    )
    check(manager, 1, label="stable")


def test_a_label_moves_with_the_version_that_displaces_the_old_one(
    tmp_path: Path, managing
) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path, Specific((1,)), {"stable": 1}))
    put(tmp_path, 2, 2)
    manager.reload([ModelConfig("m", tmp_path, Specific((2,)), {"stable": 2})])
    check(manager, 2, label="stable")
    assert states(manager) == {1: "END", 2: "AVAILABLE"}


def test_traffic_is_split_by_percentages(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1), put(tmp_path, 2, 2)
    config = ModelConfig("m", tmp_path, All(), {"new": 2}, {1: 80, "new": 20})
    manager = managing(config)
    for _ in range(50):
        with manager.use("m"):
            pass
    assert {s.version: s.requests for s in manager.status("m")} == {1: 40, 2: 10}
    check(manager, 2, version=2)  # a request for a specific version is not distributed


# -- the configuration --------------------------------------------------------------------------


def test_a_removed_model_drains(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    with manager.use("m") as servable:
        manager.reload([])
        assert manager.names() == []
        assert refused(manager).code == "NOT_FOUND"
        y = servable.predict("predict", {"x": X}).result(60)["y"]
        np.testing.assert_array_equal(y, expected(1))
    with pytest.raises(Failure, match="Could not find any versions of model m"):
        manager.status("m")
    manager.reload([ModelConfig("m", tmp_path)])
    check(manager, 1)


def test_a_configuration_that_fails_displaces_nothing(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    break_file(put(tmp_path, 2, 2))
    manager = managing(ModelConfig("m", tmp_path, Specific((1,))))
    for policy, text in [
        (Specific((2,)), "truncated"),
        (Specific((9,)), "version 9 was not found"),
    ]:
        with pytest.raises(Failure, match=text):
            manager.reload([ModelConfig("m", tmp_path, policy)])
        check(manager, 1)
    with pytest.raises(Failure) as info:
        manager.reload([ModelConfig("m", tmp_path)] * 2)
    assert info.value.code == "INVALID_ARGUMENT"
    with pytest.raises(Failure) as info:
        manager.reload([ModelConfig("m", tmp_path / "nowhere")])
    check(manager, 1)
    manager.reload([ModelConfig("m", tmp_path, Specific((1,)))])
    assert 9 not in states(manager)


def test_another_folder_for_a_model(tmp_path: Path, managing) -> None:
    put(tmp_path / "a", 1, 1), put(tmp_path / "b", 1, 2)
    manager = managing(ModelConfig("m", tmp_path / "a"))
    manager.reload([ModelConfig("m", tmp_path / "b")])
    check(manager, 2)


def test_reload_in_the_background(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    manager = managing()
    manager.reload([ModelConfig("m", tmp_path)], wait=False)
    manager.poll()
    check(manager, 1)


def test_closing_waits_for_requests(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    with manager.use("m") as servable:
        assert not manager.close(timeout=0)
        np.testing.assert_array_equal(servable.run("predict", {"x": X})["y"], expected(1))
        assert refused(manager).code == "NOT_FOUND"
    assert manager.close(timeout=60)


def test_new_versions_are_found_by_polling(tmp_path: Path, monkeypatch, caplog) -> None:
    """An error in one search does not stop later searches."""
    put(tmp_path, 1, 1)
    manager = Manager([ModelConfig("m", tmp_path)], poll_seconds=0.01, cache=None)
    search, polled, failed = manager.search, threading.Semaphore(0), []

    def noting():
        if threading.current_thread() is not manager._thread:
            return search()
        if not failed:
            failed.append(1)
            raise RuntimeError("once")
        manager._updater.wait(found := search())
        polled.release()
        return found

    monkeypatch.setattr(manager, "search", noting)
    with caplog.at_level(logging.CRITICAL, "graphc.serving"):
        manager.start()
        try:
            put(tmp_path, 2, 2)
            while polled.acquire(blocking=False):
                pass
            for _ in range(2):  # the second search began after the version appeared
                assert polled.acquire(timeout=60)
            assert failed
            check(manager, 2)
        finally:
            assert manager.close(60)


def test_replicas_on_several_devices(tmp_path: Path, managing) -> None:
    """Each device has the weights once; a version uses all devices and frees them."""
    put(tmp_path, 1, 1)
    devices = jax.local_devices()[:2]
    manager = managing(ModelConfig("m", tmp_path), devices=devices)
    arrays = manager.sharing.arrays
    assert {next(iter(array.devices())) for array in arrays._arrays.values()} == set(devices)
    one = arrays.nbytes
    for _ in range(4):
        check(manager, 1)
    put(tmp_path, 2, 2)
    manager.poll()
    check(manager, 2)
    assert states(manager) == {1: "END", 2: "AVAILABLE"}
    assert arrays.nbytes == one
