"""`RemoteWorkers`: the base of strategies whose workers are other processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class RemoteWorkers(ABC):
    """A strategy for `Session.run_workers` whose workers are not threads of this process.

    A session asks it for its workers. Its own runs use one device, as without a strategy. So the
    packages that start processes are imported by the strategy, and not by sessions.
    """

    @abstractmethod
    def resolve(self) -> Any:
        """Checks that the strategy can be followed here.

        Raises:
            GraphcError: it cannot.
        """

    @abstractmethod
    def open(self, graph: Any, options: Any, state: Any) -> Any:
        """The workers of a session, with the methods of `runtime.workers.Workers` that a session
        calls: `run` and `close`.

        Args:
            graph: the `Graph` of the session.
            options: its `CompileOptions`.
            state: its `LiveState`.
        """
