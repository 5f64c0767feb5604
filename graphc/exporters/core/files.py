"""Files that appear complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable

from graphc.errors import ModelExportError
from graphc.ir.source import current_source
from graphc.store.whole_files import replacing


def write(path: str | os.PathLike[str], data: bytes | Iterable[bytes | memoryview]) -> None:
    """Writes a file next to `path`, then renames it. Readers see either the old or the new file.

    Args:
        data: the bytes, or pieces of them, each of which is taken when those before it are written.

    Raises:
        ModelExportError: the folder does not exist or cannot be written, or the disk is full.
    """
    try:
        with replacing(path) as file:
            for piece in [data] if isinstance(data, bytes) else data:
                file.write(piece)
    except (OSError, ValueError, TypeError) as error:  # ValueError: the name has a null character
        raise ModelExportError(
            f"cannot write {path!r}: {getattr(error, 'strerror', None) or error}",
            source=current_source(),
            hint="give the path of a file in a folder that exists and can be written",
        ) from error
