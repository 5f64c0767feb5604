"""The state of a session, out and in; and what a checkpoint folder holds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from graphc import _version
from graphc.checkpoints import shards, tree
from graphc.checkpoints.manifest import MANIFEST, Entry, Manifest, corrupt, dump, load
from graphc.ir.dtypes import Array
from graphc.runtime.session import Session
from graphc.runtime.state.initial import hidden_types

_EXTRA = "__extra__/"  # of the arrays of the extra tree, in the shards


@dataclass(frozen=True)
class Contents:
    """What is to be written: copies on the host.

    Attributes:
        variables, hidden: by name.
        extra: as JSON; `arrays` are its arrays.
    """

    step: int
    created: float
    graph: str
    metrics: Mapping[str, float]
    variables: Mapping[str, Array]
    hidden: Mapping[str, Array]
    extra: Any
    arrays: list[Array]

    def write(self, folder: Path) -> None:
        """Writes shards and manifest into a folder; flushed to the disk.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        arrays = {f"{_EXTRA}{i}": array for i, array in enumerate(self.arrays)}
        stored = [*self.variables.items(), *self.hidden.items(), *arrays.items()]
        entries = {entry.name: entry for entry in shards.write(folder, stored)}

        def of(names: Mapping[str, Array]) -> tuple[Entry, ...]:
            return tuple(entries[name] for name in names)

        manifest = Manifest(
            step=self.step,
            created=self.created,
            graphc=_version.__version__,
            graph=self.graph,
            metrics=self.metrics,
            variables=of(self.variables),
            hidden=of(self.hidden),
            extra=self.extra,
            arrays=of(arrays),
        )
        shards.write_file(folder / MANIFEST, dump(manifest))


def contents_of(session: Session, step: int, extra: Any, metrics: Mapping[str, float]) -> Contents:
    """A copy of a session's state between two steps. It waits for the steps begun.

    Raises:
        AttributeValueError: `extra` holds what a checkpoint cannot store.
        StateError: the session is closed or has lost its state.
    """
    json, arrays = tree.encode(extra, "extra")
    names = list(session.graph.variables)
    hidden = list(hidden_types())
    values = session.values([*names, *hidden])
    return Contents(
        step=step,
        created=time.time(),
        graph=session.graph.name,
        metrics={name: float(value) for name, value in metrics.items()},
        variables={name: values[name] for name in names},
        hidden={name: values[name] for name in hidden},
        extra=json,
        arrays=arrays,
    )


class Saved:
    """A checkpoint that was found: its manifest is read at once, values when they are asked for.

    Attributes:
        folder: that of this checkpoint.
        variables: name -> where the value is.

    Raises:
        CheckpointError, CheckpointCorruptError: see `manifest.load`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = load(folder)
        self.variables = {entry.name: entry for entry in self.manifest.variables}

    def values(self, names: list[str]) -> dict[str, Array]:
        """Values of variables, by name.

        Raises:
            CheckpointError, CheckpointCorruptError: see `shards.read`.
        """
        return shards.read(self.folder, [self.variables[name] for name in names])

    def hidden(self) -> dict[str, Array]:
        """The hidden state that this graphc has too.

        Raises:
            CheckpointError, CheckpointCorruptError: see `shards.read`.
        """
        types = hidden_types()
        known = [
            entry
            for entry in self.manifest.hidden
            if entry.name in types
            and (entry.dtype, entry.shape) == (types[entry.name].dtype, types[entry.name].shape)
        ]
        return shards.read(self.folder, known)

    @cached_property
    def extra(self) -> Any:
        """The tree that `save` was given.

        Raises:
            CheckpointError, CheckpointCorruptError: see `shards.read`.
        """
        values = shards.read(self.folder, self.manifest.arrays)
        arrays = [values[entry.name] for entry in self.manifest.arrays]
        try:
            return tree.decode(self.manifest.extra, arrays)
        except (KeyError, IndexError, TypeError) as error:
            raise corrupt(self.folder, "the extra state is not a tree") from error
