"""Does in this process what Ray's actors do, so that most code can be tested without Ray. As with
Ray, calls return references, and reading a reference raises the errors of its call."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.cluster.remote_tasks.station import Station
from graphc.errors import ClusterError, GraphcError

ENDED = ClusterError("a task of RemoteTasks has failed: it was killed")


class LocalTasks:
    """Replaces `Actors`. `ended` is a task whose process has ended."""

    made: LocalTasks

    def __init__(self, tasks: Sequence[str], options: Sequence[Mapping[str, Any]]) -> None:
        self.stations = {task: Station() for task in tasks}
        self.ran: dict[str, int] = dict.fromkeys(tasks, 0)
        self.sent = 0  # bytes of values that calls returned
        self.ended = ""
        self.closed = False
        LocalTasks.made = self

    def ask(self, task: str, method: str, *arguments: Any) -> Any:
        if task == self.ended:
            return ENDED
        arguments = pickle.loads(pickle.dumps(arguments))
        return getattr(self.stations[task], method)(*arguments)

    def run(
        self, task: str, results: int, step: int, number: int, received: Sequence[Any]
    ) -> list[Any]:
        self.ran[task] += 1
        failed = [value for value in received if isinstance(value, GraphcError)]
        try:
            if task == self.ended:
                raise ENDED
            if failed:
                raise failed[0]
            assert all(type(value) is np.ndarray for value in received)
            found = self.stations[task].run(step, number, *received)
        except GraphcError as error:
            return [error] * max(results, 1)
        assert len(found) == results
        self.sent += sum(value.nbytes for value in found)
        return found or [None]

    def put(self, value: Any) -> Any:
        return value

    def get(self, refs: Any) -> Any:
        for value in refs:
            if isinstance(value, GraphcError):
                raise value
        return refs

    def close(self) -> None:
        self.closed = True
