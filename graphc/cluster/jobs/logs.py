"""Logs of jobs: parts by offset, and what is added to them."""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

PART: Final = 1 << 16  # bytes of a part
_TURN: Final = 0.3  # seconds between two looks at the file
_ALIVE: Final = 15.0  # seconds without an event after which a comment is sent


def part_of(path: Path, offset: int, limit: int = PART) -> tuple[bytes, int]:
    """Bytes of a log from an offset, and where the next part begins.

    Args:
        offset: from the beginning; a negative one counts from the end.

    Examples:
        >>> import tempfile, pathlib
        >>> from graphc.cluster.jobs.logs import part_of
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name, "log.txt")
        >>> _ = path.write_text("one two")
        >>> part_of(path, 4), part_of(path, -3), part_of(path, 100)
        ((b'two', 7), (b'two', 7), (b'', 7))
        >>> folder.cleanup()
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size + offset) if offset < 0 else min(offset, size)
            file.seek(start)
            data = file.read(limit)
    except OSError:  # the job has not started
        return b"", 0
    return data, start + len(data)


async def events(
    log: Callable[[], Path], offset: int, has_ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Server-sent events with what a log contains and what is added to it, until its job has ended.

    Each event `text` has the text as JSON, and as its id the offset after it, with which a client
    goes on after a lost connection. `restart` says that another run of the job has begun, whose log
    is another file; `end` is the last event. Nothing (b"") comes after each look in vain, so that
    the reader can see whether its client is still there.

    Args:
        log: the file at present.
        has_ended: whether the job has.
    """
    path, quiet = log(), 0.0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        ended = await asyncio.to_thread(has_ended)  # before the last part is read
        now = log()
        if now != path:
            path, offset, decoder = now, 0, codecs.getincrementaldecoder("utf-8")("replace")
            yield b"event: restart\ndata: {}\n\n"
        data, offset = await asyncio.to_thread(part_of, path, offset)
        text = decoder.decode(data)
        if text:
            quiet = 0.0
            yield f"id: {offset}\nevent: text\ndata: {json.dumps(text)}\n\n".encode()
        elif not data and ended:
            yield b"event: end\ndata: {}\n\n"
            return
        if not data:
            quiet += _TURN
            if quiet > _ALIVE:
                quiet = 0.0
                yield b": alive\n\n"
            await asyncio.sleep(_TURN)
            yield b""
