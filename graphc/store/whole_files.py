"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file next to `path`, which takes its place when the context ends. Readers see either
    the old or the new file. If the context fails, the new file is removed.

    Raises:
        OSError: the folder does not exist or cannot be written, or the disk is full.
    """
    target = Path(path)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(aside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
