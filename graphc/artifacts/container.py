"""The file itself: members in an uncompressed zip, each with its checksum in the manifest.

Nothing is compressed, so no member can be larger than the file; nothing is extracted, so no
name can lead outside; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphc.errors import ArtifactCorruptError, ArtifactError, ArtifactVersionError

FORMAT = "graphc-artifact"
VERSION = 1
_MANIFEST = "manifest.json"
_DIGEST = "manifest.sha256"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content gives the same file


def write(path: str | os.PathLike[str], manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> None:
    """Writes an artifact beside `path` and renames it: readers see the old file or the new.

    Raises:
        ArtifactError: the folder does not exist or cannot be written.
    """
    full = {
        "format": FORMAT,
        "version": VERSION,
        **manifest,
        "members": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in members.items()
        },
    }
    text = json.dumps(full, indent=1, sort_keys=True, allow_nan=False).encode()
    target = Path(path)
    try:
        handle, aside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {target.name!r}: {error.strerror}", mend="give a folder that exists"
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                digest = hashlib.sha256(text).hexdigest().encode()
                for name, data in {_MANIFEST: text, _DIGEST: digest, **members}.items():
                    archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, target)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the members of an artifact, every checksum checked.

    Raises:
        ArtifactError: no such file, or no artifact.
        ArtifactCorruptError: truncated or altered.
        ArtifactVersionError: written by a newer graphc.
    """
    target = Path(path)
    try:
        with zipfile.ZipFile(target) as archive:
            return _read_archive(target.name, archive)
    except FileNotFoundError:
        raise ArtifactError(f"no file {str(path)!r}", mend="check the path") from None
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ArtifactCorruptError(
            f"{target.name!r} is not a whole artifact",
            details=[f"{type(error).__name__}: {error}"],
            mend="copy or save it again",
        ) from error


def _read_archive(name: str, archive: zipfile.ZipFile) -> tuple[dict[str, Any], dict[str, bytes]]:
    infos = archive.infolist()
    names = [info.filename for info in infos]
    if len(set(names)) != len(names) or any(i.compress_type or i.flag_bits & 1 for i in infos):
        raise ArtifactCorruptError(f"{name!r}: its members are not those of an artifact")
    if _MANIFEST not in names or _DIGEST not in names:
        raise ArtifactError(f"{name!r} is not a graphc artifact", details=["it has no manifest"])
    text = archive.read(_MANIFEST)
    if hashlib.sha256(text).hexdigest().encode() != archive.read(_DIGEST):
        raise ArtifactCorruptError(f"{name!r}: the manifest was altered")
    manifest = _parse_manifest(name, text)
    listed = manifest.get("members")
    if not isinstance(listed, dict) or set(names) != {_MANIFEST, _DIGEST, *listed}:
        raise ArtifactCorruptError(f"{name!r}: members and manifest disagree")
    members = {}
    for member, entry in listed.items():
        data = archive.read(member)
        if not isinstance(entry, dict) or entry.get("sha256") != hashlib.sha256(data).hexdigest():
            raise ArtifactCorruptError(
                f"{name!r}: member {member!r} was altered", mend="copy or save it again"
            )
        members[member] = data
    return manifest, members


def _parse_manifest(name: str, text: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactCorruptError(f"{name!r}: the manifest is not JSON") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArtifactError(f"{name!r} is not a graphc artifact")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise ArtifactCorruptError(f"{name!r}: {version!r} is not a version")
    if version > VERSION:
        raise ArtifactVersionError(
            f"{name!r} is of version {version}; this graphc reads up to {VERSION}",
            mend="install a newer graphc",
        )
    return manifest
