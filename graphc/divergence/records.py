"""`Record`: the values of a run in a file, for a comparison in another process or environment."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from graphc.config import CompileOptions
from graphc.divergence.level import ProgramSide
from graphc.divergence.runs import Definition, Ran, Run, defined
from graphc.errors import ModelFileError
from graphc.ir.dtypes import Array, as_dtype, short_name
from graphc.ir.graph import Graph
from graphc.keyed import Keyed
from graphc.runtime.session import Session
from graphc.typing import Feeds, Fetches

_FORMAT = "graphc record 1"
_LARGEST_HEADER = 1 << 26


@dataclass(frozen=True)
class Record:
    """The values of a run that a file holds, for a comparison in another process or environment.

    The file holds no code. Values are read when they are compared. `graphc compare --record` writes
    such files too.

    Attributes:
        path: of the file.
        label: what the run is called in reports.
        values: by the names of tensors.
        inputs: the digest of the feeds and the state.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> x = gc.placeholder((3,), name="x")
        >>> y, feeds = gc.exp(x, name="y"), {x: [0.0, 1.0, 2.0]}
        >>> record = gc.Record.write(f"{folder.name}/run.record", graph, feeds, fetches=y)
        >>> list(record.values)
        ['y:0']
        >>> gc.compare(graph, gc.Record.open(record.path), feeds, fetches=y).ok
        True
        >>> folder.cleanup()
    """

    path: str
    label: str
    values: Mapping[str, Array]
    inputs: str

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Record:
        """The record in a file.

        Raises:
            ModelFileError: the file is not a record, or it is damaged.
        """
        header, start = _read_header(path)
        return Record(
            os.fspath(path), header["label"], _Values(path, header, start), header["inputs"]
        )

    @staticmethod
    def write(
        path: str | os.PathLike[str],
        source: Graph | Session,
        feeds: Feeds | None = None,
        *,
        fetches: Fetches,
        run: Run | None = None,
    ) -> Record:
        """Runs a graph, and writes every value to a file.

        Args:
            path: of the file.
            source, feeds, fetches: as for `gc.compare`.
            run: how it is run; by default with the options of the session, or default options.

        Raises:
            FeedError, FetchError, UnknownNameError: feeds or fetches do not fit the graph.
        """
        options = source.options if isinstance(source, Session) else CompileOptions()
        definition = defined(source, fetches, feeds)
        ran = Ran(definition, Run(options) if run is None else run)
        side: ProgramSide = ran.side
        known = side.known(definition.program)
        wanted = [t for n in definition.program.nodes for t in n.outputs if t in known]
        rows: list[dict[str, Any]] = []
        target = Path(path)
        body = target.with_name(target.name + ".part")
        position = 0
        with body.open("wb") as file:
            for some in side.values(wanted):
                for tensor, value in some.items():
                    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
                    file.write(data.data)
                    rows.append(
                        {
                            "name": tensor.name,
                            "dtype": short_name(value.dtype),
                            "shape": list(value.shape),
                            "offset": position,
                            "bytes": int(data.size),
                            "sha256": hashlib.sha256(data.data).hexdigest(),
                        }
                    )
                    position += int(data.size)
        header = {
            "format": _FORMAT,
            "label": f"{ran.label}, jax {jax.__version__}",
            "inputs": digest_of(definition),
            "values": rows,
        }
        _join(target, body, header)
        return Record.open(path)

    def checked(self, definition: Definition) -> Mapping[str, Array]:
        """The values, if they are of this program and these inputs.

        Raises:
            ModelFileError: they are not.
        """
        if self.inputs != digest_of(definition):
            raise ModelFileError(
                f"record {self.path!r} is of another graph, other feeds or another state",
                hint="record and compare with the same script, seed and feeds",
            )
        return self.values


def digest_of(definition: Definition) -> str:
    """A digest of the values of a program's inputs. The program itself may be written in other
    operators with another version of JAX."""
    digest = hashlib.sha256()
    for port, value in zip(definition.program.inputs, definition.inputs, strict=True):
        digest.update(f"{port.kind} {port.name} {short_name(value.dtype)} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


class _Values(Keyed[Array]):
    """The values in a file, each read when it is asked for."""

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any], start: int) -> None:
        self._path, self._start = path, start
        self._rows = {row["name"]: row for row in header["values"]}

    def __getitem__(self, name: str) -> Array:
        row = self._rows[name]
        with open(self._path, "rb") as file:
            file.seek(self._start + row["offset"])
            data = file.read(row["bytes"])
        if hashlib.sha256(data).hexdigest() != row["sha256"]:
            raise _damaged(self._path, f"value {name!r} has another checksum")
        return np.frombuffer(data, as_dtype(row["dtype"])).reshape(row["shape"])

    def _keys(self) -> Mapping[str, Any]:
        return self._rows


def _join(target: Path, body: Path, header: Mapping[str, Any]) -> None:
    text = json.dumps(header, separators=(",", ":")).encode()
    whole = target.with_name(target.name + ".whole")
    with whole.open("wb") as file, body.open("rb") as values:
        file.write(len(text).to_bytes(8, "little") + text)
        while piece := values.read(1 << 24):
            file.write(piece)
    body.unlink()
    os.replace(whole, target)


def _read_header(path: str | os.PathLike[str]) -> tuple[dict[str, Any], int]:
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if length <= _LARGEST_HEADER else b""
    except OSError as error:
        raise ModelFileError(
            f"record {os.fspath(path)!r} cannot be read: {error.strerror}", hint="check the path"
        ) from None
    try:
        header = json.loads(text)
        rows = [_checked_row(row) for row in header["values"]]
        good = header["format"] == _FORMAT and all(
            isinstance(header[name], str) for name in ("label", "inputs")
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, "its header is not that of a record") from error
    end = 8 + length + max((row["offset"] + row["bytes"] for row in rows), default=0)
    if not good or os.path.getsize(path) != end:
        raise _damaged(path, "its header does not fit its contents")
    return {**header, "values": rows}, 8 + length


def _checked_row(row: Any) -> dict[str, Any]:
    """A row of the header."""
    dtype, shape = as_dtype(str(row["dtype"])), row["shape"]
    sizes = [*shape, row["offset"], row["bytes"]]
    texts = row["name"], row["sha256"]
    if not all(isinstance(text, str) for text in texts) or not all(
        type(n) is int and n >= 0 for n in sizes
    ):
        raise ValueError("not a row")
    if math.prod(shape) * dtype.itemsize != row["bytes"]:
        raise ValueError("the size does not fit the shape")
    return dict(row)


def _damaged(path: str | os.PathLike[str], why: str) -> ModelFileError:
    return ModelFileError(
        f"{os.fspath(path)!r} is not a record of graphc, or is damaged: {why}",
        hint="write it with graphc compare --record",
    )
