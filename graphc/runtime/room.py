"""Whether a run will get the memory it is going to ask for: known before it takes any state.

XLA allocates its temporaries when a step is carried out, which is after the step was given its
state. If the host has no room for them then, the state is gone. So the large blocks of a run are
asked for beforehand, and given back at once. Blocks below `LARGE` may fit between others that are
in use, so nothing can be said of them: they are not counted.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import jax

from graphc.errors import ExecutionError
from graphc.runtime.interface import SINGLE, Interface
from graphc.runtime.layout import elements

resource: Any
try:
    import resource
except ImportError:  # Windows
    resource = None

LARGE = 32 * 2**20  # glibc takes blocks of this size from the system, one by one


def large_blocks(compiled: Any, interface: Interface, devices: Sequence[jax.Device]) -> int:
    """Bytes of the large blocks that a run allocates on the host: a lower bound. 0 where the
    program runs on other devices, whose memory is not the process's."""
    if devices[0].platform != "cpu" or not hasattr(mmap, "MAP_PRIVATE"):
        return 0
    analysis = compiled.memory_analysis()
    if analysis is None:  # a backend that does not say
        return 0
    temporaries = int(analysis.temp_size_in_bytes)
    found = temporaries * (interface.replicas if interface.kind != SINGLE else 1)
    if interface.kind == SINGLE:
        new = interface.assigned[len(interface.written) if interface.donate else 0 :]
        types = [*(value.type for value in interface.fetches), *(buffer.type for buffer in new)]
        sizes = [elements(type) * type.dtype.itemsize for type in types]
        found = temporaries * (temporaries >= LARGE) + sum(s for s in sizes if s >= LARGE)
    return found if found >= LARGE else 0


def has_room(size: int) -> bool:
    """Whether the process can have so many bytes more, in one piece."""
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, OverflowError, ValueError):
        return False
    return True


def is_limited() -> bool:
    """Whether the process may have less memory than the machine has addresses."""
    if resource is None:
        return False
    limits = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(limit)[0] != resource.RLIM_INFINITY for limit in limits)


def no_room(size: int) -> ExecutionError:
    """The error of a run that was not begun."""
    return ExecutionError(
        f"the run failed before it began: it needs {size / 2**20:.0f} MiB of memory more, which "
        "this process cannot have",
        details=[
            "temporaries and large results, as XLA counts them",
            "nothing has run; the state is as it was",
        ],
        mend="feed a smaller batch, or compile with CompileOptions(memory_limit=...); raise the "
        "limit of the process (`ulimit -v`) if there is one",
    )
