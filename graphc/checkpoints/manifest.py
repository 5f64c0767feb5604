"""The manifest of a checkpoint: what it holds and where, with checksums.

Nothing in it is trusted when it is read.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphc.errors import CheckpointCorruptError, CheckpointError
from graphc.ir.dtypes import BY_SHORT, short_name

MANIFEST = "manifest.json"
BLOCK = 16 << 20
"""Bytes of a value that have one checksum together."""

_FORMAT = 1
_LARGEST = 1 << 30  # bytes of a manifest: it is parsed as a whole
_SHARD = re.compile(r"values-\d{5}\.safetensors")
_MOST = 1 << 62  # no size or offset is larger


class Entry(NamedTuple):
    """A stored array.

    Attributes:
        file: the shard that has it.
        offset: where it begins in the shard, in bytes.
        checksums: the CRC-32 of each block.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    file: str
    offset: int
    checksums: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds.

    Attributes:
        created: when the state was copied, in seconds since 1970.
        graph: the name of the graph.
        metrics: the figures that `save` was given.
        variables: those of the user's graph.
        hidden: the state of random numbers and of the scale of the loss.
        extra: the tree that `save` was given, see `tree`; `arrays` are its arrays.
    """

    step: int
    created: float
    graphc: str
    graph: str
    metrics: Mapping[str, float]
    variables: tuple[Entry, ...]
    hidden: tuple[Entry, ...]
    extra: Any
    arrays: tuple[Entry, ...]


def dump(manifest: Manifest) -> bytes:
    """The content of the file."""
    body = {
        "format": _FORMAT,
        "step": manifest.step,
        "created": manifest.created,
        "graphc": manifest.graphc,
        "graph": manifest.graph,
        "metrics": dict(manifest.metrics),
        "variables": [_row(entry) for entry in manifest.variables],
        "hidden": [_row(entry) for entry in manifest.hidden],
        "extra": manifest.extra,
        "arrays": [_row(entry) for entry in manifest.arrays],
    }
    text = _canonical(body)
    return b'{"crc32": %d, "checkpoint": %s}\n' % (zlib.crc32(text), text)


def _canonical(body: Any) -> bytes:
    return json.dumps(body, indent=1).encode()


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "dtype": short_name(entry.dtype),
        "shape": list(entry.shape),
        "file": entry.file,
        "offset": entry.offset,
        "crc32": list(entry.checksums),
    }


def load(folder: Path) -> Manifest:
    """The manifest of the checkpoint in a folder.

    Raises:
        CheckpointError: there is none, it cannot be read, or a newer graphc wrote it.
        CheckpointCorruptError: it was truncated or altered.
    """
    path = folder / MANIFEST
    try:
        if path.stat().st_size > _LARGEST:
            raise corrupt(folder, "the manifest is too large")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(
            f"cannot read the checkpoint {str(folder)!r}: {error.strerror or error}",
            hint="give a folder that gc.train.Checkpointer or gc.save wrote",
        ) from error
    except (ValueError, RecursionError) as error:
        raise corrupt(folder, "the manifest is not JSON") from error
    try:
        body = content["checkpoint"]
        if content["crc32"] != zlib.crc32(_canonical(body)):
            raise corrupt(folder, "the checksum of the manifest does not match")
        if body["format"] != _FORMAT:
            raise CheckpointError(
                f"the checkpoint {str(folder)!r} has format {body['format']!r:.40}; this graphc "
                f"reads format {_FORMAT}",
                hint="read it with the graphc that wrote it",
            )
        return _manifest(body)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise corrupt(folder, f"the manifest lacks what it must have ({error!r:.80})") from error


def corrupt(folder: Path, why: str) -> CheckpointCorruptError:
    """The error for a checkpoint that was altered."""
    return CheckpointCorruptError(
        f"the checkpoint {str(folder)!r} is truncated or was altered",
        details=[why],
        hint="use another checkpoint; Checkpointer.restore(session) takes the latest that is whole",
    )


def _manifest(body: Any) -> Manifest:
    metrics = body["metrics"]
    if not all(isinstance(k, str) and isinstance(v, (int, float)) for k, v in metrics.items()):
        raise ValueError("metrics")
    made = Manifest(
        step=_integer(body["step"]),
        created=float(body["created"]),
        graphc=_text(body["graphc"]),
        graph=_text(body["graph"]),
        metrics={name: float(value) for name, value in metrics.items()},
        variables=_entries(body["variables"]),
        hidden=_entries(body["hidden"]),
        extra=body["extra"],
        arrays=_entries(body["arrays"]),
    )
    if not math.isfinite(made.created):
        raise ValueError("created")
    return made


def _entries(rows: Any) -> tuple[Entry, ...]:
    found = tuple(_entry(row) for row in rows)
    if len({entry.name for entry in found}) != len(found):
        raise ValueError("a name occurs twice")
    return found


def _entry(row: Any) -> Entry:
    entry = Entry(
        name=_text(row["name"]),
        dtype=BY_SHORT[row["dtype"]],
        shape=tuple(_integer(size) for size in row["shape"]),
        file=_text(row["file"]),
        offset=_integer(row["offset"]),
        checksums=tuple(_integer(number) for number in row["crc32"]),
    )
    if not _SHARD.fullmatch(entry.file) or entry.bytes > _MOST:
        raise ValueError("file or shape")
    if len(entry.checksums) != -(-entry.bytes // BLOCK):
        raise ValueError("crc32")
    return entry


def _integer(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r:.40} is not a size")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value
