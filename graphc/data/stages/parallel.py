"""A function that workers call for each item, and its results in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphc.data.core.cursor import Cursor, Following, Items, Mark, Marked, State
from graphc.data.workers.pool import Pool, Task, Worker
from graphc.data.workers.processes import ChildProcess, pickled
from graphc.errors import DataError
from graphc.ir.source import Source
from graphc.runtime.core.background import own_settings


@dataclass(frozen=True)
class Workers:
    """Who calls a function.

    Attributes:
        count: how many; 0: the thread that reads the stage.
        processes: processes instead of threads.
    """

    count: int
    processes: bool


class Told(NamedTuple):
    """What is added to errors of the user's functions.

    Attributes:
        stage: the stage with its function.
        made_at: the user's line of the stage.
    """

    stage: str
    made_at: Source | None

    def add_to(self, error: BaseException, number: int, origin: str) -> None:
        """Adds a note with the stage and the item."""
        where = f" at {self.made_at}: {self.made_at.code}" if self.made_at else ""
        item = f"item {number}" + (f": {origin}" if origin else "")
        error.add_note(f"in {self.stage} of a pipeline{where}\n  {item}")

    def no_stop(self, error: StopIteration, number: int, origin: str) -> DataError:
        """The error for a StopIteration of the user's, which would end the iteration in silence."""
        return DataError(
            f"{self.stage}: the function raised StopIteration",
            details=[f"item {number}" + (f": {origin}" if origin else "")],
            source=self.made_at,
            hint="end a pipeline with take() or a filter",
        )


def name_of(function: object) -> str:
    """A short name of a function."""
    return str(getattr(function, "__name__", type(function).__name__))


class _Thread:
    """A worker that calls the function itself."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def call(self, work: Any) -> Any:
        return self._call(*work)

    def stop(self) -> None:
        pass

    def end(self) -> None:
        pass


def make_pool(call: Callable[..., Any], workers: Workers, told: Told) -> Pool:
    """Threads that call a function, or that each have a process which calls it."""
    if not workers.processes:
        return Pool(lambda: _Thread(call), workers.count, own_settings())
    body = pickled(told.stage, call, told.made_at)

    def make() -> Worker:
        return ChildProcess(told.stage, body, told.made_at)

    return Pool(make, workers.count, {})


class _Pending(NamedTuple):
    task: Task | None
    error: Exception | None  # of reading the item
    after: Mark | None  # the position after the item
    origin: str


class Parallel(Following):
    """The results of a function that a pool calls, in the order of the items.

    Args:
        ahead: how many items to read before the first of them is returned.
    """

    def __init__(self, upstream: Cursor, pool: Pool, epoch: int, ahead: int, told: Told) -> None:
        super().__init__(upstream)
        self._source = Marked(upstream)
        self._pool, self._epoch, self._ahead, self._told = pool, epoch, ahead, told
        self._pending: deque[_Pending] = deque()
        self._sent = 0
        self._number = 0
        self._after = self._source.mark()
        self._ended = False
        self._origin = ""

    @property
    def weight(self) -> int:  # type: ignore[override]
        """Its state is at hand."""
        return 1

    def _fill(self) -> None:
        while len(self._pending) < self._ahead and not self._ended:
            try:
                items = self._source.read(1)
            except Exception as error:  # raised after the items before it
                self._pending.append(_Pending(None, error, None, ""))
                self._ended = True
                return
            if not len(items):
                self._ended = True
                return
            task = self._pool.submit((items[0], self._epoch, self._sent))
            origin = self.upstream.origin()
            self._pending.append(_Pending(task, None, self._source.mark(), origin))
            self._sent += 1

    def read(self, n: int) -> Items:
        """The next results."""
        found: list[Any] = []
        while len(found) < n:
            self._fill()
            if not self._pending:
                break
            found.append(self._first(self._pending[0]))
            self._pending.popleft()
            self._number += 1
        return found

    def _first(self, pending: _Pending) -> Any:
        self._origin = pending.origin
        if pending.task is None or pending.after is None:
            raise pending.error or StopIteration
        try:
            value = self._pool.result(pending.task)
        except StopIteration as error:
            raise self._told.no_stop(error, self._number, pending.origin) from error
        except Exception as error:
            self._told.add_to(error, self._number, pending.origin)
            raise
        self._after = pending.after
        return value

    def skip(self, n: int) -> int:
        """Without calls, if no item has been read ahead."""
        if self._pending or self._ended:
            return super().skip(n)
        done = self._source.skip(n)
        self._sent = self._number = self._number + done
        self._after = self._source.mark()
        return done

    def state(self) -> State:
        """As that of a map without workers."""
        return {"number": self._number, "upstream": self._after.plus(0)}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        """Restores the cursor before it."""
        self._sent = self._number = tree["number"]
        self._source.restore(tree["upstream"])
        self._after = self._source.mark()

    def origin(self) -> str:
        """That of the last result."""
        return self._origin

    def close(self) -> None:
        """Drops what has been read ahead."""
        for pending in self._pending:
            if pending.task is not None:
                pending.task.unwanted = True
        self._pending.clear()
        self.upstream.close()
