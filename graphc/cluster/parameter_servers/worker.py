"""`Worker`: what the process of one worker does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphc.cluster.parameter_servers.halves import Halves, Sent

Array: TypeAlias = np.ndarray[Any, Any]
Pull: TypeAlias = Callable[[Sequence[tuple[int, Sequence[str]]]], list[list[Array]]]
"""Gets variables: for each (server, names), their values."""


@dataclass(frozen=True)
class Task:
    """How a worker computes its half of a step.

    Attributes:
        sent: the half. Its feeds are those of the step, then the variables.
        variables: the variables in the order of the half's feeds.
        asked: (server, the variables that it holds), for all variables.
        own: how many of the half's results are fetched values; the others are sent to servers.
        taken: for each server, the numbers of the sent values that it takes.
    """

    sent: Sent
    variables: tuple[str, ...]
    asked: tuple[tuple[int, tuple[str, ...]], ...]
    own: int
    taken: tuple[tuple[int, ...], ...]


class Worker:
    """Computes gradients for variables that it gets from the servers. It holds no state, so any
    other process can repeat what it did.

    Args:
        pull: gets variables.
    """

    def __init__(self, pull: Pull) -> None:
        self._pull = pull
        self._halves = Halves()

    def compute(self, task: Task, feeds: Sequence[Array]) -> list[list[Array]]:
        """The fetched values, and for each server the values to send to it.

        Raises:
            NumericsError, ExecutionError: the run failed.
        """
        values: dict[str, Array] = {}
        for (_, names), got in zip(task.asked, self._pull(task.asked), strict=True):
            values.update(zip(names, got, strict=True))
        state = [values[name] for name in task.variables]
        results = self._halves.get(task.sent)([*feeds, *state], {})
        own, sent = results[: task.own], results[task.own :]
        return [own, *([sent[i] for i in taken] for taken in task.taken)]

    def process(self) -> int:
        """The number of the process."""
        return os.getpid()
