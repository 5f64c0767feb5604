"""From a fetch set to XLA, stage by stage; no stage is carried out before it is asked for.

What an executable is found by in the cache needs none of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import jax

from graphc.config import CompileOptions
from graphc.devices.discovery import available
from graphc.devices.environment import environment_of
from graphc.devices.machine import Machine
from graphc.devices.mesh import Mesh, Strategy
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
from graphc.passes.memory.recompute import Recompute
from graphc.passes.precision.check_numerics import table
from graphc.runtime.buffers.annotated import feed_specs
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.buffers.state_buffers import physical
from graphc.runtime.buffers.steps import physical_steps
from graphc.runtime.core.lazy import Lazy
from graphc.runtime.feeds.feeds import bind_feeds
from graphc.runtime.pipeline.fitting import Try, fit
from graphc.runtime.targets.interface import Interface
from graphc.runtime.targets.jax_program import InJax, JaxProgram, on_one_device
from graphc.runtime.targets.loading import noting_reuse
from graphc.runtime.targets.partitioned import on_devices
from graphc.runtime.targets.prepare import Prepared, bind
from graphc.runtime.targets.replicated import on_replicas
from graphc.runtime.targets.sharded import on_mesh

T = TypeVar("T")


class Compilation:
    """A fetch set with feeds of given shapes, on given devices.

    Args:
        shapes: of the feeds, global.
        device: the one that everything is to run on, whatever the program asks for.
        base: the name of the one that everything lies on that asks for none; None: see
            `devices.placer`.
        soft: whether a request for a device that is not there is overridden.
        steps: None, or how many steps it makes in a loop; `shapes` are those of one.
        machine: the one that it is compiled for, where that is not this one.

    Attributes:
        devices: those it is to run on.
        notes: what of its placement could not be done as asked.

    Raises:
        FeedError: the shapes do not fit.
        DeviceError: devices that are not there.
    """

    def __init__(
        self,
        prepared: Prepared,
        shapes: Sequence[Sequence[int]],
        strategy: Strategy | None,
        options: CompileOptions,
        device: jax.Device | None = None,
        steps: int | None = None,
        *,
        base: str | None = None,
        soft: bool = True,
        machine: Machine | None = None,
    ) -> None:
        self.prepared, self.strategy, self.options = prepared, strategy, options
        self.steps, self.machine = steps, machine
        self.placement: Placement | None = None
        self.bindings = bind_feeds(prepared.functional, shapes, prepared.sources)
        self._set_programs()
        self.notes: list[str] = []
        self.devices: Sequence[jax.Device]
        if machine is not None:
            _refuse_calls_back(prepared.functional)
        there = None if machine is None else devices_by_name(machine)
        if strategy is not None:
            self.strategy = strategy if there is None else strategy.on(there)
            self.devices = self.strategy.resolve()
            return
        if device is not None:
            self.devices = [device]
            return
        self.placement = place(
            prepared.functional,
            prepared.requests,
            whole=prepared.whole,
            known=None if there is None else list(there),
            base=base,
            soft=soft,
        )
        self.notes = list(self.placement.notes)
        known = available() if there is None else there
        self.devices = [known[name] for name in self.placement.devices]
        if len(self.devices) > 1:
            self.prepared = prepared.placed(self.placement.program, self.placement.base)

    def under(self, options: CompileOptions) -> Compilation:
        """The same under other options."""
        compilation = copy(self)
        compilation.options, compilation.prepared = options, self.prepared.under(options)
        compilation.notes = list(self.notes)
        compilation._set_programs()
        for name in ("key", "program_key"):
            compilation.__dict__.pop(name, None)
        return compilation

    def _set_programs(self) -> None:
        """Each of these is made when it is first asked for."""

        def bound(tight: bool) -> tuple[Program, PassReport]:
            target = replace(self.target, tight=tight)
            return bind(self.prepared, self.bindings, self.options, target)

        self._bound = Lazy(lambda: bound(False))
        self._tight = Lazy(lambda: bound(True))

    @property
    def target(self) -> Target:
        """What passes are told of the devices: of several kinds, nothing that suits one only."""
        return target_of(self.devices, 1 if self.strategy is None else self.strategy.replicas)

    @cached_property
    def environment(self) -> dict[str, str]:
        """What outside the program the executable depends on."""
        return environment_of(self.devices)

    @property
    def memory_limit(self) -> int | None:
        """How many bytes a run may take on each device: as the options say; else, for a machine,
        the memory of its GPUs, where graphc can keep to a limit."""
        given = self.options.memory_limit
        apart = isinstance(self.strategy, Mesh) or (self.strategy is None and len(self.devices) > 1)
        if given is not None or self.machine is None or apart:
            return given if isinstance(given, int) else None
        return self.machine.usable_memory

    @cached_property
    def key(self) -> str | None:
        """What the executable is found by in the cache; None where it must not be kept: the
        program calls back, or has an operator whose meaning or layout cannot be told."""
        return self._key(self.environment)

    @cached_property
    def program_key(self) -> str | None:
        """The same without what it depends on outside the program: equal on all machines."""
        return self._key({})

    def _key(self, environment: Mapping[str, str]) -> str | None:
        program = self.prepared.functional
        operators = {node.op for node in program.walk()}
        if any(op.name not in CATALOGUE or CATALOGUE[op.name] is not op for op in operators):
            return None
        pulled = [differentiated(n, CATALOGUE) for n in program.walk() if n.op.name == "VJP"]
        operators.update(node.op for node in pulled)
        if self.strategy is not None and any(op.content and op.layout for op in operators):
            return None  # a layout rule of the user's is Python code
        contents = [node.op.content(node) for node in pulled if node.op.content is not None]
        if None in contents:
            return None
        return cache_key(
            program,
            bindings=self.bindings,
            options={
                **self.options.meaning(),
                "parallel": None if self.strategy is None else self.strategy.meaning(),
                "steps": self.steps,
                "pulled": contents,  # what a VJP node itself says may be out of date
                "places": self._places() if self.options.check_numerics else None,
            },
            extra=environment,
        )

    def _places(self) -> Mapping[str, Any]:
        """What the errors of checks contain: names, lines, and limits, which may be named sizes
        until the sizes are bound. A cache entry holds these, and the fingerprint of a program does
        not."""
        program = self.prepared.functional
        return table(bind_sizes(program, self.bindings) if self.bindings else program)

    @property
    def program(self) -> Program:
        """One step, optimised, its sizes ints."""
        return self._bound()[0]

    @property
    def report(self) -> PassReport:
        """What each pass did."""
        return self.prepared.report + self._bound()[1]

    def in_jax(self, layout: StateLayout, budget: int | None = None) -> InJax:
        """The program as a JAX function of the buffers of `layout`.

        On GPUs, only deep networks are loops. Where the program needs more than the budget, and
        with loops of fewer blocks less, it is the one with these loops; it takes the same buffers.

        Args:
            budget: see `passes.recompute`; None computes nothing again.

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
        """A bound program as a JAX function."""
        start = time.perf_counter()
        apart = self.strategy is None and len(self.devices) > 1
        if self.steps is None or apart:
            local = physical(program, layout)
        else:
            local = physical_steps(program, layout, self.steps)
        tell_of("physical", program, local, time.perf_counter() - start)
        if self.options.verify and local is not program:
            verify(local, "bound")
        options = self.options
        # A function that raises would take donated state with it, and so would a check that fails.
        if calls_back(local) or options.check_numerics:
            options = replace(options, donate=False)
        if apart and self.placement is not None:
            names = dict(zip(self.placement.devices, self.devices, strict=True))
            return on_devices(local, layout, options, names, self.placement.base, self.steps)
        if self.strategy is None:
            return on_one_device(local, layout, options, self.devices[0], budget)
        if isinstance(self.strategy, Mesh):
            feeds, lines = feed_specs(self.prepared.functional), self.prepared.shard_sources
            return on_mesh(local, layout, options, self.strategy, feeds, lines)
        sources = self.prepared.sources
        return on_replicas(local, layout, options, self.strategy, sources, budget)


def _refuse_calls_back(program: Program) -> None:
    """Raises `DeviceError` for a program that calls Python, which JAX compiles only for devices of
    this process."""
    for node in program.walk():
        if calls_back(program.replace(nodes=(node,))):
            raise DeviceError(
                f"{node.op.name} {node.name!r} calls back into Python, which cannot be compiled "
                "for a machine that is not here",
                source=node.source,
                hint="leave it out of the fetches, or compile without machine=",
            )


class Stages:
    """What an executable is made from, once its state has a layout. Nothing of it is needed to run
    an executable that was found in the cache.

    Args:
        keep: is given the compiled program and its interface once, when it is made.
        budget: what it was found in the cache with, where there is a limit of memory.
    """

    def __init__(
        self,
        compilation: Compilation,
        layout: StateLayout,
        keep: Callable[[Stages, jax.stages.Compiled], None] | None = None,
        budget: int | None = None,
    ) -> None:
        self.compilation, self._layout, self._budget = compilation, layout, budget
        self._keep = keep
        self._seconds: dict[str, float] = {}
        self._reused: list[jax.stages.Compiled] = []  # what JAX had in a cache of its own
        self._in_jax: Lazy[InJax] = Lazy(
            lambda: self._timed("layout", lambda: compilation.in_jax(layout, budget))
        )
        self._lowered: Lazy[Any] = Lazy(lambda: self._lower(self.in_jax))
        self._compiled = Lazy(self._compile)
        limit = compilation.memory_limit
        self._fitted: Lazy[Try[InJax]] | None = None
        if limit is not None and budget is None:
            within = limit
            self._fitted = Lazy(lambda: self._fit(within))

    @property
    def program(self) -> Program:
        """The optimised program, its state by variable."""
        return self.compilation.program

    @property
    def in_jax(self) -> InJax:
        """The physical program, not traced yet: as it is before a limit of memory, where there
        is one.

        Raises:
            LayoutError: the strategy cannot be followed.
        """
        return self._in_jax()

    @property
    def interface(self) -> Interface:
        """What running it takes. A limit of memory changes it only where nodes are checked, for
        there are more of them; then this compiles.

        Raises:
            ExecutionError: it does not fit into the limit of memory.
        """
        if self._fitted is not None and self.compilation.options.check_numerics:
            return self._fitted().made.interface
        return self.in_jax.interface

    @property
    def local(self) -> Program:
        """What each device runs: the program that is lowered.

        Raises:
            ExecutionError: it does not fit into the limit of memory.
        """
        return self.in_jax.local if self._fitted is None else self._fitted().made.local

    @property
    def report(self) -> PassReport:
        """What each pass did."""
        made = self.in_jax if self._fitted is None else self._fitted().made
        return self.compilation.report + made.report

    @property
    def budget(self) -> int | None:
        """What `passes.recompute` was given; None where there is no limit of memory."""
        return self._budget if self._fitted is None else self._fitted().budget

    @property
    def recomputes(self) -> bool:
        """Whether it computes something again to keep to its memory limit."""
        rows = self.report.rows
        return any(row.changed for row in rows if row.name == Recompute.class_name())

    @property
    def lowered(self) -> Any:
        """JAX's stage before XLA."""
        return self._lowered() if self._fitted is None else self._fitted().lowered

    @property
    def compiled(self) -> jax.stages.Compiled:
        """The compiled program.

        Raises:
            ExecutionError: XLA refuses it, or it does not fit into the limit of memory.
        """
        return self._compiled()

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds of the stages that were carried out: "layout", "lower" (tracing included),
        "compile"."""
        return dict(self._seconds)

    def _compile(self) -> jax.stages.Compiled:
        if self._fitted is None:
            compiled = self._through_xla(self.in_jax, self.lowered)
        else:
            compiled = self._fitted().compiled
        if self._keep is not None and not any(compiled is reused for reused in self._reused):
            self._keep(self, compiled)
        return compiled

    def _fit(self, limit: int) -> Try[InJax]:
        """The program under a limit of memory."""

        def compiled(made: InJax) -> tuple[Any, jax.stages.Compiled]:
            lowered = self._lower(made)
            return lowered, self._through_xla(made, lowered)

        compilation, layout = self.compilation, self._layout
        name = None
        if compilation.machine is not None and compilation.options.memory_limit is None:
            name = compilation.machine.memory_in_words()
        return fit(
            self.in_jax, lambda budget: compilation.in_jax(layout, budget), compiled, limit, name
        )

    def _lower(self, made: InJax) -> Any:
        return self._timed("lower", made.lower)

    def _through_xla(self, made: InJax, lowered: Any) -> jax.stages.Compiled:
        with noting_reuse() as reused:
            compiled: jax.stages.Compiled = self._timed(
                "compile", lambda: made.compile(lowered, self.compilation.options)
            )
        if reused:
            self._reused.append(compiled)
        return compiled

    def _timed(self, stage: str, carry_out: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = carry_out()
        self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - start
        return result
