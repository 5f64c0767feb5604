"""Compiled programs on disk: one file each, private to the user, in a folder of bounded size.

Loading native code is running it. So a file counts only if it is the user's own, nobody else may
open it, and its digests, its format and its key are right; all that is checked on the opened file
before a byte of it is interpreted. Any other file is a miss, and is removed where it is ours.

Nothing here locks. A file appears whole or not at all (`os.replace`), and whoever finds one gone
that it was about to use or to remove goes on as if it had never been there.
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
_DEAD_AFTER = 3600.0  # seconds: nobody writes for so long, so the writer was killed


@dataclass(frozen=True)
class Listed:
    """What a look at the folder says of one entry, its payload unread.

    Attributes:
        key: what it is found by.
        bytes: of the whole file.
        last_used: when it was last written or loaded, in seconds since 1970.
        created: when it was written; None where the file cannot be used.
        metadata: as it was stored; None where the file cannot be used.
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
        folder: made when something is first stored.
        limit_bytes: of all files together; the least recently used go first.

    Raises:
        CacheError: the folder is another user's, or others may use it.
    """

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int) -> None:
        self.folder = Path(folder)
        self.limit_bytes = limit_bytes
        check_folder(self.folder)

    def get(self, key: str) -> Entry | None:
        """The entry stored under `key`, now the most recently used; None where there is none."""
        path = self._path(key)
        try:
            with open_private(path) as file:
                entry = read_entry(file, key)
                with suppress(OSError):  # the folder is only readable: the order is not kept
                    _touch(file, path)
        except FileNotFoundError:
            return None
        except (Unusable, OSError):
            with suppress(OSError):  # it stays there then, and is a miss all the same
                if is_mine(path.lstat()):
                    path.unlink()
            return None
        return entry

    def put(self, key: str, metadata: Mapping[str, Any], payload: bytes) -> bool:
        """Stores an entry, and removes others where there is no room.

        Args:
            metadata: what JSON can hold.

        Returns:
            whether it is there now: not where it is larger than the limit, and not where the
            folder cannot be written, of which a warning tells once.
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
            self._make_room(0)  # others may have written meanwhile
        except FileNotFoundError:  # somebody cleared or removed the folder meanwhile
            return False
        except (OSError, CacheError) as error:
            text = error.what if isinstance(error, CacheError) else (error.strerror or str(error))
            warn_once(f"nothing can be stored in the cache folder {str(self.folder)!r}: {text}")
            return False
        return True

    def remove(self, key: str) -> bool:
        """Takes the entry away that is stored under `key`, if there is one; gives whether there is
        none now."""
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def entries(self) -> list[Listed]:
        """Every entry, the most recently used first; those that cannot be used too."""
        files = [file for file in sorted(self._files(), reverse=True) if file.is_entry]
        return [listed for file in files if (listed := _look(file)) is not None]

    def clear(self) -> int:
        """Removes every entry, and what writers left; gives the number of entries.

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
        """Bytes of all files together."""
        return sum(file.bytes for file in self._files())

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _files(self) -> Iterator[_File]:
        """The files in the folder that are the cache's, by their names."""
        try:
            found = list(os.scandir(self.folder))
        except FileNotFoundError:
            return
        for item in found:
            key = item.name.removesuffix(_SUFFIX)
            is_entry = item.name.endswith(_SUFFIX) and len(key) == 64 and _HEX.issuperset(key)
            if not is_entry and not item.name.startswith(_WRITING):
                continue  # not ours
            with suppress(FileNotFoundError):  # removed by somebody since the folder was read
                facts = item.stat(follow_symlinks=False)
                yield _File(facts.st_mtime_ns, facts.st_size, Path(item.path), is_entry)

    def _make_room(self, wanted: int) -> None:
        """Removes the least recently used until `wanted` bytes fit, and what dead writers left."""
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
    """The cache that `options` ask for; None for none.

    Raises:
        CacheError: the folder that the user named is not private to the user. Of the default
            folder a warning tells, once, and there is no cache.
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
        CacheError: this user has no home.
    """
    folder = platformdirs.user_cache_path("graphc", appauthor=False) / "executables"
    if not folder.is_absolute():
        raise CacheError(
            "this user has no home folder for a cache",
            hint="name one: CompileOptions(cache=...), or None for none",
        )
    return folder


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Warns of a fault that costs time only; the same text once in a process."""
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
    except FileNotFoundError:  # removed by somebody since the folder was read
        return None
    except (Unusable, OSError):  # listed all the same: it takes room
        pass
    key = file.path.name.removesuffix(_SUFFIX)
    return Listed(key, file.bytes, file.used / 1e9, created, metadata)


def _touch(file: BinaryIO, path: Path) -> None:
    """Makes the file the most recently used; to the nanosecond, which the kernel's own is not."""
    now = time.time_ns()
    os.utime(file.fileno() if os.utime in os.supports_fd else path, ns=(now, now))
