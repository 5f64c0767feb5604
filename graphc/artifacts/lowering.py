"""Programs of artifacts as JAX functions of flat arrays, for export and for compilation.

State is passed by name here, one array for each variable, because a file does not depend on how a
session stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import Mesh, Sharding, SingleDeviceSharding

from graphc.config import CompileOptions
from graphc.devices.discovery import default_device
from graphc.devices.strategy import DataParallel
from graphc.errors import GraphcError
from graphc.interrupts import uninterrupted
from graphc.ir.node import EMPTY
from graphc.ir.program import Program
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.passes.core.target import Target
from graphc.passes.manager import PassReport
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.feeds.shares import AXIS_NAME
from graphc.runtime.pipeline.fitting import fit
from graphc.runtime.targets.executors import cut_along
from graphc.runtime.targets.jax_program import (
    chosen_xla_options,
    refused,
    suited,
    with_token,
    x64,
)
from graphc.runtime.targets.replicated import on_replicas

_DEFAULT: Final = CompileOptions()


@dataclass(frozen=True)
class Places:
    """The devices of the arrays of a step.

    Attributes:
        devices: one, or one for each replica.
        home: the devices of state.
        feeds: the devices of each input.
    """

    devices: tuple[jax.Device, ...]
    home: Sharding
    feeds: tuple[Sharding, ...]


def places_on(
    devices: Sequence[jax.Device], splits: Sequence[int | None], replicated: bool
) -> Places:
    """The places on one device, or on several devices with replicated state and each input split
    along its axis."""
    if not replicated:
        here = SingleDeviceSharding(devices[0])
        return Places((devices[0],), here, (here,) * len(splits))
    mesh = Mesh(np.array(devices), (AXIS_NAME,))
    feeds = tuple(cut_along(mesh, axis) for axis in splits)
    return Places(tuple(devices), cut_along(mesh, None), feeds)


@dataclass(frozen=True)
class Function:
    """A jitted function of flat arrays, and the properties of its arguments.

    Attributes:
        splits: for each fed input of the program, the axis along which the replicas split it.
        local: the program that each device runs.
        report: the effect of the passes for one device.
        notes: operations that cost time on several devices, one line each.
        xla_options: the XLA options for the device that it is compiled for.
    """

    jitted: Any
    arguments: list[jax.ShapeDtypeStruct]
    wide: bool
    splits: tuple[int | None, ...]
    local: Program
    report: PassReport
    notes: Sequence[str] = ()
    xla_options: Mapping[str, str | int | bool | float] = field(default_factory=dict)

    def lower(self) -> Any:
        """JAX's lowered stage."""
        return uninterrupted(self._lower)

    def _lower(self) -> Any:
        with x64(self.wide):
            return self.jitted.lower(*self.arguments)


def for_one(
    program: Program,
    donated: int,
    sizes: Mapping[str, Any] | None = None,
    device: jax.Device | None = None,
    options: CompileOptions = _DEFAULT,
    budget: int | None = None,
) -> Function:
    """The function of a program whose ports are in order, for one device.

    Args:
        donated: how many of the first arguments are donated.
        sizes: named sizes -> JAX's symbolic ones.
        device: the device; None for any device.
        options: the options of the passes and of XLA for that device.
        budget: see `passes.recompute`; None disables recomputation.
    """
    xla_options: Mapping[str, str | int | bool | float] = EMPTY
    platform = Target.platform if device is None else device.platform
    program, report = suited(program, options, platform, budget)
    if device is not None:
        xla_options = chosen_xla_options(program, options, device)
    wide = needs_x64(program)
    function = with_token(program, to_function(program, sizes=sizes))
    jitted = jax.jit(
        function,
        donate_argnums=tuple(range(donated)),
        keep_unused=True,
        in_shardings=None if device is None else SingleDeviceSharding(device),
    )
    with x64(wide):
        arguments = [
            jax.ShapeDtypeStruct(t.type.bind(sizes or {}).shape, t.type.dtype)
            for t in program.input_tensors()
        ]
    splits = (None,) * len(program.ports("feed"))
    return Function(jitted, arguments, wide, splits, program, report, xla_options=xla_options)


def for_replicas(
    program: Program,
    devices: Sequence[jax.Device],
    options: CompileOptions = _DEFAULT,
    budget: int | None = None,
) -> Function:
    """The function of a bound program whose ports are in order, with its batch split over devices.
    The state that it assigns is donated.

    Args:
        budget: the budget of each device, as in `for_one`.

    Raises:
        LayoutError: no input has a batch axis.
    """
    state = [*program.ports("state"), *program.new_state()]
    layout = StateLayout({port.name: port.tensor.type for port in state})
    options = replace(options, check_numerics=False)  # files cannot report its results
    made = on_replicas(program, layout, options, DataParallel(list(devices)), {}, budget)
    splits = tuple(feed.axis for feed in made.interface.feeds)
    return Function(
        made.jitted,
        list(made.arguments),
        made.interface.wide,
        splits,
        made.local,
        made.report,
        made.interface.notes,
        made.xla_options(options),
    )


def compiled_within(
    limit: int | None,
    make: Callable[[int | None], Function],
    compile: Callable[[Function], Any],
    name: str | None = None,
) -> tuple[Function, Any]:
    """The fastest function found whose run uses at most `limit` bytes on each device, and its
    compiled form: see `runtime.fitting`. Without a limit, the function has no recomputation.

    Args:
        make: returns the function for a budget, see `for_one`.
        name: the name of the limit in errors, if the options do not set it.

    Raises:
        MemoryLimitError: no function fits.
    """
    if limit is None:
        function = make(None)
        return function, compile(function)
    found = fit(make(None), make, lambda function: (None, compile(function)), limit, name)
    return found.made, found.compiled


def compiled_program(
    key: Mapping[str, str],
    lower: Callable[[], Any],
    devices: Sequence[jax.Device],
    xla_options: Mapping[str, str | int | bool | float] = EMPTY,
) -> Any:
    """Compiles `lower()` with XLA. All programs of artifacts are compiled here.

    Args:
        key: what `lower` depends on besides the environment: the checksum of the program, its form,
            and its sizes.
        devices: the devices for which it is compiled; by default, the default device.
        xla_options: options of XLA's compiler by name.

    Raises:
        ExecutionError: XLA rejects it.
    """
    with _refusing(devices):
        lowered = lower()
    return uninterrupted(_compiled, lowered, devices, dict(xla_options) or None)


def _compiled(lowered: Any, devices: Sequence[jax.Device], xla_options: Any) -> Any:
    with _refusing(devices):
        return lowered.compile(compiler_options=xla_options)


@contextmanager
def _refusing(devices: Sequence[jax.Device]) -> Iterator[None]:
    """Turns errors of JAX and XLA into graphc's."""
    try:
        yield
    except (GraphcError, OSError):  # a signal handler raised TimeoutError; XLA raises no OSError
        raise
    except Exception as error:
        device = devices[0] if devices else default_device()
        raise refused(error, device, _DEFAULT) from error
