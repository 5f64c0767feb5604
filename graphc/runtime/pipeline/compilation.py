"""Compiles a fetch set with XLA, stage by stage. Each stage runs when it is first needed.

Computing the cache key of an executable needs none of the stages.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax

from graphc.collection import without_collection
from graphc.config import CompileOptions
from graphc.devices.discovery import available, usable_memory
from graphc.devices.environment import environment_of
from graphc.devices.machine import Machine
from graphc.devices.mesh import Mesh
from graphc.devices.pipelining import PipelineParallel
from graphc.devices.placer import Placement, place
from graphc.devices.targets import target_of
from graphc.devices.topology import devices_by_name
from graphc.errors import DeviceError
from graphc.ir.fingerprint import cache_key, calls_back
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.structure.vjp_layout import differentiated
from graphc.passes.core.peak import peak
from graphc.passes.core.target import Target
from graphc.passes.manager import PassReport, tell_of
from graphc.passes.precision.check_numerics import table
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.lazy import Lazy
from graphc.runtime.feeds.feeds import bind_feeds
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.targets.backends import (
    Backend,
    LoweringTask,
    OneDevice,
    OnMesh,
    Partitioned,
    Replicas,
)
from graphc.runtime.targets.jax_program import InJax, JaxProgram
from graphc.runtime.targets.prepare import bind


class Compilation:
    """A request that is being compiled.

    Attributes:
        prepared: the program. If there are several devices, each node has its device.
        backend: what the program is compiled for.
        placement: the device of each node; None under a strategy, or if `device` is requested.
        notes: the parts of the requested placement that could not be followed.

    Raises:
        FeedError: the shapes do not fit.
        DeviceError: a device does not exist.
    """

    def __init__(self, request: CompileRequest) -> None:
        self.request, self.prepared = request, request.prepared
        functional = request.prepared.functional
        self.bindings = bind_feeds(functional, request.shapes, request.prepared.sources)
        self._set_programs()
        if request.machine is not None:
            _refuse_calls_back(functional)
        self.placement: Placement | None = None
        self.notes: list[str] = []
        self.backend: Backend = self._choose_backend()

    def _choose_backend(self) -> Backend:
        request, prepared = self.request, self.prepared
        there = None if request.machine is None else devices_by_name(request.machine)
        strategy = request.strategy
        if strategy is not None and not isinstance(strategy, PipelineParallel):
            strategy = strategy if there is None else strategy.on(there)
            devices = strategy.resolve()
            if isinstance(strategy, Mesh):
                return OnMesh(strategy, devices, prepared)
            return Replicas(strategy, devices, prepared.sources)
        if request.device is not None:
            return OneDevice(request.device, request.commits)
        placement = self.placement = place(
            prepared.functional,
            prepared.requests,
            whole=prepared.whole,
            known=None if there is None else list(there),
            base=request.base,
            soft=request.soft,
        )
        self.notes = list(placement.notes)
        known = available() if there is None else there
        named = {name: known[name] for name in placement.devices}
        if len(named) == 1:
            if strategy is not None:
                self.notes.append("PipelineParallel: all nodes are on one device")
            return OneDevice(*named.values())
        self.prepared = prepared.placed(placement.program, placement.base)
        return Partitioned(named, placement.base, strategy)

    @property
    def options(self) -> CompileOptions:
        """The compile options."""
        return self.request.options

    @property
    def machine(self) -> Machine | None:
        """The machine to compile for, if it is not this one."""
        return self.request.machine

    @property
    def devices(self) -> Sequence[jax.Device]:
        """The devices that run the program."""
        return self.backend.devices

    def under(self, options: CompileOptions) -> Compilation:
        """The same compilation under other options."""
        compilation = copy(self)
        compilation.request = self.request.under(options)
        compilation.prepared = self.prepared.under(options)
        compilation.notes = list(self.notes)
        compilation._set_programs()
        for name in ("key", "program_key"):
            compilation.__dict__.pop(name, None)
        return compilation

    def _set_programs(self) -> None:
        """Sets up the bound programs. Each is made when it is first needed."""

        def bound(tight: bool) -> tuple[Program, PassReport]:
            target = replace(self.target, tight=tight)
            return bind(self.prepared, self.bindings, self.options, target)

        self._bound = Lazy(lambda: bound(False))
        self._tight = Lazy(lambda: bound(True))

    @property
    def target(self) -> Target:
        """The description of the devices for passes. If there are several kinds of device, it has
        no property that only one kind has."""
        target = target_of(self.devices, self.backend.replicas)
        return replace(target, trained=self.prepared.trained)

    @cached_property
    def environment(self) -> dict[str, str]:
        """Everything outside the program that the executable depends on."""
        return environment_of(self.devices)

    @property
    def memory_limit(self) -> int | None:
        """The number of bytes that a run may use on each device. The options set it. Otherwise it
        is the memory of the GPUs if graphc can enforce a limit."""
        given = self.options.memory_limit
        if given is not None or not self.backend.keeps_to_limit:
            return given if isinstance(given, int) else None
        return usable_memory(self.devices) if self.machine is None else self.machine.usable_memory

    @property
    def memory_in_words(self) -> str | None:
        """The limit as text for errors; None if the options set it."""
        if self.options.memory_limit is not None:
            return None
        if self.machine is not None:
            return self.machine.memory_in_words()
        return (
            f"the {self.memory_limit} bytes that JAX may use on each {self.devices[0].device_kind}"
        )

    @cached_property
    def key(self) -> str | None:
        """The cache key of the executable. It is None if the executable must not be cached: the
        program calls back, or the meaning or layout of an operator cannot be identified."""
        return self._key(self.environment)

    @cached_property
    def program_key(self) -> str | None:
        """The cache key without the dependencies outside the program. It is equal on all
        machines."""
        return self._key({})

    def _key(self, environment: Mapping[str, str]) -> str | None:
        program = self.prepared.functional
        operators = {node.op for node in program.walk()}
        if any(op.name not in CATALOGUE or CATALOGUE[op.name] is not op for op in operators):
            return None
        pulled = [differentiated(n, CATALOGUE) for n in program.walk() if n.op.name == "VJP"]
        operators.update(node.op for node in pulled)
        parallel = self.backend.parallel
        if parallel is not None and any(op.content and op.layout for op in operators):
            return None  # a user's layout rule is Python code, which has no fingerprint
        contents = [node.op.content(node) for node in pulled if node.op.content is not None]
        if None in contents:
            return None
        return cache_key(
            program,
            bindings=self.bindings,
            options={
                **self.options.meaning(),
                "parallel": parallel,
                "steps": self.request.steps,
                "trained": self.prepared.trained,
                "commits": self.request.commits,
                "pulled": contents,  # the text in the VJP node itself may be out of date
                "places": self._places() if self.options.check_numerics else None,
            },
            extra=environment,
        )

    def _places(self) -> Mapping[str, Any]:
        """The contents of errors from numerics checks: names, lines and limits. Limits may be named
        sizes until the sizes are bound. A cache entry contains all of these, but the fingerprint
        of a program does not."""
        program = self.prepared.functional
        return table(bind_sizes(program, self.bindings) if self.bindings else program)

    @property
    def program(self) -> Program:
        """The optimised program of one step; all sizes are ints."""
        return self._bound()[0]

    @property
    def report(self) -> PassReport:
        """What each pass did."""
        return self.prepared.report + self._bound()[1]

    @without_collection()
    def in_jax(self, layout: StateLayout, budget: int | None = None) -> InJax:
        """The program as a JAX function of the buffers of `layout`.

        On GPUs, only deep networks become loops. If the program needs more memory than the budget,
        loops of fewer blocks are tried. They are used if they need less memory. Both programs
        take the same buffers.

        Args:
            budget: see `passes.recompute`; None means no recomputation.

        Raises:
            LayoutError: the strategy cannot be followed.
        """
        made = self._in_jax(self.program, layout, budget)
        if budget is None or self.target.platform != "gpu":
            return made
        needed = peak(made.local)
        if needed <= budget:
            return made
        program, report = self._tight()
        tight = self._in_jax(program, layout, budget)
        if not isinstance(tight, JaxProgram) or peak(tight.local) >= needed:
            return made
        return tight._replace(report=report + tight.report)

    def _in_jax(self, program: Program, layout: StateLayout, budget: int | None) -> InJax:
        """The JAX function of a bound program."""
        start = time.perf_counter()
        steps = self.request.steps
        local = self.backend.physical(program, layout, steps)
        tell_of("physical", program, local, time.perf_counter() - start)
        if self.options.verify and local is not program:
            verify(local, "bound")
        options = self.options
        # If a callback raises or a check fails, donated state would be lost.
        if calls_back(local) or options.check_numerics:
            options = replace(options, donate=False)
        return self.backend.in_jax(LoweringTask(local, layout, options, steps, budget))


def _refuse_calls_back(program: Program) -> None:
    """Raises `DeviceError` for a program that calls Python. JAX compiles such programs only for
    devices of this process."""
    for node in program.walk():
        if calls_back(program.replace(nodes=(node,))):
            raise DeviceError(
                f"{node.op.name} {node.name!r} calls back into Python, which cannot be compiled "
                "for another machine",
                source=node.source,
                hint="remove it from the fetches, or compile without machine=",
            )
