"""`RemoteTasks`: one program whose nodes are on the tasks of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphc.cluster.on_ray import ray
from graphc.cluster.remote_tasks.runner import Runner
from graphc.config import CompileOptions
from graphc.devices.remote_session import RemoteSession
from graphc.errors import AttributeValueError
from graphc.ir.graph import Graph
from graphc.runtime.state.live_state import LiveState


@dataclass(frozen=True)
class RemoteTasks(RemoteSession):
    """Runs one graph on several processes of Ray, on one machine or many (extra `ray`).

    Nodes and variables run where `gc.device("/job:worker/task:1")` says, and what says nothing runs
    on the first task. The classic system calls this in-graph replication: a single client builds
    the graph, with a copy of the model for each worker. Variables stay on their tasks between
    steps. Values go from task to task through Ray's object store. A session gets the variables
    when they are read (`get`, `values`, checkpoints).

    If a process ends, its variables are lost, and the session raises `StateError`. Open another
    one, and restore a checkpoint.

    Sources: Abadi et al., TensorFlow: a system for large-scale machine learning, OSDI 2016, section
    4.4; Moritz et al., Ray, OSDI 2018.

    Args:
        jobs: the number of tasks of each job.
        options: of Ray's actors for the tasks of a job, such as {"worker": {"num_gpus": 1}}.

    Raises:
        AttributeValueError: an argument has an invalid value.
        MissingExtraError: a session is opened, and Ray is not installed.

    Examples:
        >>> strategy = gc.cluster.RemoteTasks({"worker": 2, "ps": 1})
        >>> strategy.names()
        ['/job:worker/task:0', '/job:worker/task:1', '/job:ps/task:0']
    """

    jobs: Mapping[str, int] = field(hash=False)
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        jobs: object = self.jobs
        sizes = list(jobs.items()) if isinstance(jobs, Mapping) else []
        if not sizes or not all(_is_name(name) and _is_count(count) for name, count in sizes):
            _refuse(f"jobs must be numbers of tasks by name, got {jobs!r}")
        options: object = self.options
        each = options.values() if isinstance(options, Mapping) else [None]
        if not all(isinstance(own, Mapping) for own in each):
            _refuse(f"options must be mappings by the name of the job, got {options!r}")
        unknown = [name for name in self.options if name not in self.jobs]
        if unknown:
            _refuse(f"options are for {unknown[0]!r}, which is none of the jobs")

    def names(self) -> list[str]:
        """The tasks, in order."""
        return [f"/job:{job}/task:{i}" for job, count in self.jobs.items() for i in range(count)]

    def resolve(self) -> None:
        """Checks that Ray is installed.

        Raises:
            MissingExtraError: it is not.
        """
        ray("RemoteTasks")

    def open(
        self, graph: Graph, options: CompileOptions, state: LiveState, soft: bool, log: bool
    ) -> Runner:
        """The runner of a session; see `RemoteSession.open`."""
        return Runner(self, graph, options, state, soft, log)


def _is_name(name: object) -> bool:
    return type(name) is str and name.isidentifier()


def _is_count(count: object) -> bool:
    return type(count) is int and count >= 1


def _refuse(what: str) -> None:
    raise AttributeValueError.here(
        f"RemoteTasks: {what}",
        hint='gc.cluster.RemoteTasks({"worker": 2, "ps": 1}, {"worker": {"num_gpus": 1}})',
    )
