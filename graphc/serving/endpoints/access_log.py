"""The access log: one JSON object a line for each request."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import IO, Any

_LOG = logging.getLogger("graphc.serving")


class AccessLog:
    """Appends a line for each request to a file. Thread-safe.

    Requests do not fail if a line cannot be written, because the disk is full for example.

    Args:
        path: the file, or "-" for standard output.

    Attributes:
        lost: how many lines could not be written.
    """

    def __init__(self, path: str) -> None:
        self._own = path != "-"
        self._file: IO[Any] = sys.stdout
        if self._own:  # without a buffer, which would keep lines that cannot be written
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self.lost = 0
        self._lock = threading.Lock()

    def write(self, **fields: Any) -> None:
        """Writes a line: the time, then the fields that are not None."""
        row = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        row |= {key: value for key, value in fields.items() if value is not None}
        line = json.dumps(row) + "\n"
        with self._lock:
            try:
                self._file.write(line.encode() if self._own else line)
                self._file.flush()
            except OSError as error:
                self.lost += 1
                if self.lost == 1:
                    _LOG.error("the access log cannot be written: %s", error)

    def close(self) -> None:
        """Closes the file."""
        if self._own:
            self._file.close()
