"""What a service may give to jobs: processes, devices and memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from graphc.cluster.jobs.spec import Need

_SHARE: Final = 0.9  # of the machine's memory; the rest is for the system


@dataclass(frozen=True)
class Capacity:
    """What a service may give to jobs.

    Attributes:
        total: all of it.
        gpus: the GPUs that jobs get, by number; without any, devices are CPUs of JAX.
    """

    total: Need
    gpus: tuple[str, ...] = ()

    @staticmethod
    def of(
        processes: int | None = None,
        devices: int | None = None,
        memory: int | None = None,
        gpus: tuple[str, ...] = (),
    ) -> Capacity:
        """The capacity of this machine where nothing else is said: a device for each GPU or
        processor, as many processes, and nine tenths of the memory."""
        devices = devices or len(gpus) or _processors()
        memory = memory or int(_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        return Capacity(Need(processes or devices, devices, memory), gpus)

    def free_gpus(self, taken: set[str], count: int) -> str:
        """GPUs that no job has, as CUDA_VISIBLE_DEVICES takes them."""
        return ",".join([gpu for gpu in self.gpus if gpu not in taken][:count])


def _processors() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
