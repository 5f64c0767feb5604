"""The user's files, and the files that reports are written to."""

from __future__ import annotations

import errno
import linecache
import os
import tempfile
from pathlib import Path

from graphc.errors import AttributeValueError, GraphcError
from graphc.ir.source import current_source


def lines_of(file: str) -> list[str]:
    """The lines of a file of the user's program; none if it cannot be read."""
    return linecache.getlines(file)


def write_report(path: str | Path, text: str) -> None:
    """Writes a report at once: the file is the old one or the whole new one.

    Raises:
        AttributeValueError: `path` is no path.
        GraphcError: the file cannot be written.
    """
    if not isinstance(path, str | os.PathLike):
        raise AttributeValueError(
            f"path must be a string or a pathlib.Path, got {type(path).__name__}",
            source=current_source(),
        )
    try:
        path = _to_replace(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except (OSError, ValueError) as error:  # a ValueError, if the name has a null character
        reason = getattr(error, "strerror", None) or error
        raise GraphcError(
            f"cannot write {os.fspath(path)!r}: {reason}",
            source=current_source(),
            hint="give a file in a folder that exists and can be written",
        ) from error


def _to_replace(path: str | os.PathLike[str]) -> Path:
    """The file at the end of links, so that a link stays a link.

    Raises:
        OSError: a folder, or a device or a pipe, is there: a new file must not take its place.
    """
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path


def _umask() -> int:
    """The mask of the process, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
