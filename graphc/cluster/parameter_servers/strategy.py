"""`ParameterServers`: asynchronous training with processes that hold the variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphc.cluster.on_ray import ray
from graphc.cluster.parameter_servers.pool import Pool
from graphc.config import CompileOptions
from graphc.devices.asynchronous import check_staleness
from graphc.devices.remote_workers import RemoteWorkers
from graphc.errors import AttributeValueError
from graphc.ir.graph import Graph
from graphc.runtime.state.live_state import LiveState


@dataclass(frozen=True)
class ParameterServers(RemoteWorkers):
    """Workers and parameter servers as processes of Ray, on one machine or many (extra `ray`).

    The interface is that of `gc.devices.AsyncDataParallel`: `Session.run_workers` gives batches to
    workers. A worker gets the variables from the servers, computes its gradients, and sends them to
    the servers, which apply them; `staleness` limits how many updates of others it may miss.
    Updates are applied one at a time, each exactly once. A worker that reads while an update is
    applied may get some variables from before it and others from after it, unless `staleness` is 0.

    A process that ends is started again. A server writes each update to a log before it applies it,
    and continues with the same bits; a worker has no state. The session gets the values of the
    variables at the end of each call.

    Sources: Li et al., Scaling distributed machine learning with the parameter server, OSDI 2014;
    Moritz et al., Ray, OSDI 2018.

    Args:
        workers: the number of workers.
        staleness: see `gc.devices.AsyncDataParallel`.
        shards: the number of servers. A variable and its slots are on one server; the largest are
            assigned first.
        checkpoint_every: the number of updates after which a server writes a checkpoint and begins
            a new log.
        folder: a folder for the files of the servers. On several machines it must be one that all
            of them see. None: a temporary folder.
        worker_options, server_options: of Ray's actors, such as {"num_gpus": 1} or
            {"num_cpus": 4, "resources": {"big": 1}}.

    Raises:
        AttributeValueError: an argument has an invalid value.
        MissingExtraError: a session is opened, and Ray is not installed.

    Examples:
        >>> strategy = gc.cluster.ParameterServers(4, staleness=3, shards=2)
        >>> strategy.shards
        2
    """

    workers: int
    staleness: int | None = None
    shards: int = 1
    checkpoint_every: int = 1000
    folder: str | None = None
    worker_options: Mapping[str, object] = field(default_factory=dict)
    server_options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("workers", "shards", "checkpoint_every"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise AttributeValueError.here(
                    f"ParameterServers: {name} must be an int of 1 or more, got {value!r}",
                    hint="gc.cluster.ParameterServers(4, staleness=3, shards=2)",
                )
        check_staleness("ParameterServers", self.staleness)

    def resolve(self) -> None:
        """Checks that Ray is installed.

        Raises:
            MissingExtraError: it is not.
        """
        ray("ParameterServers")

    def open(self, graph: Graph, options: CompileOptions, state: LiveState) -> Pool:
        """The workers of a session; see `RemoteWorkers.open`."""
        return Pool(self, graph, options, state)
