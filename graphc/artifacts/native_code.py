"""Native code of an entry point: compiled when it is saved, for the local devices or for those of a
machine that is not present."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from graphc.artifacts import graphs
from graphc.artifacts.lowering import (
    Function,
    compiled_program,
    compiled_within,
    for_one,
    for_replicas,
)
from graphc.config import CompileOptions
from graphc.devices.discovery import first_devices
from graphc.devices.machine import Machine
from graphc.devices.targets import target_of
from graphc.devices.topology import devices_by_name
from graphc.errors import ArtifactError, CacheError, MemoryLimitError
from graphc.ir.program import Program
from graphc.runtime.targets.loading import Code, to_bytes


def native_devices(devices: Sequence[jax.Device], machine: Machine | None) -> Sequence[jax.Device]:
    """The devices for which native code of an entry point is compiled.

    Args:
        devices: the session's devices for a replicated entry point, else None.
        machine: the machine whose GPUs are used instead, if any.
    """
    if machine is None:
        return devices or jax.local_devices()[:1]
    return first_devices(max(1, len(devices)), devices_by_name(machine))


def native_code_of(
    name: str,
    program: Program,
    donated: int,
    devices: Sequence[jax.Device],
    options: CompileOptions,
    machine: Machine | None = None,
) -> Code:
    """The program compiled for `devices`, after the passes for them.

    Args:
        machine: the machine of the devices, if it is not this one. Its memory is the memory limit
            if the options set none, as for `gc.compile`.

    Raises:
        ArtifactError: XLA cannot store it.
        ExecutionError: XLA rejects it, or it does not fit into the memory limit.
    """
    limit, words = limit_of(options), None
    if limit is None and machine is not None:
        limit, words = machine.usable_memory, machine.memory_in_words()

    def compiled_for_memory(tight: bool) -> Any:
        target = replace(target_of(devices, len(devices)), tight=tight)
        local = graphs.bound(name, program, {}, options, target)

        def make(budget: int | None) -> Function:
            if len(devices) > 1:
                return for_replicas(local, devices, options, budget)
            return for_one(local, donated, device=devices[0], options=options, budget=budget)

        return compiled_within(limit, make, lambda made: compiled_for(made, devices), words)[1]

    try:
        compiled = compiled_for_memory(limit_of(options) is not None)
    except MemoryLimitError:
        if limit_of(options) is not None:
            raise
        compiled = compiled_for_memory(True)  # loops save memory, but are slower
    try:
        return to_bytes(compiled, devices[0])
    except CacheError as error:
        raise ArtifactError(f"signature {name!r}: {error.what}", hint="native=False") from error


def compiled_for(function: Function, devices: Sequence[jax.Device]) -> Any:
    """Compiles an entry point's function with XLA."""
    return compiled_program({}, function.lower, devices, function.xla_options)


def limit_of(options: CompileOptions) -> int | None:
    """The memory limit of the options, in bytes."""
    limit = options.memory_limit
    return limit if isinstance(limit, int) else None
