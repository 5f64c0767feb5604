"""Orbax's form of a checkpoint: one array for each variable, by the user's names.

Orbax writes zarr arrays in an OCDBT store (<https://orbax.readthedocs.io>). Here the tree is a flat
dict; a nested one, such as other programs write, is read with "/" between the keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from graphc.checkpoints.arguments import checked_path
from graphc.checkpoints.selection import (
    Choice,
    Patterns,
    Renaming,
    RestoreReport,
    check_session,
    restored,
)
from graphc.errors import CheckpointError, MissingExtraError
from graphc.ir.calls import explained
from graphc.ir.dtypes import Array
from graphc.runtime.session import Session
from graphc.runtime.state.initial import hidden_types


@explained
def save_orbax(session: Session, path: str | os.PathLike[str]) -> None:
    """Writes the state of a session as an Orbax checkpoint: a dict of name -> array.

    Args:
        session: the session.
        path: the folder of the checkpoint; one that is there is replaced.

    Raises:
        CheckpointError: it cannot be written, or a variable has no elements, which Orbax refuses.
        MissingExtraError: Orbax is not installed: `pip install graphc[orbax]`.
        StateError: the session is closed or has lost its state.

    Examples:
        >>> import tempfile
        >>> w = gc.variable([1.0, 2.0], name="layer/w")
        >>> session = gc.Session(graph)
        >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
        ...     gc.train.save_orbax(session, f"{folder}/checkpoint")
        ...     print(gc.train.restore_orbax(session, f"{folder}/checkpoint"))
        took 1 of 1 variables
    """
    check_session(session, "save_orbax")
    orbax = _orbax()
    values = session.values([*session.graph.variables, *hidden_types()])
    empty = [name for name, value in values.items() if not value.size]
    if empty:
        raise CheckpointError.here(
            f"save_orbax: Orbax cannot store {empty[0]!r}, which has no elements",
            hint="gc.save(session, path) stores it",
        )
    with closing(orbax.PyTreeCheckpointer()) as checkpointer:
        try:
            checkpointer.save(os.path.abspath(path), values, force=True)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"save_orbax: cannot write {str(path)!r}", details=[_first_line(error)]
            ) from error


@explained
def restore_orbax(
    session: Session,
    path: str | os.PathLike[str],
    *,
    include: Patterns = None,
    exclude: Patterns = None,
    rename: Renaming = None,
    strict: bool = True,
) -> RestoreReport:
    """Gives variables of a session the values of an Orbax checkpoint, by name.

    The checkpoint may be that of another program, such as a flax model: the name of an array is its
    keys with "/" between them. The whole checkpoint is read.

    Args:
        session: the session.
        path: the folder of the checkpoint.
        include, exclude, rename, strict: as for `gc.train.restore`.

    Returns:
        What was taken, what was missing, and what the checkpoint has besides.

    Raises:
        CheckpointError: there is no Orbax checkpoint at `path`, or it does not fit; nothing was
            set.
        AttributeValueError: a pattern is of another type, or matches nothing.
        MissingExtraError: Orbax is not installed: `pip install graphc[orbax]`.
        StateError: the session is closed or has lost its state.

    Examples:
        >>> import orbax.checkpoint  # doctest: +SKIP
        >>> kernel = gc.variable(np.zeros((3, 2)), name="dense/kernel")
        >>> gc.train.restore_orbax(  # doctest: +SKIP
        ...     gc.Session(graph), "flax_model", rename={"params/Dense_0/*": "dense/*"}
        ... )
    """
    check_session(session, "restore_orbax")
    folder = checked_path(path, "restore_orbax")
    saved = _Saved(folder, _read(folder))
    return restored(session, saved, Choice(include, exclude, rename, strict))


def _orbax() -> Any:
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise MissingExtraError(
            "Orbax checkpoints need the package orbax-checkpoint",
            hint="pip install 'graphc[orbax]'",
        ) from error
    return orbax.checkpoint


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


class _Stored(NamedTuple):
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class _Saved:
    """The arrays of a checkpoint, as `Selection` and `put` read one of ours."""

    def __init__(self, folder: Path, arrays: Mapping[str, Array]) -> None:
        self.folder, self._arrays = folder, arrays
        self.variables = {
            name: _Stored(name, array.dtype, array.shape)
            for name, array in arrays.items()
            if name not in hidden_types()
        }

    def values(self, names: list[str]) -> dict[str, Array]:
        return {name: self._arrays[name] for name in names}

    def hidden(self) -> dict[str, Array]:
        return {
            name: self._arrays[name]
            for name, type in hidden_types().items()
            if name in self._arrays
            and (self._arrays[name].dtype, self._arrays[name].shape) == (type.dtype, type.shape)
        }


def _read(path: Path) -> dict[str, Array]:
    """All arrays of a checkpoint, on the host."""
    orbax = _orbax()
    if not path.is_dir():
        raise CheckpointError.here(f"restore_orbax: the folder {str(path)!r} does not exist")
    try:
        with closing(orbax.PyTreeCheckpointer()) as checkpointer:
            found = checkpointer.metadata(path.absolute())
            tree = getattr(found.item_metadata, "tree", found.item_metadata)
            as_arrays = jax.tree.map(lambda _: orbax.RestoreArgs(restore_type=np.ndarray), tree)
            restored = checkpointer.restore(path.absolute(), restore_args=as_arrays)
    except Exception as error:  # Orbax and its store raise errors of many kinds
        raise CheckpointError.here(
            f"restore_orbax: {str(path)!r} is not an Orbax checkpoint, or is damaged",
            details=[_first_line(error)],
        ) from error
    leaves, _ = jax.tree.flatten_with_path(restored)
    return {"/".join(map(_key, keys)): np.asarray(leaf) for keys, leaf in leaves}


def _key(key: Any) -> str:
    """What stands in one step of the path to a leaf."""
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))
