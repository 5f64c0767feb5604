"""Reads an exported program in a process of its own, and says what it found.

MLIR's reader of bytecode is C++ that trusts its input: of a thousand programs with a few bits
flipped, several end the process, and some never end. So a program from a file is read here first.
This file is run as a script (see `safe_reading`), and imports nothing but JAX.

It says that it is ready; then it takes the length of a program in 8 bytes and the program, on
standard input, and gives a line of JSON on standard output. It ends when its input does, or when
nothing is asked for a while.
"""

from __future__ import annotations

import json
import math
import os
import re
import select
import sys
from typing import Any

_IDLE = 60.0  # seconds
_ROOM = 4 << 30  # bytes that reading may take, beside what JAX has already
_ROOM_PER_BYTE = 200

_CALL = re.compile(r"\.custom_call\b")
_TARGET = re.compile(r'stablehlo\.custom_call @(?:"([^"]*)"|([\w.$]+))\(')
_TENSOR = re.compile(r"tensor<((?:[0-9?]+x)+)")


def findings(text: str) -> dict[str, Any]:
    """What of a StableHLO text decides whether it may be run.

    Returns:
        "targets": the names of the custom calls; None where one cannot be made out.
        "elements": of the largest tensor, open sizes taken as 1.
    """
    targets = {a or b for a, b in _TARGET.findall(text)}
    legible = len(_CALL.findall(text)) == len(_TARGET.findall(text))
    shapes = set(_TENSOR.findall(text))
    sizes = [
        math.prod(max(int(size), 1) for size in shape.split("x")[:-1] if size != "?")
        for shape in shapes
    ]
    return {"targets": sorted(targets) if legible else None, "elements": max(sizes, default=1)}


def _read(data: bytes) -> dict[str, Any]:
    import jax.export

    try:
        return findings(jax.export.deserialize(bytearray(data)).mlir_module())
    except Exception as error:  # whatever the parsers raise
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def _limit(size: int) -> None:
    """Bounds the memory of this process, where the system can."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        limit = used + _ROOM + _ROOM_PER_BYTE * size
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        return


def main() -> None:
    """Answers until nobody asks any more."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print is no reply
    import jax.export  # noqa: F401  before memory is bounded

    _reply(replies, {"ready": True})
    while select.select([0], [], [], _IDLE)[0]:  # standard input
        size = int.from_bytes(_exactly(8), "little")
        data = _exactly(size)
        _limit(size)
        _reply(replies, _read(data))


def _reply(replies: Any, content: dict[str, Any]) -> None:
    replies.write(json.dumps(content).encode() + b"\n")
    replies.flush()


def _exactly(size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        piece = os.read(0, min(size - len(content), 1 << 20))
        if not piece:
            sys.exit(0)
        content += piece
    return bytes(content)


if __name__ == "__main__":
    main()
