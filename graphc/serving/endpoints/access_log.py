"""The access log: one JSON object a line for each request."""

from __future__ import annotations

import json
import logging
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO, Any

_LOG = logging.getLogger("graphc.serving")


class AccessLog:
    """Appends a line for each request to a file. Thread-safe.

    If the file cannot be written, the server's log says so once, and requests go on.

    Args:
        path: the file, or "-" for standard output.
    """

    def __init__(self, path: str) -> None:
        self._own = path != "-"
        self._file: IO[str] = sys.stdout
        if self._own:
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115
        self._lock = threading.Lock()
        self._failed = False

    def write(self, **fields: Any) -> None:
        """Writes a line: the time, then the fields that are not None."""
        row = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        row |= {key: value for key, value in fields.items() if value is not None}
        with self._lock:
            try:
                self._file.write(json.dumps(row) + "\n")
                self._file.flush()
            except (OSError, ValueError) as error:  # a full disk must not fail requests
                if not self._failed:
                    _LOG.error("the access log cannot be written: %s", error)
                self._failed = True
            else:
                self._failed = False

    def close(self) -> None:
        """Closes the file."""
        if self._own:
            with suppress(OSError):
                self._file.close()
