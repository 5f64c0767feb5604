"""The disk cache of compiled programs: one file for each, private to the user, in a folder of
bounded size.

Loading native code means running it. So a file is used only if the user owns it, nobody else may
open it, and its digests, its format and its key are correct. All this is checked on the opened file
before any byte is interpreted. Any other file is a miss, and is removed if it belongs to the cache.

There are no locks. A file appears complete or not at all (`os.replace`). If a file disappears
before a process uses or removes it, the process continues as if the file had never existed.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import platformdirs

from graphc.config import DEFAULT, CompileOptions
from graphc.errors import CacheError
from graphc.store.files import (
    Entry,
    Unusable,
    check_folder,
    encode,
    is_mine,
    open_private,
    read_entry,
    read_header,
)

_SUFFIX = ".executable"
_WRITING = ".writing-"
_HEX = frozenset("0123456789abcdef")
_DEAD_AFTER = 3600.0  # seconds: no write takes this long, so the writer was killed


@dataclass(frozen=True)
class Listed:
    """The description of one entry in a listing of the folder. The payload is not read.

    Attributes:
        key: the key of the entry.
        bytes: the size of the whole file.
        last_used: when it was last written or loaded, in seconds since 1970.
        created: when it was written; None if the file cannot be used.
        metadata: the stored metadata; None if the file cannot be used.
    """

    key: str
    bytes: int
    last_used: float
    created: float | None
    metadata: Mapping[str, Any] | None


class _File(NamedTuple):
    """One file of the folder, ordered by last use."""

    used: int
    bytes: int
    path: Path
    is_entry: bool


class ExecutableCache:
    """The entries of one folder, by key. Safe with any number of processes and threads.

    Args:
        folder: created when an entry is first stored.
        limit_bytes: the limit for all files together. The least recently used files are removed
            first.

    Raises:
        CacheError: the folder belongs to another user, or others have access to it.
    """

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int) -> None:
        self.folder = Path(folder)
        self.limit_bytes = limit_bytes
        check_folder(self.folder)

    def get(self, key: str) -> Entry | None:
        """The entry stored under `key`, which becomes the most recently used; None if there is
        none."""
        path = self._path(key)
        try:
            with open_private(path) as file:
                entry = read_entry(file, key)
                with suppress(OSError):  # the folder is read-only: the order is not updated
                    _touch(file, path)
        except FileNotFoundError:
            return None
        except (Unusable, OSError):
            with suppress(OSError):  # the file remains, but is a miss
                if is_mine(path.lstat()):
                    path.unlink()
            return None
        return entry

    def put(self, key: str, metadata: Mapping[str, Any], payload: bytes) -> bool:
        """Stores an entry, and removes others if there is not enough space.

        Args:
            metadata: a value that JSON can represent.

        Returns:
            whether the entry is stored. It is not if it exceeds the limit, or if the folder cannot
                be written, for which a warning is issued once.
        """
        path = self._path(key)
        parts = encode(key, metadata, payload)
        wanted = sum(map(len, parts))
        if wanted > self.limit_bytes:
            return False
        try:
            _make_folder(self.folder)
            check_folder(self.folder)
            self._make_room(wanted)
            self._write(path, parts)
            self._make_room(0)  # others may have written in the meantime
        except FileNotFoundError:  # another process cleared or removed the folder in the meantime
            return False
        except (OSError, CacheError) as error:
            text = error.what if isinstance(error, CacheError) else (error.strerror or str(error))
            warn_once(f"nothing can be stored in the cache folder {str(self.folder)!r}: {text}")
            return False
        return True

    def remove(self, key: str) -> bool:
        """Removes the entry stored under `key`, if there is one. Returns whether there is none
        now."""
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def entries(self) -> list[Listed]:
        """Every entry, the most recently used first, including entries that cannot be used."""
        files = [file for file in sorted(self._files(), reverse=True) if file.is_entry]
        return [listed for file in files if (listed := _look(file)) is not None]

    def clear(self) -> int:
        """Removes every entry and the temporary files of writers. Returns the number of entries.

        Raises:
            CacheError: the folder cannot be written.
        """
        files = list(self._files())
        try:
            for file in files:
                file.path.unlink(missing_ok=True)
        except OSError as error:
            raise CacheError(
                f"the cache folder {str(self.folder)!r} cannot be cleared: {error.strerror}"
            ) from error
        return sum(file.is_entry for file in files)

    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(file.bytes for file in self._files())

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _files(self) -> Iterator[_File]:
        """The files in the folder that belong to the cache, by their names."""
        try:
            found = list(os.scandir(self.folder))
        except FileNotFoundError:
            return
        for item in found:
            key = item.name.removesuffix(_SUFFIX)
            is_entry = item.name.endswith(_SUFFIX) and len(key) == 64 and _HEX.issuperset(key)
            if not is_entry and not item.name.startswith(_WRITING):
                continue  # not ours
            with suppress(FileNotFoundError):  # another process removed it in the meantime
                facts = item.stat(follow_symlinks=False)
                yield _File(facts.st_mtime_ns, facts.st_size, Path(item.path), is_entry)

    def _make_room(self, wanted: int) -> None:
        """Removes the least recently used files until `wanted` bytes fit, and temporary files of
        dead writers."""
        files = sorted(self._files())
        used = sum(file.bytes for file in files)
        dead = time.time_ns() - int(_DEAD_AFTER * 1e9)
        for file in files:
            too_much = used + wanted > self.limit_bytes
            if too_much if file.is_entry else file.used < dead:
                file.path.unlink(missing_ok=True)
                used -= file.bytes

    def _write(self, path: Path, parts: list[bytes]) -> None:
        handle, name = tempfile.mkstemp(prefix=_WRITING, dir=self.folder)  # 0600, and new
        try:
            with open(handle, "wb") as file:
                file.writelines(parts)
                file.flush()
                _touch(file, Path(name))
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def open_cache(options: CompileOptions) -> ExecutableCache | None:
    """The cache that `options` specify, or None.

    Raises:
        CacheError: the folder that the user named is not private to the user. If the default folder
            is not private, a warning is issued once, and there is no cache.
    """
    if options.cache is None:
        return None
    if options.cache is not DEFAULT:
        return ExecutableCache(options.cache, options.cache_limit)
    try:
        return ExecutableCache(default_folder(), options.cache_limit)
    except CacheError as error:
        warn_once(f"compiled programs are not kept: {error.what}; {error.hint}")
        return None


def default_folder() -> Path:
    """`graphc/executables` in the user's cache folder: on Linux under `$XDG_CACHE_HOME` or
    `~/.cache`, on macOS under `~/Library/Caches`, on Windows under `%LOCALAPPDATA%`.

    Raises:
        CacheError: this user has no home folder.
    """
    folder = platformdirs.user_cache_path("graphc", appauthor=False) / "executables"
    if not folder.is_absolute():
        raise CacheError(
            "this user has no home folder for a cache",
            hint="name a folder: CompileOptions(cache=...), or None for no cache",
        )
    return folder


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Warns of a problem that costs time only. The same text is issued once in a process."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"graphc: {text}", RuntimeWarning, stacklevel=3)


def _make_folder(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def _look(file: _File) -> Listed | None:
    created = metadata = None
    try:
        with open_private(file.path) as opened:
            header = read_header(opened)
            created, metadata = header.created, header.metadata
    except FileNotFoundError:  # another process removed it in the meantime
        return None
    except (Unusable, OSError):  # listed too, because it takes space
        pass
    key = file.path.name.removesuffix(_SUFFIX)
    return Listed(key, file.bytes, file.used / 1e9, created, metadata)


def _touch(file: BinaryIO, path: Path) -> None:
    """Makes the file the most recently used one. The time has a resolution of a nanosecond, which
    the kernel's own timestamps lack."""
    now = time.time_ns()
    os.utime(file.fileno() if os.utime in os.supports_fd else path, ns=(now, now))
