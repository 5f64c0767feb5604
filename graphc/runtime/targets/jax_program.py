"""A physical program as a JAX function with its interface, and its compilation by JAX and XLA."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

import jax
from jax import numpy as jnp

from graphc.config import CompileOptions
from graphc.devices.discovery import default_device
from graphc.devices.targets import FAST_LOOPS_ON_GPU
from graphc.devices.topology import is_here
from graphc.errors import DeviceError, ExecutionError, GraphcError
from graphc.interrupts import uninterrupted
from graphc.ir.layouts import REPLICATED, Layout, axis_of
from graphc.ir.node import EMPTY
from graphc.ir.program import Port, Program
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.ops.control.platforms import check_branches, nodes_on
from graphc.ops.structure.lowered import check_platform
from graphc.passes.core.base import Pass
from graphc.passes.cpu.xla_options import quicker_options, suited_options
from graphc.passes.manager import PassManager, PassReport
from graphc.passes.pass_filter import without
from graphc.runtime.buffers.layout import Buffer, StateLayout
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.core.forking import FORKING
from graphc.runtime.targets.interface import SINGLE, Interface, Value
from graphc.runtime.targets.numerics import checked
from graphc.runtime.targets.prepare import evaluate


@dataclass(frozen=True)
class PortOrder:
    """The order of the arguments and results of a compiled program.

    Attributes:
        written: state that the program takes and assigns. It is donated and comes first.
        read: state that it only reads.
        feeds: the feeds.
        assigned: the state that it returns; that of `written` comes first, in the same order.
        fetches: the fetched values that it returns.
    """

    written: tuple[Port, ...]
    read: tuple[Port, ...]
    feeds: tuple[Port, ...]
    assigned: tuple[Port, ...]
    fetches: tuple[Port, ...]

    @staticmethod
    def of(program: Program) -> PortOrder:
        new = {port.name: port for port in program.new_state()}
        state = program.ports("state")
        written = tuple(p for p in state if p.name in new)
        names = [p.name for p in written]
        rest = [p for name, p in new.items() if name not in names]
        return PortOrder(
            written,
            tuple(p for p in state if p.name not in new),
            tuple(program.ports("feed")),
            (*(new[name] for name in names), *rest),
            tuple(program.ports("fetch")),
        )

    def reorder(self, program: Program) -> Program:
        """The program with its ports in this order."""
        return program.replace(
            inputs=(*self.written, *self.read, *self.feeds),
            outputs=(*self.assigned, *self.fetches),
        )


class InJax(Protocol):
    """A physical program that JAX has not traced yet, for any devices. It is the common interface
    of `JaxProgram` and `partitioned.PartitionedProgram`."""

    @property
    def interface(self) -> Interface: ...
    @property
    def devices(self) -> Sequence[jax.Device]: ...
    @property
    def program(self) -> Program: ...
    @property
    def local(self) -> Program: ...
    @property
    def report(self) -> PassReport: ...
    def lower(self) -> Any: ...
    def compile(self, lowered: Any, options: CompileOptions) -> Any: ...
    def xla_options(self, options: CompileOptions) -> dict[str, str | int | bool | float]: ...


class JaxProgram(NamedTuple):
    """A physical program as a function that JAX has not traced yet.

    Attributes:
        interface, devices: the arguments of an `Executor` besides the compiled program.
        program: the physical program, in the order of its ports.
        jitted: takes and returns flat lists of arrays in that order.
        arguments: their shapes, dtypes and shardings.
        local: the program that each device runs, after the passes for one device.
        report: what those passes did.
        of_strategy: XLA options that implement the strategy.
    """

    interface: Interface
    devices: Sequence[jax.Device]
    program: Program
    jitted: Any
    arguments: Sequence[Any]
    local: Program
    report: PassReport
    of_strategy: Mapping[str, int] = EMPTY

    def lower(self) -> Any:
        """JAX's stage before XLA: the program's StableHLO."""
        FORKING.use_devices()
        COUNTERS.add(traces=1, lowerings=1)
        return uninterrupted(self._lower)

    def _lower(self) -> Any:
        with x64(self.interface.wide):
            return self.jitted.lower(*self.arguments)

    def compile(self, lowered: Any, options: CompileOptions) -> jax.stages.Compiled:
        """Compiles the result of `lower` with XLA.

        Raises:
            ExecutionError: XLA rejects it.
        """
        FORKING.use_devices()
        COUNTERS.add(compiles=1)
        return uninterrupted(self._compile, lowered, options)

    def _compile(self, lowered: Any, options: CompileOptions) -> jax.stages.Compiled:
        chosen = self.xla_options(options)
        with x64(self.interface.wide):
            try:
                compiled: jax.stages.Compiled = lowered.compile(compiler_options=chosen or None)
            except OSError:  # a signal handler raised TimeoutError; XLA raises no OSError
                raise
            except Exception as error:
                raise refused(error, self.devices[0], options) from error
        return compiled

    def xla_options(self, options: CompileOptions) -> dict[str, str | int | bool | float]:
        """See `chosen_xla_options`."""
        return {
            **self.of_strategy,
            **chosen_xla_options(self.local, options, self.devices[0]),
        }


def x64(wide: bool) -> AbstractContextManager[Any]:
    """Enables 64-bit values in JAX if `wide` is True."""
    return jax.enable_x64(True) if wide else nullcontext()


def refused(error: Exception, device: jax.Device, options: CompileOptions) -> GraphcError:
    """The error for a program that XLA does not compile."""
    if re.search("(ptxas|PTX assembler is) too old", str(error)) and not is_here(device):
        capability = getattr(device, "compute_capability", "")
        return DeviceError(
            f"CUDA's assembler on this machine does not support compute capability {capability} of "
            f"{device.device_kind}: the assembler or the GPU is too old",
            hint="check compute_capability in the description of the machine; newer GPUs may need "
            "a newer JAX with its CUDA plugin",
        )
    return ExecutionError(
        f"XLA could not compile the program: {error}",
        hint="check CompileOptions.xla_options" if options.xla_options else None,
    )


# XLA cannot time kernels on a device that this machine does not have. Without timing, XLA finds no
# tiles for some matrix products and fails. cuBLAS supports all of them.
_WITHOUT_TIMING: Mapping[str, str | int | bool | float] = {
    "xla_gpu_autotune_level": 0,
    "xla_gpu_enable_triton_gemm": False,
}


def chosen_xla_options(
    program: Program, options: CompileOptions, device: jax.Device
) -> dict[str, str | int | bool | float]:
    """The XLA options for the program of one device. They contain the user's options, which take
    precedence; at O1 and O2, those that shorten the compilation; and at O2 and O3, those that suit
    the program, if this XLA supports them."""
    chosen = {**options_for_absent(device), **options.xla_options}
    if options.pipeline == "O0":
        return chosen
    platform = device.platform
    if options.pipeline != "O3":
        chosen = {**quicker_options(program, platform), **chosen}
    if options.pipeline in ("O2", "O3"):
        suited = suited_options(program, platform, options.pipeline == "O3")
        chosen = {**(suited if _understood(tuple(sorted(suited.items()))) else {}), **chosen}
    return chosen


def options_for_absent(device: jax.Device) -> Mapping[str, str | int | bool | float]:
    """The XLA options that are needed for a device that this machine does not have."""
    return EMPTY if is_here(device) else _WITHOUT_TIMING


@cache
def _understood(options: tuple[tuple[str, str], ...]) -> bool:
    """Whether XLA accepts these options. XLA does not promise to keep most of them."""
    if not options:
        return True
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=dict(options))
    except Exception:  # the type depends on the reason
        return False
    return True


def on_one_device(
    program: Program,
    layout: StateLayout,
    options: CompileOptions,
    device: jax.Device,
    budget: int | None = None,
    commits: bool = False,
) -> JaxProgram:
    """A physical program for one device.

    Args:
        commits: whether results are committed to the device, also if it is the default device.
        budget: see `passes.recompute`; None means no recomputation.
    """
    order = PortOrder.of(program)
    program, report = suited(order.reorder(program), options, device.platform, budget)
    local = program
    program, checks = checked(program, options)
    order = PortOrder.of(program)
    # Results of programs for the default device are not committed to it, as those of `jax.jit` for
    # arguments that are not, so that JAX may use them together with arrays on other devices.
    is_anywhere = device == default_device() and not commits
    home = None if is_anywhere else jax.sharding.SingleDeviceSharding(device)
    arguments = arguments_of(program, [home] * len(program.inputs))
    function = with_token(program, to_function(program))
    # `keep_unused` is not set, because JAX 0.12 never frees programs lowered with it. If there are
    # no arguments, the sharding of the results determines the device.
    where = None if arguments else home
    jitted = jax.jit(function, donate_argnums=donated(order, options), out_shardings=where)
    wide = needs_x64(program)
    interface = interface_of(program, order, layout, options, kind=SINGLE, wide=wide, checks=checks)
    return JaxProgram(interface, [device], program, jitted, arguments, local, report)


def suited(
    program: Program,
    options: CompileOptions,
    platform: str,
    budget: int | None = None,
    replicas: int = 1,
    exchanges: Sequence[Pass] = (),
) -> tuple[Program, PassReport]:
    """The program of one device after the passes for one device, and the report of those passes.

    With several replicas, the program of one has no meaning alone, so it is not validated.

    Args:
        exchanges: the passes of a strategy for the exchanges between replicas.

    Raises:
        LoweringError: a node cannot run on the platform.
    """
    check_branches(program, platform)
    check_platform(nodes_on(program, platform), platform)
    from graphc.passes.pipelines import on_device  # here: see `targets.prepare.manager`

    passes_for = on_device(options, platform, budget, exchanges, fast_loops=FAST_LOOPS_ON_GPU)
    chosen = without(passes_for, options)
    if not chosen or program.symbols():  # passes need sizes; a saved program may lack them
        return program, PassReport(())
    passes = PassManager(
        chosen,
        stage="bound" if replicas == 1 else "local",
        verify=options.verify,
        validate=options.validate and replicas == 1,
        evaluator=evaluate,
        dump=options.dump,
        rounds=1,
    )
    return passes.run(program)


def interface_of(
    program: Program,
    order: PortOrder,
    layout: StateLayout,
    options: CompileOptions,
    *,
    kind: str,
    wide: bool,
    replicas: int = 1,
    inputs: Sequence[Layout] | None = None,
    outputs: Sequence[Layout] | None = None,
    notes: Sequence[str] = (),
    checks: Mapping[str, Any] | None = None,
) -> Interface:
    """The interface of a physical program whose ports are in `order`.

    Args:
        inputs, outputs: the layouts of its ports on the replicas; None means not sharded.
    """
    buffers = {buffer.name: buffer for buffer in layout.buffers}
    taken = inputs or [REPLICATED] * len(program.inputs)
    given = outputs or [REPLICATED] * len(program.outputs)

    def state(ports: Sequence[Port]) -> tuple[Buffer, ...]:
        return tuple(buffers[port.name] for port in ports)

    return Interface(
        name=program.name,
        kind=kind,
        replicas=replicas,
        wide=wide,
        donate=options.donate,
        written=state(order.written),
        read=state(order.read),
        assigned=state(order.assigned),
        feeds=_values(order.feeds, taken[len(taken) - len(order.feeds) :]),
        fetches=_values(order.fetches, given[len(order.assigned) :]),
        nodes=len(program.nodes),
        notes=tuple(notes),
        checks=checks,
    )


def _values(ports: Sequence[Port], layouts: Sequence[Layout]) -> tuple[Value, ...]:
    return tuple(
        Value(port.name, port.tensor.type, axis_of(layout))
        for port, layout in zip(ports, layouts, strict=True)
    )


def arguments_of(program: Program, places: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    """The types of the arguments, with the sharding of each."""
    return [
        jax.ShapeDtypeStruct(tensor.type.shape, tensor.type.dtype, sharding=place)
        for tensor, place in zip(program.input_tensors(), places, strict=True)
    ]


def donated(order: PortOrder, options: CompileOptions) -> tuple[int, ...]:
    """The positions of the donated arguments."""
    return tuple(range(len(order.written))) if options.donate else ()


def with_token(program: Program, function: Any) -> Any:
    """`function` with an additional constant output if the program fetches nothing.

    New state is donated to the next step, so the host cannot wait for it. It waits for this token.
    """
    return named_step(program.name, function, not program.ports("fetch"))


def named_step(name: str, function: Any, token: bool) -> Any:
    """`function` under a name, as a function that gives a list, perhaps with a token at its end."""

    def with_outputs(*args: Any) -> list[Any]:
        outputs = list(function(*args))
        return [*outputs, jnp.zeros((), jnp.int32)] if token else outputs

    with_outputs.__name__ = name
    return with_outputs
