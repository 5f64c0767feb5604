"""`Worker`: what the process of one worker does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from graphc.cluster.parameter_servers.rows import Lookup
from graphc.cluster.remote_programs import RemotePrograms, Sent
from graphc.ir.dtypes import Array


class Servers(Protocol):
    """The servers, as a worker sees them."""

    def pull(self, asked: Sequence[tuple[int, Sequence[str]]]) -> list[list[Array]]:
        """For each (server, names), the values of these variables."""

    def look_up(self, asked: Sequence[tuple[int, Lookup, Array]]) -> list[Array]:
        """For each (server, lookup, indices), the rows."""


@dataclass(frozen=True)
class Task:
    """How a worker computes its half of a step.

    Attributes:
        sent: the half. Its feeds are those of the step, then the rows, then the variables.
        variables: the variables in the order of the half's feeds.
        asked: (server, the variables that it holds), for all variables.
        indices: computes the indices of the lookups from the feeds of the step; None without any.
        lookups: (server, lookup), in the order of the half's feeds.
        own: how many of the half's results are fetched values; the others are sent to servers.
        taken: for each server, the numbers of the sent values that it takes.
    """

    sent: Sent
    variables: tuple[str, ...]
    asked: tuple[tuple[int, tuple[str, ...]], ...]
    indices: Sent | None
    lookups: tuple[tuple[int, Lookup], ...]
    own: int
    taken: tuple[tuple[int, ...], ...]


class Worker:
    """Computes gradients for variables that it gets from the servers. It holds no state, so any
    other process can repeat what it did.

    Args:
        servers: give variables and rows.
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._halves = RemotePrograms()

    def compute(self, task: Task, feeds: Sequence[Array]) -> list[list[Array]]:
        """The fetched values, and for each server the values to send to it.

        Raises:
            NumericsError, ExecutionError: the run failed.
        """
        rows: list[Array] = []
        if task.indices is not None:
            indices = self._halves.get(task.indices)(feeds, {})
            pairs = zip(task.lookups, indices, strict=True)
            rows = self._servers.look_up([(*lookup, places) for lookup, places in pairs])
        values: dict[str, Array] = {}
        for (_, names), got in zip(task.asked, self._servers.pull(task.asked), strict=True):
            values.update(zip(names, got, strict=True))
        state = [values[name] for name in task.variables]
        results = self._halves.get(task.sent)([*feeds, *rows, *state], {})
        own, sent = results[: task.own], results[task.own :]
        return [own, *([sent[i] for i in taken] for taken in task.taken)]

    def process(self) -> int:
        """The number of the process."""
        return os.getpid()
