"""A damaged or forged checkpoint is detected, and no part of it reaches a session."""

from __future__ import annotations

import json
import os
import warnings
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.checkpoints import manifest as manifests
from graphc.errors import CheckpointCorruptError, CheckpointError, CheckpointWarning


@pytest.fixture
def session() -> gc.Session:
    graph = gc.Graph()
    with graph:
        gc.variable(np.arange(5, dtype=np.float32), name="a")
        gc.variable(np.int32(7), name="b", trainable=False)
    return gc.Session(graph)


def write(session: gc.Session, folder: Path, *steps: int) -> list[Path]:
    with gc.train.Checkpointer(folder, keep=10) as saver:
        for step in steps:
            session.set("b", step)
            saver.save(session, step, extra={"array": np.arange(3), "step": step})
    return sorted(folder.glob("step-*"))


@pytest.mark.slow
def test_each_flipped_bit_is_found(session: gc.Session, tmp_path: Path) -> None:
    """Except bits without effect: in the header of a shard, or the last digit of a time."""
    (folder,) = write(session, tmp_path, 1)
    values = {name: value.tobytes() for name, value in session.values().items()}
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for position in range(len(whole)):
            for bit in (1, 128):
                flipped = bytearray(whole)
                flipped[position] ^= bit
                path.write_bytes(flipped)
                try:
                    restored = gc.train.Checkpointer(tmp_path).restore(session)
                except CheckpointError:
                    continue
                assert restored is not None and restored.extra["step"] == 1
                assert restored.extra["array"].tolist() == [0, 1, 2]
                assert {n: v.tobytes() for n, v in session.values().items()} == values
                if path.suffix == ".safetensors":
                    assert position < int.from_bytes(whole[:8], "little") + 8
        path.write_bytes(whole)


@pytest.mark.slow
def test_each_truncation_is_found(session: gc.Session, tmp_path: Path) -> None:
    (folder,) = write(session, tmp_path, 1)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for size in range(len(whole)):
            if path.suffix == ".json" and size == len(whole) - 1:
                continue  # without the last line break
            path.write_bytes(whole[:size])
            with pytest.raises(CheckpointCorruptError):
                gc.train.Checkpointer(tmp_path).restore(session, 1)
        path.write_bytes(whole)


def test_the_one_before_is_used_with_a_warning(session: gc.Session, tmp_path: Path) -> None:
    folders = write(session, tmp_path, 1, 2, 3)
    for folder in folders[1:]:
        shard = folder / "values-00000.safetensors"
        shard.write_bytes(shard.read_bytes()[:-1])
    saver = gc.train.Checkpointer(tmp_path)
    with pytest.warns(CheckpointWarning, match="skipped: .*truncated or was altered") as warned:
        restored = saver.restore(session)
    assert len(warned) == 2 and warned[0].filename == __file__
    assert restored is not None and restored.step == 1 and session.get("b") == 1
    with pytest.raises(CheckpointCorruptError):
        saver.restore(session, 3)
    (folders[0] / "values-00000.safetensors").unlink()
    with (
        pytest.raises(CheckpointCorruptError),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", CheckpointWarning)
        saver.restore(session)


def test_a_damaged_one_does_not_end_training(session: gc.Session, tmp_path: Path) -> None:
    """The damaged checkpoint is kept, since its metrics are unknown."""
    (folder,) = write(session, tmp_path, 1)
    (folder / "manifest.json").write_text("{")
    with gc.train.Checkpointer(tmp_path, keep=1) as saver:
        for step in (2, 3):
            saver.save(session, step)
        saver.wait()
        assert saver.steps() == [1, 3]


@pytest.mark.parametrize("odd", ["pipe", "folder", "link to nothing"])
def test_a_shard_that_is_no_file(odd: str, session: gc.Session, tmp_path: Path) -> None:
    (folder,) = write(session, tmp_path, 1)
    shard = folder / "values-00000.safetensors"
    shard.unlink()
    if odd == "pipe":
        os.mkfifo(shard)
    elif odd == "folder":
        shard.mkdir()
    else:
        shard.symlink_to("nothing")
    with pytest.raises(CheckpointCorruptError):
        gc.train.restore(session, tmp_path)


# -- forged manifests ---------------------------------------------------------------------------


def forge(folder: Path, change: Any) -> None:
    """Changes the manifest, and adjusts its checksum."""
    path = folder / "manifest.json"
    body = json.loads(path.read_text())["checkpoint"]
    change(body)
    text = json.dumps(body, indent=1).encode()
    path.write_bytes(b'{"crc32": %d, "checkpoint": %s}\n' % (zlib.crc32(text), text))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["variables"][0].update(file="../../etc/passwd"),
        lambda m: m["variables"][0].update(file="values-00000.safetensors/x"),
        lambda m: m["variables"][0].update(shape=[1 << 40], crc32=[0] * (1 << 18)),
        lambda m: m["variables"][0].update(shape=[1 << 40]),
        lambda m: m["variables"][0].update(shape=[-5]),
        lambda m: m["variables"][0].update(shape=[True] * 5),
        lambda m: m["variables"][0].update(offset=1 << 61),
        lambda m: m["variables"][0].update(offset=-1),
        lambda m: m["variables"][0].update(dtype="object"),
        lambda m: m["variables"][0].update(dtype=["f32"]),
        lambda m: m["variables"][0].update(crc32=[]),
        lambda m: m["variables"].append(m["variables"][0]),
        lambda m: m.update(variables=3),
        lambda m: m.update(metrics={"a": "b"}),
        lambda m: m.update(step="1"),
        lambda m: m.update(created=float("nan")),
        lambda m: m.update(extra={"$array": 9}),
        lambda m: m.update(extra={"$array": -1}),
        lambda m: m.pop("hidden"),
    ],
    ids=range(19),
)
def test_a_forged_manifest(change: Any, session: gc.Session, tmp_path: Path) -> None:
    (folder,) = write(session, tmp_path, 1)
    before = session.values()["a"].copy()
    forge(folder, change)
    session.set("a", before + 1)
    with pytest.raises(CheckpointError):
        gc.train.Checkpointer(tmp_path).restore(session, 1)
    assert np.array_equal(session.values()["a"], before + 1)


def test_another_format(session: gc.Session, tmp_path: Path) -> None:
    (folder,) = write(session, tmp_path, 1)
    forge(folder, lambda m: m.update(format=2))
    with pytest.raises(CheckpointError, match="reads format 1"):
        gc.train.restore(session, tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KEYS = ("format", "step", "created", "metrics", "variables", "hidden", "extra", "arrays", "graph")


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(KEYS), value=JSON, row=st.booleans())
def test_any_json_in_the_manifest(
    key: str, value: Any, row: bool, session: gc.Session, tmp_path: Path
) -> None:
    """The manifest is read or refused; no other kind of error occurs."""
    folder = tmp_path / "one"
    if not folder.exists():
        write(session, folder, 1)
    (one,) = folder.glob("step-*")
    before = (one / "manifest.json").read_bytes()

    def change(body: dict[str, Any]) -> None:
        if row:
            body["variables"][0][
                ("name", "dtype", "shape", "file", "offset", "crc32")[len(key) % 6]
            ] = value
        else:
            body[key] = value

    forge(one, change)
    with suppress(CheckpointError):
        manifests.load(one)
    values = session.values()
    try:
        restored = gc.train.Checkpointer(folder).restore(session, 1)
        assert restored is not None and restored.step >= 0
    except CheckpointError:
        assert all(np.array_equal(values[n], v) for n, v in session.values().items())
    (one / "manifest.json").write_bytes(before)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.sampled_from([b"[" * 100_000, b"[]", b"null", b"3"]))
def test_any_bytes_as_the_manifest(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError):
        manifests.load(tmp_path)
