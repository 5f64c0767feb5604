"""Checks that a run will get the memory that it needs, before the run consumes any state.

XLA allocates memory when a step is executed. By then the step has consumed its state, and the state
is lost if the allocation fails. On a GPU, JAX tells how much memory is free. On a CPU, a run first
requests its large blocks from the system and returns them at once. A test of smaller blocks would
prove nothing, because they may fit between blocks that are in use. If the memory of the process is
limited, the caller waits for a run that needs such blocks.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax

from graphc.errors import ExecutionError
from graphc.ir.costs import bytes_of_type
from graphc.runtime.targets.interface import PARTITIONED, SINGLE, Interface

resource: Any
try:
    import resource
except ImportError:  # Windows
    resource = None

LARGE = 32 * 2**20  # glibc requests each block of this size from the system separately
SMALL = 2**18  # if the process cannot get even this much, Python itself fails


class Need(NamedTuple):
    """The memory that a run allocates, in bytes.

    Attributes:
        blocks: the total of the host.
        large: the part of it in blocks of at least `LARGE`.
        device: the total of each GPU, if it is at least `LARGE`.
    """

    blocks: int
    large: int
    device: int = 0

    @property
    def is_large(self) -> bool:
        """Whether a run asks for memory before it begins."""
        return self.blocks >= SMALL or self.device > 0


def need_of(compiled: Any, interface: Interface, devices: Sequence[jax.Device]) -> Need:
    """The memory that a run needs; zero if it or the free memory is unknown."""
    is_gpu = devices[0].platform == "gpu" and interface.kind != PARTITIONED
    if not is_gpu and (devices[0].platform != "cpu" or not hasattr(mmap, "MAP_PRIVATE")):
        return Need(0, 0)
    analysis = compiled.memory_analysis()
    if analysis is None:  # the backend does not report it
        return Need(0, 0)
    if is_gpu:
        results = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
        device = int(analysis.temp_size_in_bytes + results)
        return Need(0, 0, device if device >= LARGE else 0)
    here = [device for device in devices if device.process_index == jax.process_index()]
    temporaries = int(analysis.temp_size_in_bytes)
    results = int(analysis.output_size_in_bytes - analysis.alias_size_in_bytes)
    if interface.kind != SINGLE:
        large = temporaries * len(here) * (temporaries >= LARGE)
        if interface.kind == PARTITIONED:
            return Need(compiled.host_bytes(), large)
        return Need((temporaries + results) * len(here), large)
    new = interface.assigned[len(interface.written) if interface.donate else 0 :]
    types = [*(value.type for value in interface.fetches), *(buffer.type for buffer in new)]
    sizes = [temporaries, *map(bytes_of_type, types)]
    return Need(temporaries + results, sum(size for size in sizes if size >= LARGE))


def has_room(size: int) -> bool:
    """Whether the process can get `size` more bytes in one piece.

    Free memory in a heap of malloc does not count, because only the thread of that heap can use it.
    """
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, OverflowError, ValueError):
        return False
    return True


def _free(device: jax.Device) -> float:
    found = device.memory_stats() or {}
    return found["bytes_limit"] - found["bytes_in_use"] if "bytes_limit" in found else math.inf


def is_limited() -> bool:
    """Whether the system may refuse memory to this process instead of killing it."""
    if resource is None:
        return False
    limit, none = resource.getrlimit, resource.RLIM_INFINITY
    return (
        limit(resource.RLIMIT_AS)[0] != none
        or limit(resource.RLIMIT_DATA)[0] != none
        or _is_counted()
    )


@cache
def _is_counted() -> bool:
    """Whether Linux refuses memory that it could not provide if each process used all its
    memory."""
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    except OSError:
        return False


def find_room(
    need: Need, interface: Interface, devices: Sequence[jax.Device], finish: Callable[[], None]
) -> None:
    """Makes sure that there is memory for one more run: for its large blocks on the host, and for
    all that it needs on GPUs.

    If the devices wait for each other, this includes the small blocks of the host: if one device
    found no memory, the others would wait until XLA ends the process.

    Args:
        finish: waits for earlier runs, which then free their memory.

    Raises:
        ExecutionError: there is not enough memory; nothing has run.
    """
    size = need.large
    if interface.kind not in (SINGLE, PARTITIONED) and is_limited():
        size = need.blocks
    here = [device for device in devices if device.process_index == jax.process_index()]

    def lacks(device: jax.Device | None) -> bool:
        if device is None:
            return size > 0 and not has_room(size)
        return need.device > _free(device)

    places = here if need.device else [None]
    if not any(map(lacks, places)):
        return
    finish()
    for device in filter(lacks, places):
        raise _no_room(size if device is None else need.device, device)


def _no_room(size: int, device: jax.Device | None = None) -> ExecutionError:
    """The error for a run that was not started.

    Args:
        device: the GPU that lacks memory; None for the host.
    """
    where, hint = "this process cannot get", "raise the limit of the process (`ulimit -v`)"
    if device is not None:
        where = f"{device.device_kind} does not have: {_free(device) / 2**20:.0f} MiB are free"
        hint = "remove arrays that are no longer needed, such as other sessions"
    return ExecutionError(
        f"the run failed before it began: it needs {size / 2**20:.0f} MiB more memory, which "
        f"{where}",
        details=[
            "temporaries and results, as XLA counts them",
            "nothing has run; the state is as it was",
        ],
        hint=f"feed a smaller batch, or compile with CompileOptions(memory_limit=...); {hint}",
    )
