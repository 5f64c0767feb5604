"""The processes of parameter servers and workers, as actors of Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.cluster.on_ray import answers, ray
from graphc.cluster.parameter_servers.rows import Lookup
from graphc.cluster.parameter_servers.shard import Shard
from graphc.cluster.parameter_servers.worker import Task, Worker
from graphc.config import CompileOptions


class RayWorker:
    """A worker whose servers are actors."""

    def __init__(self, *shards: Any) -> None:
        self._shards = shards
        self._worker = Worker(self)

    def pull(self, asked: Sequence[tuple[int, Sequence[str]]]) -> list[list[Any]]:
        """See `Servers`."""
        refs = [self._shards[shard].pull.remote(names) for shard, names in asked]
        found: list[list[Any]] = ray("ParameterServers").get(refs)
        return found

    def look_up(self, asked: Sequence[tuple[int, Lookup, Any]]) -> list[Any]:
        """See `Servers`."""
        refs = [self._shards[shard].look_up.remote(each, places) for shard, each, places in asked]
        found: list[Any] = ray("ParameterServers").get(refs)
        return found

    def compute(self, task: Task, feeds: Sequence[Any]) -> Any:
        """See `Worker.compute`."""
        return tuple(self._worker.compute(task, feeds))

    def process(self) -> int:
        """The number of the process."""
        return self._worker.process()


class Actors:
    """The actors of one session.

    Ray starts an actor again whose process ends, and repeats the calls that it did not answer.

    Args:
        worker_options, server_options: of `ray.remote`, such as {"num_gpus": 1}.
        folder: for the journals of the servers.
    """

    def __init__(
        self,
        workers: int,
        shards: int,
        worker_options: Mapping[str, Any],
        server_options: Mapping[str, Any],
        folder: str,
        options: CompileOptions,
        checkpoint_every: int,
    ) -> None:
        package = ray("ParameterServers")
        if not package.is_initialized():
            package.init(num_cpus=workers + shards, include_dashboard=False, log_to_driver=False)
        again = {"max_restarts": -1, "max_task_retries": -1}
        server = package.remote(Shard).options(**{**again, **server_options})
        self._worker = package.remote(RayWorker).options(**{**again, **worker_options})
        self._ray = package
        self.shards = [
            server.remote(f"{folder}/server-{i}", options, checkpoint_every) for i in range(shards)
        ]
        self.workers: dict[int, Any] = {}
        self.have(workers)

    def have(self, count: int) -> None:
        """Numbers the workers from 0, and starts or ends some, so that there are `count`."""
        kept = list(self.workers.values())
        for actor in kept[count:]:
            self._ray.kill(actor)
        self.workers = dict(enumerate(kept[:count]))
        for number in range(len(self.workers), count):
            self.start(number)

    def start(self, number: int) -> None:
        """Starts the process of a worker."""
        self.workers[number] = self._worker.remote(*self.shards)

    def end(self, number: int) -> None:
        """Ends the process of a worker."""
        self._ray.kill(self.workers.pop(number))

    def get(self, refs: Any) -> Any:
        """The values of calls.

        Raises:
            GraphcError: the call raised it.
            ClusterError: an actor cannot be started again.
        """
        return answers(self._ray, refs, "a process of the parameter servers")

    def put(self, value: Any) -> Any:
        """A value that many calls take, sent once to each machine."""
        return self._ray.put(value)

    def begin(self, run: int, values: Sequence[Mapping[str, np.ndarray[Any, Any]]]) -> None:
        """Begins a run with the values of each server."""
        pairs = zip(self.shards, values, strict=True)
        self.get([shard.begin.remote(run, dict(held)) for shard, held in pairs])

    def pull(self, asked: Sequence[tuple[int, Sequence[str]]]) -> list[list[Any]]:
        """For each (server, names), the values of these variables."""
        found: list[list[Any]] = self.get(
            [self.shards[shard].pull.remote(names) for shard, names in asked]
        )
        return found

    def compute(self, worker: int, task: Any, feeds: Sequence[Any]) -> list[Any]:
        """References to the fetched values and to the values for each server. They are computed
        when this returns.

        Raises:
            GraphcError: see `get`.
        """
        count = 1 + len(self.shards)
        method = self.workers[worker].compute.options(num_returns=count)
        refs = method.remote(task, list(feeds))
        refs = refs if isinstance(refs, list) else [refs]
        self.get(refs[0])
        return refs

    def push(
        self, worker: int, number: int, sent: Sequence[Any], values: Sequence[Any]
    ) -> list[list[Any]]:
        """Applies an update on all servers. Returns what each of them computed."""
        rows = zip(self.shards, sent, values, strict=True)
        found: list[list[Any]] = self.get(
            [shard.push.remote(worker, number, half, value) for shard, half, value in rows]
        )
        return found

    def processes(self) -> dict[str, int]:
        """The processes: "server 0", "worker 0" and so on, with their numbers."""
        servers = self.get([shard.counts.remote() for shard in self.shards])
        actors = dict(self.workers)
        workers = self.get([worker.process.remote() for worker in actors.values()])
        return {
            **{f"server {i}": counts["process"] for i, counts in enumerate(servers)},
            **{f"worker {i}": number for i, number in zip(actors, workers, strict=True)},
        }

    def counts(self) -> list[dict[str, int]]:
        """`Shard.counts` of each server."""
        found: list[dict[str, int]] = self.get([shard.counts.remote() for shard in self.shards])
        return found

    def close(self) -> None:
        """Ends the processes."""
        for actor in (*self.workers.values(), *self.shards):
            self._ray.kill(actor)
