"""The processes of tasks, as actors of Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphc.cluster.on_ray import answers, ray
from graphc.cluster.remote_tasks.station import Station


class RayStation(Station):
    """A station whose results are those of Ray's calls."""

    def call(self, step: int, number: int, *received: Any) -> Any:
        """See `Station.run`. Ray takes one result by itself, and several as a tuple."""
        results = self.run(step, number, *received)
        return tuple(results) if len(results) > 1 else results[0] if results else None


class Actors:
    """One actor for each task. An actor whose process ends is not started again, because its
    variables are lost.

    Args:
        tasks: their names.
        options: of `ray.remote`, for each task.
    """

    def __init__(self, tasks: Sequence[str], options: Sequence[Mapping[str, Any]]) -> None:
        self._ray = ray("RemoteTasks")
        if not self._ray.is_initialized():
            self._ray.init(num_cpus=len(tasks), include_dashboard=False, log_to_driver=False)
        actor = self._ray.remote(RayStation)
        self._actors = {
            task: actor.options(**own).remote() for task, own in zip(tasks, options, strict=True)
        }

    def ask(self, task: str, method: str, *arguments: Any) -> Any:
        """A reference to the answer of a task."""
        return getattr(self._actors[task], method).remote(*arguments)

    def run(
        self, task: str, results: int, step: int, number: int, received: Sequence[Any]
    ) -> list[Any]:
        """References to the results of a call, and to its end."""
        call = self._actors[task].call
        refs = call.options(num_returns=max(results, 1)).remote(step, number, *received)
        return refs if isinstance(refs, list) else [refs]

    def put(self, value: Any) -> Any:
        """A reference to a value, which is sent once to each machine."""
        return self._ray.put(value)

    def get(self, refs: Any) -> Any:
        """The values of references.

        Raises:
            GraphcError: a call raised it.
            ClusterError: a process has ended.
        """
        return answers(self._ray, refs, "a task of RemoteTasks")

    def close(self) -> None:
        """Ends the processes."""
        for actor in self._actors.values():
            self._ray.kill(actor)
