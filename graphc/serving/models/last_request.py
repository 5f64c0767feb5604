"""`LastRequest`: the last numbered request of a session. If it is repeated, it is not run again."""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import Future
from typing import Any

import numpy as np

from graphc.web.failures import Failure

Run = Future[dict[str, np.ndarray[Any, Any]]]


class LastRequest:
    """The last request of a session that had a number, and its run. No earlier one is kept.

    A browser or a proxy repeats a request whose connection was lost, and the server may have run
    it. Clients give each request of a session a higher number than the one before. Numbers may be
    left out: a client does not know whether a request arrived on which it has given up.

    Only the request that uses the session may call the methods.

    Attributes:
        number: 0 before the first request with a number.
    """

    def __init__(self) -> None:
        self.number = 0
        self._content: Hashable = None
        self._run: Run | None = None

    def run_of(self, number: int, content: Hashable) -> Run | None:
        """The run of a request that arrived before. It may be in progress.

        Args:
            number: 0 if the request has none.
            content: what equal requests have in common.

        Returns:
            None if the request is to be run: it is a new one, or its run failed, which left the
            state as it was.

        Raises:
            Failure: ABORTED: the number is lower than the last one, or was that of another request.
        """
        if number == 0 or number > self.number:
            return None
        if number < self.number:
            raise Failure(
                "ABORTED",
                f"number: expected {self.number + 1} or higher for a new request, or "
                f"{self.number} to repeat the last one, got {number}. Send the requests of a "
                "session one after the other, each with a higher number",
            )
        run = self._run
        if run is None or (run.done() and (run.cancelled() or run.exception() is not None)):
            return None
        if content != self._content:
            raise Failure(
                "ABORTED",
                f"number: expected {number + 1} or higher, got {number}, which was the number of "
                "another request of this session. Give each new request a higher number",
            )
        return run

    def begin(self, number: int, content: Hashable, run: Run) -> None:
        """Keeps the run of a new request, if it has a number."""
        if number:
            self.number, self._content, self._run = number, content, run

    def keep(self, number: int, outputs: dict[str, np.ndarray[Any, Any]]) -> None:
        """Keeps only these outputs of the run."""
        if number:
            self._run = Future()
            self._run.set_result(outputs)
