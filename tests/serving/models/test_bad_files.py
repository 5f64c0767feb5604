"""Versions with damaged, incomplete or forbidden files do not replace others."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from graphc.serving.config import Latest, ModelConfig
from graphc.serving.models.versions import VersionStatus
from tests.serving.models.asked import check, refused, states
from tests.serving.models.saved import break_file, put


def test_a_bad_version_displaces_nothing(tmp_path: Path, managing, caplog) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    break_file(put(tmp_path, 2, 2))
    with caplog.at_level(logging.ERROR, "graphc.serving"):
        manager.poll()
        manager.poll()
    assert len([r for r in caplog.records if "was not loaded" in r.message]) == 1  # tried only once
    assert states(manager) == {1: "AVAILABLE", 2: "END"}
    (status,) = manager.status("m", 2)
    assert status.error_code == "FAILED_PRECONDITION"
    assert "truncated" in status.error_message and str(tmp_path) not in status.error_message
    check(manager, 1)
    put(tmp_path, 2, 2)  # now a valid file
    manager.poll()
    check(manager, 2)
    assert manager.status("m", 2) == [VersionStatus(2, "AVAILABLE", requests=1)]


def test_altered_weights_are_found_before_the_version_is_available(
    tmp_path: Path, managing
) -> None:
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    path = put(tmp_path, 2, 2)
    data = path.read_bytes()
    head = np.full((4, 2), 2, np.float32).tobytes()
    assert head in data
    path.write_bytes(data.replace(head, bytes(len(head))))
    manager.poll()
    assert states(manager) == {1: "AVAILABLE", 2: "END"}
    assert "the value of 'head' was altered" in manager.status("m", 2)[0].error_message
    check(manager, 1)


def test_at_the_start_the_newest_good_version_is_served(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1), put(tmp_path, 2, 2)
    break_file(put(tmp_path, 3, 3))
    manager = managing(ModelConfig("m", tmp_path, Latest(1)))
    assert states(manager) == {2: "AVAILABLE", 3: "END"}


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no artifact", bytes(1000)])
def test_files_that_are_no_artifacts(tmp_path: Path, managing, content: bytes) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.gcx").write_bytes(content)
    manager = managing(ModelConfig("m", tmp_path))
    assert states(manager) == {1: "END"} and not manager.is_ready()
    assert refused(manager).code == "NOT_FOUND"


def test_a_pipe_does_not_hold_the_manager_up(tmp_path: Path, managing) -> None:
    put(tmp_path, 1, 1)
    (tmp_path / "2").mkdir()
    os.mkfifo(tmp_path / "2" / "model.gcx")
    manager = managing(ModelConfig("m", tmp_path))
    assert states(manager) == {1: "AVAILABLE", 2: "END"}


def test_a_link_to_the_outside_is_not_loaded(tmp_path: Path, managing) -> None:
    put(tmp_path / "secret", 1, 1)
    put(tmp_path / "base", 1, 2)
    (tmp_path / "base" / "2").symlink_to(tmp_path / "secret" / "1")
    manager = managing(ModelConfig("m", tmp_path / "base"))
    assert states(manager) == {1: "AVAILABLE", 2: "END"}
    assert "outside base_path" in manager.status("m", 2)[0].error_message


def test_a_single_file_is_loaded_again_when_it_changes(tmp_path: Path, managing) -> None:
    path = put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", path))
    check(manager, 1, version=1)
    put(tmp_path, 1, 2)
    manager.poll()
    check(manager, 2, version=1)
    break_file(path)
    manager.poll()
    check(manager, 2)
    (status,) = manager.status("m")
    assert (status.state, status.error_code) == ("AVAILABLE", "FAILED_PRECONDITION")


@pytest.mark.slow
def test_flipped_bits_displace_nothing(tmp_path: Path, managing) -> None:
    """A version with a wrong bit is refused, or the bit has no effect: results stay right."""
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path), warm_up=True)
    data = put(tmp_path, 2, 1).read_bytes()
    rng = np.random.default_rng(0)
    for version, place in enumerate(rng.integers(0, len(data), 12), 3):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(rng.integers(8))
        path = put(tmp_path, version, 1)
        path.write_bytes(flipped)
        manager.poll()
        check(manager, 1)
    assert any(status.state == "END" and status.error_message for status in manager.status("m"))


def test_what_appears_while_it_is_written(tmp_path: Path, managing) -> None:
    """A copy that is not atomic: each poll sees more of the file, and the last poll loads it."""
    put(tmp_path, 1, 1)
    manager = managing(ModelConfig("m", tmp_path))
    whole = put(tmp_path / "aside", 2, 2).read_bytes()
    (tmp_path / "2").mkdir()
    manager.poll()
    with open(tmp_path / "2" / "model.gcx", "wb") as file:
        for part in (whole[:0], whole[:100], whole[100:-1]):
            file.write(part)
            file.flush()
            manager.poll()
            check(manager, 1)
        file.write(whole[-1:])
    manager.poll()
    check(manager, 2)
