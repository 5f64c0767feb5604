"""Compilation targets, one class for each: a device, replicas, a mesh, several devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax

from graphc.config import CompileOptions
from graphc.devices.mesh import Mesh
from graphc.devices.pipelining import PipelineParallel
from graphc.devices.strategy import DataParallel
from graphc.ir.program import Program
from graphc.runtime.buffers.annotated import feed_specs
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.buffers.state_buffers import physical
from graphc.runtime.buffers.steps import physical_steps
from graphc.runtime.targets.jax_program import InJax, on_one_device
from graphc.runtime.targets.partitioned import on_devices
from graphc.runtime.targets.prepare import Prepared
from graphc.runtime.targets.replicated import on_replicas
from graphc.runtime.targets.sharded import on_mesh


class LoweringTask(NamedTuple):
    """A physical program, and how to lower it.

    Attributes:
        program: the result of `Backend.physical`.
        layout: the layout of the state.
        options: see `CompileOptions`.
        steps: the same value as for `Backend.physical`.
        budget: of memory, see `passes.recompute`; None means no recomputation.
    """

    program: Program
    layout: StateLayout
    options: CompileOptions
    steps: int | None
    budget: int | None


class Backend(Protocol):
    """How a bound program becomes a JAX function, and which devices run it."""

    @property
    def devices(self) -> Sequence[jax.Device]:
        """The devices that run the program."""

    @property
    def replicas(self) -> int:
        """The number of devices that share the batch; 1 without a strategy."""

    @property
    def keeps_to_limit(self) -> bool:
        """Whether graphc can keep its programs within a memory limit."""

    @property
    def parallel(self) -> Mapping[str, Any] | None:
        """The part of the strategy that a compiled program depends on; None without a strategy."""

    def physical(self, program: Program, layout: StateLayout, steps: int | None) -> Program:
        """The program with the buffers of `layout` for state. If `steps` is given, it is a loop."""

    def in_jax(self, task: LoweringTask) -> InJax:
        """A physical program as a JAX function.

        Raises:
            LayoutError: the strategy cannot be followed.
        """


class _Looping:
    """Runs several steps in a loop on the device."""

    def physical(self, program: Program, layout: StateLayout, steps: int | None) -> Program:
        if steps is None:
            return physical(program, layout)
        return physical_steps(program, layout, steps)


@dataclass(frozen=True)
class OneDevice(_Looping):
    """Everything on one device.

    Attributes:
        commits: whether results are committed to it, also if it is the default device.
    """

    device: jax.Device
    commits: bool = False
    replicas: int = 1
    keeps_to_limit: bool = True
    parallel: None = None

    @property
    def devices(self) -> Sequence[jax.Device]:
        return [self.device]

    def in_jax(self, task: LoweringTask) -> InJax:
        program, layout, options, _, budget = task
        return on_one_device(program, layout, options, self.device, budget, self.commits)


@dataclass(frozen=True)
class Partitioned:
    """Nodes on several devices, as the placement determines.

    Attributes:
        named: the devices by name.
        base: the name of the default device.
        pipeline: how the stages take turns on micro-batches; None without such a strategy.
    """

    named: Mapping[str, jax.Device]
    base: str
    pipeline: PipelineParallel | None = None
    replicas: int = 1
    keeps_to_limit: bool = False

    @property
    def devices(self) -> Sequence[jax.Device]:
        return list(self.named.values())

    @property
    def parallel(self) -> Mapping[str, Any] | None:
        return None if self.pipeline is None else self.pipeline.meaning()

    def physical(self, program: Program, layout: StateLayout, steps: int | None) -> Program:
        return physical(program, layout)  # the host runs the steps

    def in_jax(self, task: LoweringTask) -> InJax:
        program, layout, options, steps, _ = task
        return on_devices(program, layout, options, self.named, self.base, steps, self.pipeline)


@dataclass(frozen=True)
class _Distributed(_Looping):
    """A program under a strategy."""

    strategy: DataParallel | Mesh
    devices: Sequence[jax.Device]

    @property
    def replicas(self) -> int:
        return self.strategy.replicas

    @property
    def parallel(self) -> Mapping[str, Any]:
        return self.strategy.meaning()


@dataclass(frozen=True)
class Replicas(_Distributed):
    """The batch is split across devices. Each device runs the same program.

    Attributes:
        sources: feed name -> the source line of its placeholder, for errors.
    """

    strategy: DataParallel
    sources: Mapping[str, Any]
    keeps_to_limit: bool = True

    def in_jax(self, task: LoweringTask) -> InJax:
        program, layout, options, _, budget = task
        return on_replicas(program, layout, options, self.strategy, self.sources, budget)


@dataclass(frozen=True)
class OnMesh(_Distributed):
    """One program over a mesh of devices.

    Attributes:
        prepared: determines the sharding of feeds and variables.
    """

    strategy: Mesh
    prepared: Prepared
    keeps_to_limit: bool = False

    def in_jax(self, task: LoweringTask) -> InJax:
        program, layout, options, _, _ = task
        feeds = feed_specs(self.prepared.functional)
        lines = self.prepared.shard_sources
        return on_mesh(program, layout, options, self.strategy, feeds, lines)
