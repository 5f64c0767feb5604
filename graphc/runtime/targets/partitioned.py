"""A program for several devices that each have their own nodes: one executable per cluster.

The host dispatches executables in the order of `devices.schedule` without waiting for any of them.
JAX's runtime starts each executable, and each copy between devices, when its operands are ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from graphc.config import CompileOptions
from graphc.devices.partition import Partition, partition
from graphc.devices.pipelining import PipelineParallel
from graphc.errors import DeviceError
from graphc.interrupts import uninterrupted
from graphc.ir.fingerprint import calls_back
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.passes.manager import PassReport
from graphc.passes.simplify.drop_marks import DropMarks
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.core.forking import FORKING
from graphc.runtime.targets.interface import PARTITIONED, Home, Interface, Value
from graphc.runtime.targets.jax_program import (
    PortOrder,
    arguments_of,
    interface_of,
    named_step,
    options_for_absent,
    refused,
    x64,
)
from graphc.runtime.targets.numerics import checked
from graphc.runtime.targets.script_writing import Kernel, ScriptWriter
from graphc.runtime.targets.scripts import CompiledPartition, Script, in_parts

_NO_PASSES = PassReport(())


@dataclass(frozen=True, eq=False)
class PartitionedProgram:
    """A physical program in clusters that JAX has not traced yet; compare `JaxProgram`.

    Attributes:
        interface, devices: the arguments of an `Executor` besides the compiled program.
        program: the physical program, in the order of its ports.
        partition: its clusters.
        script: how the clusters run.
        kernels: the executables that the script starts.
        report: empty, because no passes run on the programs of single devices.
    """

    interface: Interface
    devices: Sequence[jax.Device]
    program: Program
    partition: Partition
    script: Script
    kernels: Sequence[Kernel]
    report: PassReport = _NO_PASSES

    @property
    def local(self) -> Program:
        """The whole program that is lowered. Each node has its device."""
        return self.partition.program

    def lower(self, platforms: Sequence[str] | None = None) -> LoweredPartition:
        """JAX's stage before XLA for each executable.

        Args:
            platforms: other platforms to lower for, for inspection: `("cuda",)`.
        """
        FORKING.use_devices()
        COUNTERS.add(traces=len(self.kernels), lowerings=len(self.kernels))
        return uninterrupted(self._lower, platforms)

    def _lower(self, platforms: Sequence[str] | None) -> LoweredPartition:
        with x64(self.interface.wide):
            return LoweredPartition([self._lower_one(kernel, platforms) for kernel in self.kernels])

    def _lower_one(self, kernel: Kernel, platforms: Sequence[str] | None) -> Any:
        program = kernel.cluster.program
        run = named_step(program.name, to_function(program), kernel.token)
        here = jax.sharding.SingleDeviceSharding(self.devices[kernel.device])
        arguments = arguments_of(program, [here] * len(program.inputs))
        # If there are no arguments, the sharding of the results determines the device.
        where = None if arguments else here
        jitted = jax.jit(run, donate_argnums=kernel.donated, out_shardings=where)
        if platforms is None:
            return jitted.lower(*arguments)
        return jitted.trace(*arguments).lower(lowering_platforms=tuple(platforms))

    def compile(self, lowered: LoweredPartition, options: CompileOptions) -> CompiledPartition:
        """Compiles the result of `lower` with XLA.

        Raises:
            ExecutionError: XLA rejects it.
        """
        FORKING.use_devices()
        COUNTERS.add(compiles=len(self.kernels))
        return uninterrupted(self._compile, lowered, options)

    def _compile(self, lowered: LoweredPartition, options: CompileOptions) -> CompiledPartition:
        chosen = self.xla_options(options)
        with x64(self.interface.wide):
            try:
                made = [part.compile(compiler_options=chosen or None) for part in lowered.parts]
            except OSError:  # a signal handler raised TimeoutError; XLA raises no OSError
                raise
            except Exception as error:
                raise refused(error, self.devices[0], options) from error
        return CompiledPartition(self.script, made, self.devices)

    def xla_options(self, options: CompileOptions) -> dict[str, str | int | bool | float]:
        """The XLA options: the user's, and those needed for devices that this machine lacks."""
        return {**options_for_absent(self.devices[0]), **options.xla_options}


class LoweredPartition:
    """The lowered stages of the executables of a partition."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)

    def as_text(self) -> str:
        """The StableHLO of all executables, one after the other."""
        return in_parts(self.parts)


def on_devices(
    program: Program,
    layout: StateLayout,
    options: CompileOptions,
    names: Mapping[str, jax.Device],
    base: str,
    steps: int | None = None,
    pipeline: PipelineParallel | None = None,
) -> PartitionedProgram:
    """A physical program whose nodes name several devices; compare `jax_program.on_one_device`.

    Args:
        names: the devices by name.
        base: the name of the default device.
        steps: the number of steps that a run makes, one after the other, or None.
        pipeline: see `partition`.

    Raises:
        DeviceError: a memory limit is given. It would apply to one device only.
    """
    if options.memory_limit is not None:
        raise DeviceError(
            "memory_limit: the program is on several devices, and the limit is for one",
            hint="remove memory_limit, or place the program on one device",
        )
    program, checks = checked(DropMarks(options.check_numerics).run(program).program, options)
    if checks is not None or calls_back(program):
        options = replace(options, donate=False)
    order = PortOrder.of(program)
    program = order.reorder(program)
    buffers = {
        buffer.name: program.homes[member]
        for buffer in layout.buffers
        for member in buffer.members
        if member in program.homes
    }
    parts = partition(program, buffers, base, pipeline)
    number = {name: i for i, name in enumerate(names)}
    writing = ScriptWriter(parts, order, number, options.donate)
    script = writing.script()
    if steps is not None:
        parts_of = (len(order.written), len(order.read), len(order.assigned))
        script = replace(script, turns=(steps, *parts_of))
    interface = interface_of(
        program, order, layout, options, kind=PARTITIONED, wide=needs_x64(program), checks=checks
    )
    where = [Home(device=number[buffers[buffer.name]]) for buffer in interface.buffers]
    feeds = [replace(feed, device=writing.device_of_feed(feed.name)) for feed in interface.feeds]
    interface = replace(interface, replicas=len(names), homes=tuple(where), feeds=tuple(feeds))
    if steps is not None:
        interface = _for_steps(interface, steps)
    devices = list(names.values())
    return PartitionedProgram(interface, devices, program, parts, script, writing.kernels)


def _for_steps(interface: Interface, steps: int) -> Interface:
    """The interface of a run of several steps: feeds and fetches have a leading axis for them."""
    feeds, fetches = (
        tuple([_times(v, steps) for v in row]) for row in (interface.feeds, interface.fetches)
    )
    return replace(interface, feeds=feeds, fetches=fetches)


def _times(value: Value, steps: int) -> Value:
    return replace(value, type=TensorType(value.type.dtype, (steps, *value.type.shape)))
