"""Does in this process what Ray's actors do, so that most code can be tested without Ray."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from threading import Lock
from typing import Any

from graphc.cluster.parameter_servers.shard import Shard
from graphc.cluster.parameter_servers.worker import Worker


class LocalActors:
    """Replaces `Actors`. `restart` does what happens when a server is killed."""

    def __init__(
        self, workers, shards, worker_options, server_options, folder, options, checkpoint_every
    ) -> None:
        assert threading.current_thread() is threading.main_thread()  # Ray's end with their thread
        self._arguments = [
            (os.path.join(folder, f"server-{i}"), options, checkpoint_every) for i in range(shards)
        ]
        self.shards = [Shard(*arguments) for arguments in self._arguments]
        self.workers = {i: Worker(self) for i in range(workers)}
        self._lock = Lock()  # an actor answers one call at a time
        self.closed = False
        self.rows = 0  # the number of looked-up rows
        self.pushed = 0  # the number of pushed bytes

    def have(self, count: int) -> None:
        self.workers = {i: self.workers.get(i) or Worker(self) for i in range(count)}

    def start(self, number: int) -> None:
        self.workers[number] = Worker(self)

    def end(self, number: int) -> None:
        del self.workers[number]

    def restart(self, number: int) -> None:
        with self._lock:
            self.shards[number].close()
            self.shards[number] = Shard(*self._arguments[number])

    def get(self, value: Any) -> Any:
        return value

    def put(self, value: Any) -> Any:
        return value

    def begin(self, run: int, values: Sequence[dict]) -> None:
        for shard, held in zip(self.shards, values, strict=True):
            shard.begin(run, held)

    def pull(self, asked: Any) -> list[list[Any]]:
        with self._lock:
            return [[a.copy() for a in self.shards[i].pull(names)] for i, names in asked]

    def look_up(self, asked: Any) -> list[Any]:
        with self._lock:
            found = [self.shards[i].look_up(lookup, indices) for i, lookup, indices in asked]
        self.rows += sum(map(len, found))
        return found

    def compute(self, worker: int, task: Any, feeds: Sequence[Any]) -> list[Any]:
        return self.workers[worker].compute(task, feeds)

    def push(self, worker: int, number: int, sent: Any, values: Any) -> list[Any]:
        self.pushed += sum(array.nbytes for arrays in values for array in arrays)
        with self._lock:
            rows = zip(self.shards, sent, values, strict=True)
            return [shard.push(worker, number, half, value) for shard, half, value in rows]

    def counts(self) -> list[dict[str, int]]:
        return [shard.counts() for shard in self.shards]

    def close(self) -> None:
        self.closed = True
        for shard in self.shards:
            shard.close()
