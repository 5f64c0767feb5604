"""`restore`: a checkpoint, or a part of one, into a session of any graph."""

from __future__ import annotations

import os
from pathlib import Path

from graphc.checkpoints import folder as folders
from graphc.checkpoints.arguments import checked_path
from graphc.checkpoints.contents import Saved
from graphc.checkpoints.manifest import MANIFEST
from graphc.checkpoints.selection import (
    Choice,
    Patterns,
    Renaming,
    RestoreReport,
    Source,
    check_session,
    restored,
)
from graphc.checkpoints.weight_files.gguf import read_gguf
from graphc.checkpoints.weight_files.safetensors import read_safetensors
from graphc.errors import CheckpointError
from graphc.ir.calls import explained
from graphc.runtime.session import Session


@explained
def restore(
    session: Session,
    path: str | os.PathLike[str],
    *,
    include: Patterns = None,
    exclude: Patterns = None,
    rename: Renaming = None,
    strict: bool = True,
) -> RestoreReport:
    """Gives variables of a session the values that a checkpoint or a file of weights has, by name.

    The graph may be another one than that which was saved: a model without its optimizer, or one
    that shares some layers. Values are cast to the dtypes of the variables within a kind (floats to
    floats). Only the values that are taken are read. If a value cannot be read, none is set.

    Without `include`, `exclude` and `rename`, the state of random numbers and of the scale of the
    loss is restored too.

    Args:
        session: the session.
        path: a folder of checkpoints, of which the latest is taken, or one of them; or a file of
            weights: see `gc.read_safetensors` and `gc.read_gguf`.
        include: which variables of the graph take values: names, variables, patterns such as
            "encoder/*", or regular expressions, which may match any part of a name. By default all.
        exclude: which of them do not.
        rename: old name -> new name, where the graph has other names than the checkpoint.
            `{"encoder/*": "backbone/*"}` renames all that begin so; or a function of the old name.
            A name that changes wins over one that stays: `{"*/average": "*"}` restores moving
            averages.
        strict: whether each selected variable must be in the checkpoint with its shape. With False
            the report says which were not.

    Returns:
        What was taken, what was missing, and what the checkpoint has besides.

    Raises:
        CheckpointError: there is no checkpoint at `path`, or it does not fit; nothing was set.
        CheckpointCorruptError, ModelFileError: it is damaged; nothing was set.
        AttributeValueError: `path` is no path; a pattern is of another type, or matches nothing.
        StateError: the session is closed or has lost its state.

    Examples:
        >>> import tempfile
        >>> encoder = gc.variable([1.0, 2.0], name="encoder/w")
        >>> session = gc.Session(graph)
        >>> folder = tempfile.TemporaryDirectory()
        >>> gc.save(session, folder.name)
        >>> other = gc.Graph()
        >>> with other:
        ...     backbone = gc.variable([0.0, 0.0], name="backbone/w")
        ...     head = gc.variable(0.0, name="head")
        >>> new = gc.Session(other)
        >>> report = gc.train.restore(
        ...     new, folder.name, include="backbone/*", rename={"encoder/*": "backbone/*"}
        ... )
        >>> print(report)
        took 1 of 2 variables
          under another name: backbone/w (from encoder/w)
          not selected: head
        >>> new.get(backbone)
        Array([1., 2.], dtype=float32)
        >>> folder.cleanup()
    """
    check_session(session, "restore")
    saved = _source(checked_path(path, "restore"))
    return restored(session, saved, Choice(include, exclude, rename, strict))


def _source(path: Path) -> Source:
    """What `path` has: a checkpoint, or a file of weights."""
    if path.is_file() and path.name.endswith((".safetensors", ".safetensors.index.json")):
        return read_safetensors(path)
    if path.is_file() and path.suffix == ".gguf":
        return read_gguf(path)
    return Saved(_one(path))


def _one(path: Path) -> Path:
    """The folder of a checkpoint, from that or from the folder of several."""
    if (path / MANIFEST).is_file():
        return path
    if path.is_file():
        raise CheckpointError.here(
            f"{str(path)!r} is a file; a checkpoint is a folder",
            hint="gc.load(path) opens an artifact",
        )
    found = folders.found(path)
    if not found:
        raise CheckpointError.here(
            f"{str(path)!r} has no checkpoint"
            if path.is_dir()
            else f"the folder {str(path)!r} does not exist",
            hint="give a folder that gc.train.Checkpointer or gc.save wrote",
        )
    return found[-1].path
