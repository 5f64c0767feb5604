"""Inconsistent zip files: bombs, names outside, overlapping members; and inconsistent weights."""

import builtins
import hashlib
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

import graphc as gc
from graphc.artifacts import container
from graphc.errors import ArtifactCorruptError, ArtifactError
from tests.artifacts.forge import forge, member, write_zip
from tests.artifacts.models import linear

X = np.array([[1.0, 2.0]], np.float32)
OLD = Path(__file__).parent / "old"
WEIGHTS = "weights.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    graph, signatures = linear()
    path = tmp_path_factory.mktemp("whole") / "model.gcx"
    gc.save(gc.Session(graph), path, signatures=signatures)
    return path


def refused(path: Path, text: str = "its members are not those of an artifact") -> None:
    with pytest.raises(ArtifactError, match=text):
        gc.load(path)


def test_members_beyond_the_manifest_and_compressed_ones(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    path.write_bytes(whole.read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("extra", b"")
    refused(path, "members and manifest disagree")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", "{}")
        archive.writestr("manifest.sha256", "")
    refused(path)


def test_a_zip_bomb(whole: Path, tmp_path: Path) -> None:
    """Compressed members are refused before they are opened, whatever size they declare."""
    path = tmp_path / "model.gcx"
    manifest, members = container.read(whole)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr("bomb", b"\0" * 10**7, zipfile.ZIP_DEFLATED)
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("manifest.sha256", "")
    assert path.stat().st_size < 10**5
    refused(path)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "a/../../b", "a\\b", "c:/x", "a//b", "./a", "a/", "a\0b"]
)
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.gcx"
    placeholder = "q" * len(name)  # zipfile itself would correct some names
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", "{}")
        archive.writestr("manifest.sha256", "")
        archive.writestr(placeholder, b"")
    path.write_bytes(path.read_bytes().replace(placeholder.encode(), name.encode()))
    refused(path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.gcx"]


def central(data: bytearray, index: int) -> int:
    """The position of the directory's record of a member."""
    position = data.index(b"PK\x01\x02")
    for _ in range(index):
        position = data.index(b"PK\x01\x02", position + 1)
    return position


@pytest.mark.parametrize(
    ("field", "offset", "value"),
    [
        ("<I", 42, 0),  # all at the start: they overlap
        ("<I", 42, 31),
        ("<I", 42, 2**31),  # beyond the end of the file
        ("<I", 42, 0xFFFFFFFF),
        ("<I", 20, 2**31),  # wrong sizes
        ("<I", 24, 2**31),
        ("<I", 24, 0xFFFFFFFF),
        ("<H", 8, 1),  # encrypted
        ("<H", 10, 8),  # compressed
        ("<H", 28, 60000),  # the length of the name
    ],
)
def test_directories_that_lie(
    whole: Path, tmp_path: Path, field: str, offset: int, value: int
) -> None:
    path = tmp_path / "model.gcx"
    data = bytearray(whole.read_bytes())
    for index in range(2):
        changed = bytearray(data)
        struct.pack_into(field, changed, central(data, index + 1) + offset, value)
        path.write_bytes(changed)
        refused(path, "members are not those|truncated or was altered|no manifest")


def test_members_twice_and_between(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    manifest, members = container.read(whole)
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for name, data in [*members.items(), *members.items()]:
            archive.writestr(name, data)
        text = json.dumps(manifest).encode()
        archive.writestr("manifest.json", text)
        archive.writestr("manifest.sha256", hashlib.sha256(text).hexdigest())
    refused(path)
    path.write_bytes(b"#!/bin/sh\n" + whole.read_bytes())  # both a program and a zip file
    with pytest.raises(ArtifactError):
        gc.load(path)


def test_a_directory_of_a_million_members(tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    record = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", *[0] * 6, *[0] * 3, 1, *[0] * 4, 0, 0) + b"a"
    directory = record * (1 << 16)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
    path.write_bytes(directory + end)
    with pytest.raises(ArtifactError, match="is not a graphc artifact"):
        gc.load(path)


def test_a_manifest_beyond_all_measure(tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    write_zip(path, b'{"format": "graphc-artifact"}' + b" " * (1 << 24), {})
    refused(path)


# -- the weights ----------------------------------------------------------------------------


def test_weights_of_version_1_that_lie(tmp_path: Path) -> None:
    """In version 1, the header of the weights contains the position of each value."""
    source = OLD / "v1-jax0.10.gcx"
    data = member(source, WEIGHTS)
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    path = tmp_path / "model.gcx"

    def check(weights: bytes) -> None:
        forge(source, path, replaced={WEIGHTS: weights})
        with pytest.raises(ArtifactCorruptError, match=r"the weights.* must"):
            gc.load(path)

    def with_offsets(offsets: Any) -> bytes:
        text = json.dumps({**header, "v0": {**header["v0"], "data_offsets": offsets}}).encode()
        return len(text).to_bytes(8, "little") + text + body

    for offsets in ([0, 10**12], [-8, 0], [8, 0], [1, 9], [0], "08", [0.0, 8.0], None, [False, 8]):
        check(with_offsets(offsets))
    start, end = header["v0"]["data_offsets"]
    check(with_offsets([10**6, 10**6 + end - start]))
    for weights in (b"", b"\0" * 7, b"\xff" * 16, b"\2" + b"\0" * 7 + b"[]", b"\1" + b"\0" * 8):
        check(weights)


def test_weights_are_safetensors(whole: Path) -> None:
    arrays = safetensors.numpy.load(member(whole, WEIGHTS))
    assert arrays["v0"].tobytes() == np.array([1.0, 2.0], np.float32).tobytes()


def test_pickles_are_never_read(whole: Path, monkeypatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("an artifact was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(builtins, "eval", refuse)
    model = gc.load(whole)
    _, state = model.signatures["train"](model.state(), x=X)
    assert float(model.signatures["predict"](state, x=X)["y"][0, 0]) == -7.5
    exported = jax.export.deserialize(bytearray(member(whole, "programs/train.stablehlo")))
    assert exported.in_tree.num_leaves == 2
