"""The file of offsets that `IndexedRecords` keeps beside a TFRecord file."""

from __future__ import annotations

import os
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np

from graphc.data.records.framing import Frames

Offsets: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

_FORM = b"graphc index 1\n\0"
_HEAD = struct.Struct("<16sqqq")  # form, size and last change of the file, number of offsets


def _beside(path: str) -> Path:
    return Path(f"{path}.index")


def stored(path: str, frames: Frames) -> Offsets | None:
    """The offsets beside a file, or None if there are none that fit it."""
    try:
        data = _beside(path).read_bytes()
        found = os.stat(path)
    except OSError:
        return None
    body = data[:-4]
    if len(body) < _HEAD.size or not frames.is_intact(body, data[-4:]):
        return None
    form, size, changed, count = _HEAD.unpack_from(body)
    if (form, size, changed) != (_FORM, found.st_size, found.st_mtime_ns):
        return None
    if count < 1 or len(body) != _HEAD.size + 8 * count:
        return None
    offsets = np.frombuffer(body, "<i8", offset=_HEAD.size).astype(np.int64)
    fits = offsets[0] == 0 and offsets[-1] == size and bool((np.diff(offsets) >= 16).all())
    return offsets if fits else None


def saved(path: str, offsets: Offsets, frames: Frames) -> None:
    """Keeps the offsets beside a file, if the folder can be written."""
    target = _beside(path)
    with suppress(OSError):  # read-only or full: the offsets are found again next time
        found = os.stat(path)
        if found.st_size != int(offsets[-1]):
            return  # it has grown since
        body = _HEAD.pack(_FORM, found.st_size, found.st_mtime_ns, len(offsets))
        body += offsets.astype("<i8").tobytes()
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with open(handle, "wb") as file:
                file.write(body + frames.foot(body))
            os.chmod(name, found.st_mode & 0o666)  # others who read the records may read it too
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
