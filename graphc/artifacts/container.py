"""The file itself: members in an uncompressed zip, each with its checksum in the manifest.

Nothing is compressed, so no member can be larger than the file; nothing is extracted, so no
name can lead outside; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from graphc.errors import ArtifactCorruptError, ArtifactError, ArtifactVersionError

FORMAT = "graphc-artifact"
VERSION = 1
_MANIFEST = "manifest.json"
_DIGEST = "manifest.sha256"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content gives the same file
_CHUNK = 1 << 20
_AGAIN = "copy or save it again"

Buffer = bytes | memoryview


def write(
    path: str | os.PathLike[str],
    manifest: Mapping[str, Any],
    members: Mapping[str, Iterable[Buffer]],
) -> None:
    """Writes an artifact beside `path` and renames it: readers see the old file or the new.

    Args:
        members: name -> the content in pieces, which are asked for one after the other.

    Raises:
        ArtifactError: the folder does not exist or cannot be written, or the disk is full.
    """
    target = Path(path)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        try:
            with open(aside, "xb") as file:
                _write_archive(file, manifest, members)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ArtifactError(
            f"cannot write {str(path)!r}: {error.strerror or error}",
            mend="give the path of a file in a folder that exists and can be written",
        ) from error


def _write_archive(
    file: IO[bytes], manifest: Mapping[str, Any], members: Mapping[str, Iterable[Buffer]]
) -> None:
    written: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, pieces in members.items():
            digest, size = hashlib.sha256(), 0
            # Sizes are not known before the pieces are, so room is left for large ones.
            with archive.open(zipfile.ZipInfo(name, _EPOCH), "w", force_zip64=True) as member:
                for piece in pieces:
                    member.write(piece)
                    digest.update(piece)
                    size += len(piece)
            written[name] = {"bytes": size, "sha256": digest.hexdigest()}
        full = {"format": FORMAT, "version": VERSION, **manifest, "members": written}
        text = json.dumps(full, indent=1, sort_keys=True, allow_nan=False).encode()
        archive.writestr(zipfile.ZipInfo(_MANIFEST, _EPOCH), text)
        archive.writestr(zipfile.ZipInfo(_DIGEST, _EPOCH), hashlib.sha256(text).hexdigest())


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """The manifest and the members of an artifact, every checksum checked; read once.

    Raises:
        ArtifactError: no such file, or no artifact.
        ArtifactCorruptError: truncated or altered.
        ArtifactVersionError: written by a newer graphc.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            return _read_file(str(name), file)
    except FileNotFoundError:
        raise ArtifactError(f"no file {name!r}", mend="check the path") from None
    except IsADirectoryError:
        raise ArtifactError(
            f"{name!r} is a folder, not an artifact", mend="give the file that gc.save wrote"
        ) from None
    except OSError as error:
        raise ArtifactError(f"cannot read {name!r}: {error.strerror or error}") from error


def _read_file(name: str, file: IO[bytes]) -> tuple[dict[str, Any], dict[str, memoryview]]:
    start = file.read(4)
    if not start:
        raise ArtifactCorruptError(f"{name!r} is empty", mend=_AGAIN)
    try:
        archive = zipfile.ZipFile(file)
    except Exception as error:  # zipfile lets many kinds through on a file that was altered
        if start != b"PK\x03\x04":
            raise _no_artifact(name, "it does not begin as one") from error
        raise damaged(name, f"{type(error).__name__}: {error}") from error
    with archive:
        try:
            return _read_archive(name, archive, os.fstat(file.fileno()).st_size)
        except ArtifactError:
            raise
        except Exception as error:
            raise damaged(name, f"{type(error).__name__}: {error}") from error


def damaged(name: str, why: str) -> ArtifactCorruptError:
    """The error for a file that was an artifact once."""
    return ArtifactCorruptError(
        f"{name!r} is truncated or was altered",
        details=[why],
        mend=_AGAIN,
    )


def _no_artifact(name: str, why: str) -> ArtifactError:
    return ArtifactError(
        f"{name!r} is not a graphc artifact", details=[why], mend="give a file that gc.save wrote"
    )


def _read_archive(
    name: str, archive: zipfile.ZipFile, size: int
) -> tuple[dict[str, Any], dict[str, memoryview]]:
    infos = {info.filename: info for info in archive.infolist()}
    if _MANIFEST not in infos:
        raise _no_artifact(name, "it has no manifest")
    if _DIGEST not in infos or len(infos) != len(archive.infolist()) or not _plain(infos, size):
        raise ArtifactCorruptError(
            f"{name!r}: its members are not those of an artifact", mend=_AGAIN
        )
    text, digest = _read_member(archive, infos[_MANIFEST])
    if digest.encode() != _read_member(archive, infos[_DIGEST])[0]:
        raise ArtifactCorruptError(f"{name!r}: the manifest was altered", mend=_AGAIN)
    manifest = _parse_manifest(name, bytes(text))
    listed = manifest.get("members")
    if not isinstance(listed, dict) or infos.keys() != {_MANIFEST, _DIGEST, *listed}:
        raise ArtifactCorruptError(f"{name!r}: members and manifest disagree", mend=_AGAIN)
    members = {}
    for member, entry in listed.items():
        members[member], digest = _read_member(archive, infos[member])
        if not isinstance(entry, dict) or entry.get("sha256") != digest:
            raise ArtifactCorruptError(f"{name!r}: member {member!r} was altered", mend=_AGAIN)
    return manifest, members


def _plain(infos: Mapping[str, zipfile.ZipInfo], size: int) -> bool:
    """Whether members are stored as they are, and all fit into a file of this size."""
    return sum(info.file_size for info in infos.values()) <= size and all(
        info.compress_type == zipfile.ZIP_STORED
        and info.compress_size == info.file_size
        and not info.flag_bits & 1  # encrypted
        for info in infos.values()
    )


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[memoryview, str]:
    """The content, read-only, and its SHA-256."""
    content = bytearray(info.file_size)
    view, digest, position = memoryview(content), hashlib.sha256(), 0
    with archive.open(info) as member:
        while piece := member.read(_CHUNK):
            view[position : position + len(piece)] = piece
            digest.update(piece)
            position += len(piece)
    if position != info.file_size:
        raise EOFError(f"{info.filename}: {position} of {info.file_size} bytes")
    return view.toreadonly(), digest.hexdigest()


def _parse_manifest(name: str, text: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactCorruptError(f"{name!r}: the manifest is not JSON", mend=_AGAIN) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _no_artifact(name, f"its manifest does not say {FORMAT!r}")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise ArtifactCorruptError(f"{name!r}: {version!r} is not a version", mend=_AGAIN)
    if version > VERSION:
        raise ArtifactVersionError(
            f"{name!r} is of version {version}; this graphc reads up to {VERSION}",
            mend="install a newer graphc",
        )
    return manifest
