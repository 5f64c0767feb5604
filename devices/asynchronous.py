"""`AsyncDataParallel`: workers that do not wait for each other, and a parameter server.

`devices.step_halves` and `runtime.staleness` define its meaning; `runtime.worker_run` executes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax

from graphc.devices.discovery import name_of
from graphc.devices.strategy import check_processes, checked_devices, devices_named
from graphc.errors import AttributeValueError, DeviceError
from graphc.ir.device_spec import parse_device


@dataclass(frozen=True)
class AsyncDataParallel:
    """Workers that each compute on their own batch, and a server that holds the variables.

    A worker reads the variables, computes its gradients, and has the server apply them. It does not
    wait for the other workers, which may have updated the variables in the meantime; `staleness`
    limits the number of such updates. This method is not equivalent to one step with the whole
    batch, and the interleaving differs from run to run; `DataParallel` is exact. Workers run in
    `Session.run_workers`. All other runs of such a session use one device, the server's.

    Sources: Recht et al., Hogwild!, NIPS 2011, arXiv:1106.5730; Dean et al., Large scale
    distributed deep networks, NIPS 2012 (Downpour SGD); Ho et al., More effective distributed ML
    via a stale synchronous parallel parameter server, NIPS 2013; Li et al., Scaling distributed
    machine learning with the parameter server, OSDI 2014.

    Args:
        workers: the number of workers, assigned to this process's devices in turn; if there are
            more workers than devices, they share devices. Or a list with one device for each
            worker: `jax.Device`s, or names, where `/gpu:*` stands for all GPUs. A device that is
            listed twice has two workers.
        server: the device that holds the variables and applies the updates.
        staleness: the maximum number of updates by other workers between a worker's read and its
            own update. With 0, only one worker at a time computes, and the updates are those of
            single runs, in the order of the batches. None sets no bound. With n workers, n - 1
            never delays a read.

    Raises:
        AttributeValueError: an argument has an invalid value.
        DeviceError: a name does not parse.

    Examples:
        >>> strategy = gc.devices.AsyncDataParallel(["/cpu:0", "/cpu:0"], staleness=1)
        >>> strategy.staleness
        1
    """

    workers: int | Sequence[jax.Device | str]
    server: jax.Device | str = "/cpu:0"
    staleness: int | None = None

    def __post_init__(self) -> None:
        workers = checked_devices(self.workers, "AsyncDataParallel", "worker")
        object.__setattr__(self, "workers", workers)
        if isinstance(self.server, str):
            parse_device(self.server)
        elif not isinstance(self.server, jax.Device):
            raise AttributeValueError.here(
                f"AsyncDataParallel: server must be a device, got {self.server!r}",
                hint='name one: server="/cpu:0"',
            )
        check_staleness("AsyncDataParallel", self.staleness)

    def resolve(self) -> tuple[jax.Device, ...]:
        """The workers' devices, one for each worker.

        Raises:
            DeviceError: a device does not exist, or belongs to another process.
        """
        if isinstance(self.workers, int):
            here = jax.local_devices()
            return tuple(here[i % len(here)] for i in range(self.workers))
        found: list[jax.Device] = []
        for item in self.workers:
            found += devices_named(item)
        check_processes(found, "AsyncDataParallel")
        return tuple(found)

    def resolve_server(self) -> jax.Device:
        """The device of the server.

        Raises:
            DeviceError: the device does not exist, or the name matches several devices.
        """
        found = devices_named(self.server)
        if len(found) > 1:
            raise DeviceError.here(
                f"AsyncDataParallel: the server must be one device, but {self.server!r} matches "
                f"{', '.join(map(name_of, found))}",
                hint=f'name one of them: server="{name_of(found[0])}"',
            )
        return found[0]


def check_staleness(strategy: str, bound: object) -> None:
    """Raises `AttributeValueError`, in the name of a strategy, unless `bound` is a valid bound."""
    if bound is not None and (type(bound) is not int or bound < 0):
        raise AttributeValueError.here(
            f"{strategy}: staleness must be an int of at least 0, or None for no bound, "
            f"got {bound!r}",
            hint="pass how many updates by other workers a worker may miss: staleness=3",
        )
