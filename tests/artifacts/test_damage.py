"""Incomplete, foreign and inconsistent files, and writers that fail half-way."""

import errno
import os
import random
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.artifacts import container
from graphc.errors import ArtifactCorruptError, ArtifactError
from tests.artifacts.models import linear
from tests.artifacts.mutations import scramble

X = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    graph, signatures = linear()
    path = tmp_path_factory.mktemp("whole") / "model.gcx"
    gc.save(gc.Session(graph), path, signatures=signatures)
    return path


def answer(path: Path) -> float:
    return float(gc.load(path).signatures["predict"](x=X)["y"][0, 0])


# -- altered files --------------------------------------------------------------------------


def mutations(data: bytes) -> list[bytes]:
    """Damage of several kinds at any position, and in each byte of the zip file's directory."""
    rng = random.Random(7)
    found = [scramble(rng, data) for _ in range(500)]
    central = data.rindex(b"PK\x01\x02")  # the last part contains all other positions
    for position in range(central, len(data)):
        changed = bytearray(data)
        changed[position] ^= 0xFF
        found.append(bytes(changed))
    return found


def test_mutations_give_the_same_content_or_an_artifact_error(whole: Path, tmp_path: Path) -> None:
    manifest, members = container.read(whole)
    path = tmp_path / "model.gcx"
    refused = 0
    for data in mutations(whole.read_bytes()):
        path.write_bytes(data)
        try:
            assert container.read(path) == (manifest, members)
        except ArtifactError as error:
            assert str(path) in error.what
            refused += 1
    assert refused > 500


def test_every_truncation_is_refused(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    path = tmp_path / "model.gcx"
    for length in [*range(64), *range(64, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ArtifactError, match=r"is empty|is not a graphc artifact|truncated"):
            gc.load(path)


# -- files of other kinds -------------------------------------------------------------------


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    missing = r"no file '.*nothing.gcx'\n  at .*\n  hint: check the path"
    with pytest.raises(ArtifactError, match=missing):
        gc.load(tmp_path / "nothing.gcx")
    with pytest.raises(ArtifactError, match="is a folder, not an artifact"):
        gc.load(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(ArtifactCorruptError, match="is empty"):
        gc.load(path)
    path.write_text("x" * 1000)
    with pytest.raises(
        ArtifactError, match="is not a graphc artifact\n  it does not begin like one"
    ):
        gc.load(path)
    with path.open("wb") as file:
        np.savez_compressed(file, x=X)
    with pytest.raises(ArtifactError, match="is not a graphc artifact\n  it has no manifest"):
        gc.load(path)
    for wrong in (None, 3, ["a"]):
        with pytest.raises(ValueError, match="the path must be a str or a Path"):
            gc.load(wrong)
    with pytest.raises(ValueError, match=r"device must be a jax\.Device, got 'cpu'"):
        gc.load(path, device="cpu")


def test_what_is_no_file_at_all(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ArtifactError, match=r"cannot read .*: it is not a regular file"):
            gc.load(path)
    with pytest.raises(ArtifactError, match="cannot read"):
        gc.load("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    path.write_bytes(whole.read_bytes())
    path.chmod(0)
    with pytest.raises(ArtifactError, match=r"cannot read .*: Permission denied"):
        gc.load(path)


# -- writing --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    path.write_bytes(whole.read_bytes())
    manifest, members = container.read(whole)
    seen = []

    def pieces(data: memoryview) -> Any:
        half = len(data) // 2
        for piece in (data[:half], data[half:]):
            seen.append(answer(path))
            yield piece

    container.write(path, {n: pieces(data) for n, data in members.items()}, lambda: manifest)
    assert seen == [5.0] * 2 * len(members)
    assert answer(path) == 5.0
    assert [p.name for p in tmp_path.iterdir()] == ["model.gcx"]


@pytest.mark.parametrize("where", ["write", "fsync", "replace", "value", "interrupt"])
def test_a_failed_save_leaves_the_old_file_whole(
    whole: Path, tmp_path: Path, monkeypatch, where: str
) -> None:
    path = tmp_path / "model.gcx"
    path.write_bytes(whole.read_bytes())
    graph, signatures = linear()
    session = gc.Session(graph)
    session.set("w", np.zeros((2, 1), np.float32))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    failure: BaseException = KeyboardInterrupt() if where == "interrupt" else full

    def fail(*args: Any) -> None:
        raise failure

    with monkeypatch.context() as patch:
        if where in ("fsync", "replace"):
            patch.setattr(os, where, fail)
        elif where == "value":
            failure = RuntimeError("device lost")
            patch.setattr(session, "values", fail)
        else:
            patch.setattr(zipfile._ZipWriteFile, "write", fail)
        expected = ArtifactError if failure is full else type(failure)
        with pytest.raises(expected, match="No space left" if failure is full else None):
            gc.save(session, path, signatures=signatures)
    assert answer(path) == 5.0
    assert [p.name for p in tmp_path.iterdir()] == ["model.gcx"]
    gc.save(session, path, signatures=signatures)
    assert answer(path) == 0.0


def test_the_file_has_the_rights_of_any_new_file(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    graph, signatures = linear()
    gc.save(gc.Session(graph), tmp_path / "model.gcx", signatures=signatures)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1
