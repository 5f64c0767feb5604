"""`LastErrors`: the requests that failed last, for the status page."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

_MOST = 50
_LONGEST_NAME = 120  # characters
_LONGEST_MESSAGE = 500


@dataclass
class RequestError:
    """Requests that failed for the same reason.

    Attributes:
        time: of the last one, in seconds since 1970.
        count: how many there were.
    """

    model: str
    version: int | None
    protocol: str
    method: str
    code: str
    message: str
    time: float = 0.0
    count: int = 0


class LastErrors:
    """The reasons for which requests failed last. Thread-safe.

    Args:
        most: how many different reasons are kept.

    Examples:
        >>> from graphc.serving.endpoints.last_errors import LastErrors
        >>> errors = LastErrors()
        >>> for _ in range(2):
        ...     errors.add("digits", 3, "REST", "Predict", "INTERNAL", "out of memory")
        >>> [(error.message, error.count) for error in errors.rows()]
        [('out of memory', 2)]
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._errors: OrderedDict[tuple[object, ...], RequestError] = OrderedDict()
        self._lock = threading.Lock()

    def add(
        self, model: str, version: int | None, protocol: str, method: str, code: str, message: str
    ) -> None:
        """Adds a request. Long texts are cut: a client may have written them."""
        found = RequestError(
            model[:_LONGEST_NAME], version, protocol, method, code, message[:_LONGEST_MESSAGE]
        )
        key = (found.model, version, protocol, method, code, found.message)
        with self._lock:
            error = self._errors.setdefault(key, found)
            error.time, error.count = time.time(), error.count + 1
            self._errors.move_to_end(key)
            if len(self._errors) > self._most:
                self._errors.popitem(last=False)

    def rows(self) -> list[RequestError]:
        """The reasons, the last one first."""
        with self._lock:
            return list(reversed(self._errors.values()))
