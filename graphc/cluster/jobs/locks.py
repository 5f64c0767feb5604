"""Files that a process locks as long as it lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_locked(path: Path, kind: int = fcntl.LOCK_EX) -> bool:
    """Whether a process has a lock on a file that excludes a lock of this kind. False if there is
    no file."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
