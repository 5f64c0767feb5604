"""`AsyncDataParallel`: workers that do not wait for each other, and a server of parameters.

What it means is in `devices.step_halves` and `runtime.staleness`, what carries it out in
`runtime.worker_run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax

from graphc.devices.discovery import find_devices, name_of, no_such_device
from graphc.devices.strategy import checked_devices
from graphc.errors import AttributeValueError, DeviceError
from graphc.ir.device_spec import parse_device
from graphc.ir.source import current_source


@dataclass(frozen=True)
class AsyncDataParallel:
    """Workers that each take a batch of their own, and a server that holds the variables.

    A worker reads the variables, computes its gradients, and has the server apply them, without
    waiting for the others, who may have changed the variables meanwhile. By how many updates at
    most, `staleness` says. It is another method than one step with the whole batch, and how runs
    interleave differs from run to run; `DataParallel` is exact. For `Session.run_workers`: other
    runs of such a session are those of one device, the server's.

    Sources: Recht et al., Hogwild!, NIPS 2011, arXiv:1106.5730; Dean et al., Large scale
    distributed deep networks, NIPS 2012 (Downpour SGD); Ho et al., More effective distributed ML
    via a stale synchronous parallel parameter server, NIPS 2013; Li et al., Scaling distributed
    machine learning with the parameter server, OSDI 2014.

    Args:
        workers: how many, on this process's devices in turn: more workers than devices share
            them. Or their devices, one a worker: `jax.Device`s, or names, where `/gpu:*` stands
            for all GPUs; one that stands there twice has two workers.
        server: the device that holds the variables and applies the updates.
        staleness: how many updates of other workers, at most, come between a worker's read and
            its own update. 0 lets only one worker at a time compute: then the updates are those
            of single runs, in the order of the batches. None for no bound; with n workers, n - 1
            keeps nobody from reading.

    Raises:
        AttributeValueError: not such values.
        DeviceError: a name does not parse.

    >>> AsyncDataParallel(["/cpu:0", "/cpu:0"], server="/cpu:0", staleness=1).staleness
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
            raise AttributeValueError(
                f"AsyncDataParallel: server must be a device, got {self.server!r}",
                source=current_source(),
                hint='name one: server="/cpu:0"',
            )
        bound: object = self.staleness
        if bound is not None and (type(bound) is not int or bound < 0):
            raise AttributeValueError(
                "AsyncDataParallel: staleness must be an int of at least 0, or None for no bound, "
                f"got {bound!r}",
                source=current_source(),
                hint="pass how many updates of others a worker may miss: staleness=3",
            )

    def resolve(self) -> tuple[jax.Device, ...]:
        """The workers' devices, one a worker.

        Raises:
            DeviceError: one is not there.
        """
        if isinstance(self.workers, int):
            here = jax.local_devices()
            return tuple(here[i % len(here)] for i in range(self.workers))
        found: list[jax.Device] = []
        for item in self.workers:
            found += _devices(item)
        return tuple(found)

    def resolve_server(self) -> jax.Device:
        """The device of the server.

        Raises:
            DeviceError: it is not there, or the name means several.
        """
        found = _devices(self.server)
        if len(found) > 1:
            raise DeviceError(
                f"AsyncDataParallel: the server is one device, and {self.server!r} means "
                f"{', '.join(map(name_of, found))}",
                source=current_source(),
                hint=f'name one of them: server="{name_of(found[0])}"',
            )
        return found[0]


def _devices(item: jax.Device | str) -> list[jax.Device]:
    if not isinstance(item, str):
        return [item]
    found = find_devices(item)
    if not found:
        raise no_such_device(item)
    return found
