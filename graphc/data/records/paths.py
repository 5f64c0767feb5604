"""The files that a source reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from graphc.errors import DataError, nearest

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def existing_files(name: str, paths: Paths) -> list[str]:
    """The paths of files that exist.

    Raises:
        DataError: one does not, or it is no regular file.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found = [os.fspath(path) for path in given]
    if not found:
        raise DataError.here(f"{name}: no files", hint="pass at least one path")
    for path in found:
        if not os.path.isfile(path):
            there = "no regular file" if os.path.exists(path) else "no file"
            folder, last = os.path.split(path)
            names = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
            raise DataError.here(
                f"{name}: there is {there} {path}",
                hint=nearest(last, names) if 0 < len(names) <= 1000 else None,
            )
    return found
