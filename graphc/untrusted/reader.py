"""Reads an exported program in a separate process, and reports its findings.

MLIR's reader of bytecode is C++ that trusts its input: of a thousand programs with a few bits
flipped, several crash the process, and some never end. So a program from a file is read here first.
This module is run as a script (see `safe_reading`); it imports little, so that it starts fast. A
program is one that JAX has exported, or StableHLO as text or bytecode.

It reports that it is ready. Then it reads a request and a program from standard input, each
preceded by its length in 8 bytes, and writes a line of JSON to standard output. The request is
JSON: the shapes of the arguments to compile the program; otherwise it is read, and with "written"
also written again. The script ends when its input ends, or when no request comes for a while.
"""

from __future__ import annotations

import json
import os
import select
import sys
from contextlib import suppress
from typing import Any

from graphc.untrusted.findings import findings

_IDLE = 60.0  # seconds
_ROOM = 4 << 30  # bytes that reading may allocate, in addition to the memory that JAX already uses
_ROOM_TO_COMPILE = 32 << 30
_ROOM_PER_BYTE = 200
_BYTECODE = b"ML\xefR"  # the first bytes of MLIR's bytecode
_BEGINNING = 1 << 16  # bytes in which a text has its module; locations come before it


def parse_module(data: bytes) -> Any:
    """The module (`jax.extend.mlir.ir.Module`) in StableHLO's text or bytecode. It keeps its
    context alive.

    Raises:
        Exception: the data is not StableHLO. MLIR raises errors of many kinds.
    """
    from jax.extend import mlir
    from jax.extend.mlir import ir
    from jax.interpreters.mlir import make_ir_context

    with make_ir_context():
        if not data.startswith(_BYTECODE):
            return ir.Module.parse(data.decode())
        try:
            return mlir.deserialize_portable_artifact(data)
        except Exception:  # bytecode of another dialect than that of portable artifacts
            return ir.Module.parse(data)


def write_module(module: Any) -> bytes:
    """The module as a portable artifact, of the oldest version that has its operations.

    Raises:
        Exception: it cannot be written. MLIR raises errors of many kinds.
    """
    from jax.extend import mlir
    from jax.extend.mlir.dialects import stablehlo

    try:
        oldest = stablehlo.get_minimum_version()  # which every JAX reads
        return bytes(mlir.serialize_portable_artifact(module, oldest))
    except Exception:  # the program has operations of a later version
        newest = stablehlo.get_current_version()
        return bytes(mlir.serialize_portable_artifact(module, newest))


def _read(data: bytes, written: bool = False) -> dict[str, Any]:
    import jax.export
    import jax.extend.mlir as mlir
    import jax.extend.mlir.ir as ir

    def found(module: Any) -> dict[str, Any]:
        if written:
            with suppress(Exception):  # whoever writes it sees the error
                write_module(module)
        return findings(module)

    try:
        if data.startswith(_BYTECODE) or (b"module" in data[:_BEGINNING] and b"func" in data):
            try:
                return found(parse_module(data))
            except UnicodeDecodeError:  # not text, but what JAX has exported
                pass
        exported = jax.export.deserialize(bytearray(data))
        with ir.Context():
            return found(mlir.deserialize_portable_artifact(exported.mlir_module_serialized))
    except Exception as error:  # the parsers may raise any error
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def _compile(data: bytes, shapes: list[list[int]], wide: bool) -> dict[str, Any]:
    import jax
    import jax.export

    try:
        exported = jax.export.deserialize(bytearray(data))
        with jax.enable_x64(wide):
            arguments = [
                jax.ShapeDtypeStruct(shape, aval.dtype)
                for shape, aval in zip(shapes, exported.in_avals, strict=True)
            ]
            jax.jit(exported.call).lower(*arguments).compile()
        return {}
    except Exception as error:  # XLA raises errors of many kinds
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def _limit(room: int, size: int) -> None:
    """Limits the memory of this process, if the system supports it."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        limit = used + room + _ROOM_PER_BYTE * size
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        return


def main() -> None:
    """Answers requests until there are no more."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # output that libraries print is not a reply
    import jax.export  # before the memory is limited
    import jax.extend.mlir.ir  # noqa: F401

    _reply(replies, {"ready": True})
    while select.select([0], [], [], _IDLE)[0]:  # standard input
        request = json.loads(_part())
        data = _part()
        compiles = "shapes" in request
        _limit(_ROOM_TO_COMPILE if compiles else _ROOM, len(data))
        _reply(replies, (_compile if compiles else _read)(data, **request))


def _reply(replies: Any, content: dict[str, Any]) -> None:
    replies.write(json.dumps(content).encode() + b"\n")
    replies.flush()


def _part() -> bytes:
    return _exactly(int.from_bytes(_exactly(8), "little"))


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
