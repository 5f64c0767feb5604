"""Makes files with correct checksums that `gc.save` did not write."""

import copy
import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphc.artifacts import container

Change = Callable[[dict[str, Any]], object]


def forge(
    source: Path,
    target: Path,
    change: Change = lambda manifest: None,
    replaced: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a file with another manifest and other members; its checksums are correct."""
    manifest, members = container.read(source)
    manifest = copy.deepcopy(manifest)
    contents = {name: bytes(data) for name, data in members.items()} | dict(replaced or {})
    for row in manifest["variables"]:
        if manifest["version"] > 1:
            start = row["offset"]
            size = _bytes(row, members)
            data = contents["weights.safetensors"][start : start + size]
            row["sha256"] = hashlib.sha256(data).hexdigest()
    manifest["members"] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
    }
    change(manifest)
    write_zip(target, json.dumps(manifest).encode(), contents)


def write_zip(target: Path, manifest: bytes, contents: Mapping[str, bytes]) -> None:
    """Writes a manifest with its checksum, and members."""
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("manifest.json", manifest)
        archive.writestr("manifest.sha256", hashlib.sha256(manifest).hexdigest())
        for name, data in contents.items():
            archive.writestr(name, data)


def _bytes(row: dict[str, Any], members: container.Members) -> int:
    """The number of bytes of a variable's value, according to the header of the weights."""
    size = int.from_bytes(members.part("weights.safetensors", 0, 8), "little")
    header = json.loads(bytes(members.part("weights.safetensors", 8, size)))
    start, end = header[row["key"]]["data_offsets"]
    return end - start


def entry(manifest: dict[str, Any], name: str = "train") -> Any:
    """The manifest's record of a signature."""
    return manifest["signatures"][name]


def member(path: Path, name: str) -> bytes:
    """The content of a member."""
    return bytes(container.read(path)[1][name])
