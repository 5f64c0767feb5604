"""The file itself: members in an uncompressed zip, each with its checksum in the manifest.

Nothing is compressed, so no member can be larger than the file; nothing is extracted, so no name
can refer to a path outside. Opening a file does not read its members. Each member is read on demand
into memory of this process. The bytes that were checked are the bytes that are used, even if
another process writes to the file in the meantime.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

from graphc.artifacts.directory import Extent, OpenFile, extents, no_artifact
from graphc.errors import ArtifactCorruptError, ArtifactError, ArtifactVersionError
from graphc.keyed import Keyed
from graphc.store.whole_files import replacing

FORMAT = "graphc-artifact"
VERSION = 2
_MANIFEST = "manifest.json"
_DIGEST = "manifest.sha256"
_LARGEST_MANIFEST = 1 << 24  # far more than needed; the manifest is parsed as a whole
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that equal content gives equal files
_AGAIN = "copy or save it again"

Buffer = bytes | memoryview


# -- writing --------------------------------------------------------------------------------


def write(
    path: str | os.PathLike[str],
    members: Mapping[str, Iterable[Buffer]],
    manifest: Callable[[], Mapping[str, Any]],
) -> None:
    """Writes an artifact next to `path`, then renames it. Readers see either the old or the new
    file.

    Args:
        members: name -> the content in pieces, which are generated one after the other.
        manifest: called after all members are written.

    Raises:
        ArtifactError: the folder does not exist or cannot be written, or the disk is full.
    """
    try:
        with replacing(path) as file:
            _write_archive(file, members, manifest)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {str(path)!r}: {error.strerror or error}",
            hint="give the path of a file in a folder that exists and can be written",
        ) from error


def _write_archive(
    file: IO[bytes],
    members: Mapping[str, Iterable[Buffer]],
    manifest: Callable[[], Mapping[str, Any]],
) -> None:
    written: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, pieces in members.items():
            digest, size = hashlib.sha256(), 0
            # Sizes are not known in advance, so space is reserved for large ones.
            with archive.open(zipfile.ZipInfo(name, _EPOCH), "w", force_zip64=True) as member:
                for piece in pieces:
                    member.write(piece)
                    digest.update(piece)
                    size += len(piece)
            written[name] = {"bytes": size, "sha256": digest.hexdigest()}
        full = {"format": FORMAT, "version": VERSION, **manifest(), "members": written}
        text = json.dumps(full, indent=1, sort_keys=True, allow_nan=False).encode()
        if len(text) > _LARGEST_MANIFEST:
            raise ArtifactError(
                f"the manifest would have {len(text)} bytes, but at most {_LARGEST_MANIFEST} are "
                "allowed",
                hint="save fewer signatures or variables in one file",
            )
        archive.writestr(zipfile.ZipInfo(_MANIFEST, _EPOCH), text)
        archive.writestr(zipfile.ZipInfo(_DIGEST, _EPOCH), hashlib.sha256(text).hexdigest())


# -- reading --------------------------------------------------------------------------------


class Members(Keyed[memoryview]):
    """The members of an open artifact by name. Reading a member checks its checksum."""

    def __init__(
        self, file: OpenFile, places: Mapping[str, Extent], digests: Mapping[str, str]
    ) -> None:
        self._file = file
        self._places = places
        self._digests = digests

    def __getitem__(self, name: str) -> memoryview:
        """The content. It is read from the file each time.

        Raises:
            ArtifactCorruptError: it was altered, or the file changed since it was opened.
        """
        digest = hashlib.sha256()
        data = self.part(name, 0, self.size(name), digest)
        self._check_digest(name, digest)
        return data

    def part(self, name: str, offset: int, size: int, digest: Any = None) -> memoryview:
        """`size` bytes from `offset` on, without a check of their content. The range must be within
        the member.

        Args:
            digest: of hashlib; takes the bytes too.
        """
        return self._file.read(self._places[name].start + offset, size, digest)

    def pieces(self, name: str, offset: int, size: int) -> Iterator[memoryview]:
        """The same bytes in pieces, none of which is large. The next piece overwrites a piece."""
        return self._file.pieces(self._places[name].start + offset, size)

    def size(self, name: str) -> int:
        """The size of a member in bytes."""
        return self._places[name].size

    def digest(self, name: str) -> str:
        """The SHA-256 of a member according to the manifest."""
        return self._digests[name]

    def check(self, name: str) -> None:
        """Checks a member's checksum without storing the content.

        Raises:
            ArtifactCorruptError: as for reading it.
        """
        digest = hashlib.sha256()
        for piece in self._file.pieces(self._places[name].start, self.size(name)):
            digest.update(piece)
        self._check_digest(name, digest)

    def _check_digest(self, name: str, digest: Any) -> None:
        if digest.hexdigest() != self._digests[name]:
            raise ArtifactCorruptError(
                f"{self._file.name!r}: member {name!r} was altered", hint=_AGAIN
            )

    @property
    def bytes_read(self) -> int:
        """How many bytes of the file have been read so far."""
        return self._file.bytes_read

    @property
    def path(self) -> str:
        """The file's path, for errors."""
        return self._file.name

    def _keys(self) -> Mapping[str, Extent]:
        return self._places


def read(
    path: str | os.PathLike[str], pace: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], Members]:
    """The manifest, checked, and the members, which are checked when they are read.

    Args:
        pace: called after each piece of the file that is read.

    Raises:
        ArtifactError: the file does not exist, or is not an artifact.
        ArtifactCorruptError: the file is truncated or altered.
        ArtifactVersionError: a newer graphc wrote the file.
    """
    name = str(os.fspath(path))
    try:
        file = OpenFile(name, pace)
    except FileNotFoundError:
        raise ArtifactError(f"no file {name!r}", hint="check the path") from None
    except IsADirectoryError:
        raise ArtifactError(
            f"{name!r} is a folder, not an artifact",
            hint="give the file that gc.save wrote; gc.train.restore(session, folder) restores a "
            "checkpoint",
        ) from None
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        raise ArtifactError(
            f"cannot read {name!r}: {getattr(error, 'strerror', None) or error}"
        ) from error
    return _read_archive(file)


def _read_archive(file: OpenFile) -> tuple[dict[str, Any], Members]:
    name = file.name
    places = extents(file, _MANIFEST)
    if _DIGEST not in places or places[_MANIFEST].size > _LARGEST_MANIFEST:
        raise ArtifactCorruptError(
            f"{name!r}: its members are not those of an artifact", hint=_AGAIN
        )
    place = places.pop(_DIGEST)
    expected = bytes(file.read(place.start, min(place.size, 100)))
    place = places.pop(_MANIFEST)
    text = bytes(file.read(place.start, place.size))
    if hashlib.sha256(text).hexdigest().encode() != expected:
        raise ArtifactCorruptError(f"{name!r}: the manifest was altered", hint=_AGAIN)
    manifest = _parse_manifest(name, text)
    digests = _digests(manifest.get("members"), places)
    if digests is None:
        raise ArtifactCorruptError(f"{name!r}: members and manifest disagree", hint=_AGAIN)
    return manifest, Members(file, places, digests)


def _digests(listed: Any, places: Mapping[str, Extent]) -> dict[str, str] | None:
    """Member -> SHA-256, if the manifest lists exactly the members of the file."""
    if not isinstance(listed, dict) or listed.keys() != places.keys():
        return None
    digests = {}
    for member, entry in listed.items():
        digest = entry.get("sha256") if isinstance(entry, dict) else None
        if not isinstance(digest, str) or entry.get("bytes") != places[member].size:
            return None
        digests[member] = digest
    return digests


def damaged(name: str, why: str) -> ArtifactCorruptError:
    """The error for a damaged artifact."""
    return ArtifactCorruptError(
        f"{name!r} is truncated or was altered",
        details=[why],
        hint=_AGAIN,
    )


def _parse_manifest(name: str, text: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactCorruptError(f"{name!r}: the manifest is not JSON", hint=_AGAIN) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise no_artifact(name, f"its manifest does not contain {FORMAT!r}")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise ArtifactCorruptError(f"{name!r}: {version!r:.80} is not a version", hint=_AGAIN)
    if version > VERSION:
        raise ArtifactVersionError(
            f"{name!r} has version {version}, but this graphc reads versions up to {VERSION}",
            hint="install a newer graphc",
        )
    return manifest
