"""One file of the cache: its format, and the checks that it can be trusted.

    magic (8 bytes)
    SHA-256 of the next two (32 bytes)
    length of the header (4 bytes, least significant byte first)
    header: JSON with the format's version, the key, the time, the stored metadata, and the length
        and SHA-256 of the payload
    payload, to the end of the file

So every byte is compared or covered by a digest, and the entries of the folder can be listed
without reading the payloads.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from graphc.errors import CacheError

FORMAT = 2  # changes with the format; since 2, an executable's entry names the functions it calls
_MAGIC = b"graphc\x1ax"
_LENGTH = struct.Struct("<I")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_USERS = hasattr(os, "geteuid")  # other systems protect the user's folders by other means


class Unusable(Exception):
    """This file is not an entry that may be loaded. The text states the reason."""


@dataclass(frozen=True)
class Header:
    """The header before the payload."""

    key: str
    created: float
    metadata: Mapping[str, Any]
    payload_bytes: int
    payload_sha256: str


@dataclass(frozen=True)
class Entry:
    """A compiled program as it was stored."""

    key: str
    metadata: Mapping[str, Any]
    payload: bytes


def encode(key: str, metadata: Mapping[str, Any], payload: bytes) -> list[bytes]:
    """The parts of the file that holds an entry, one after the other."""
    facts = {
        "format": FORMAT,
        "key": key,
        "created": time.time(),
        "metadata": dict(metadata),
        "payload_bytes": len(payload),
        "payload_sha256": hashlib.sha256(payload).hexdigest(),
    }
    header = json.dumps(facts, separators=(",", ":")).encode()
    signed = _LENGTH.pack(len(header)) + header
    return [_MAGIC, hashlib.sha256(signed).digest(), signed, payload]


def read_header(file: BinaryIO) -> Header:
    """Reads up to the payload.

    Raises:
        Unusable: the file has another format, or was altered.
    """
    left = os.fstat(file.fileno()).st_size
    start = file.read(44)
    if len(start) < 44 or start[:8] != _MAGIC:
        raise Unusable("another kind of file")
    (length,) = _LENGTH.unpack(start[40:])
    left -= len(start) + length
    header = file.read(length) if left >= 0 else b""
    if hashlib.sha256(start[40:] + header).digest() != start[8:40]:
        raise Unusable("the header was truncated or altered")
    facts = json.loads(header)
    if facts.pop("format", None) != FORMAT:
        raise Unusable("written by another version")
    found = Header(**facts)
    if found.payload_bytes != left:
        raise Unusable("the payload was truncated or extended")
    return found


def read_entry(file: BinaryIO, key: str) -> Entry:
    """Reads the entry of `key`.

    Raises:
        Unusable: the entry has another key, or was altered.
    """
    header = read_header(file)
    if header.key != key:
        raise Unusable("the entry of another key")
    payload = file.read(header.payload_bytes)
    if hashlib.sha256(payload).hexdigest() != header.payload_sha256:
        raise Unusable("the payload was altered")
    return Entry(key, header.metadata, payload)


def open_private(path: Path) -> BinaryIO:
    """Opens a file for reading, and checks that only this user has access to the opened file.

    Raises:
        Unusable: it is not a plain file, belongs to another user, or is open to others.
        OSError: it cannot be opened; a symbolic link is not followed.
    """
    # Not blocking, because a named pipe may never have a writer.
    flags = sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "BINARY"))
    handle = os.open(path, os.O_RDONLY | flags)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise Unusable("not a plain file")
        if not is_mine(facts):
            raise Unusable("another user's")
        if _USERS and facts.st_mode & _OTHERS:
            raise Unusable("open to other users")
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def is_mine(facts: os.stat_result) -> bool:
    """Whether this user owns the file that `facts` describe."""
    return not _USERS or facts.st_uid == os.geteuid()


def check_folder(folder: Path) -> None:
    """Rejects a folder in which others might read or create files. A folder that does not exist is
    accepted.

    The check is like that of ssh for keys, but ignores parent folders. Other users who may write in
    a parent folder can remove this folder, but cannot replace it by one that belongs to this user
    and contains such files.

    Raises:
        CacheError: it belongs to another user, is open to others, or is not a folder.
    """
    try:
        link, facts = folder.lstat(), folder.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise CacheError(
            f"the cache folder {str(folder)!r} cannot be used: {error.strerror}", hint=_ANOTHER
        ) from error
    if not stat.S_ISDIR(facts.st_mode):
        raise CacheError(f"the cache folder {str(folder)!r} is not a folder", hint=_ANOTHER)
    # The path may be a link, if the user or the system created it.
    if not is_mine(facts) or not (is_mine(link) or link.st_uid == 0):
        raise CacheError(
            f"the cache folder {str(folder)!r} belongs to another user, who could have this "
            "process run any program",
            hint=_ANOTHER,
        )
    if _USERS and facts.st_mode & _OTHERS:
        raise CacheError(
            f"the cache folder {str(folder)!r} is open to other users (mode "
            f"{stat.S_IMODE(facts.st_mode):04o}), who could have this process run any program",
            hint=f"chmod 700 {shlex.quote(str(folder))}",
        )


_ANOTHER = "name a folder of your own: CompileOptions(cache=...), or None for no cache"
