"""A request to the compiler, as one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax

from graphc.config import CompileOptions
from graphc.devices.machine import Machine
from graphc.devices.mesh import Strategy
from graphc.runtime.targets.prepare import Prepared


@dataclass(frozen=True, eq=False)
class CompileRequest:
    """A program, the sizes of its feeds, and the devices that it is compiled for.

    Attributes:
        prepared: the program of a fetch set.
        shapes: the global shapes of the feeds of one step, in program order.
        options: see `CompileOptions`.
        strategy: how several devices share the work, or None.
        steps: the number of steps that a run makes in a loop on the device, or None.
        device: the device that runs everything; it overrides the requests of the program.
        commits: whether results are committed to `device`, also if it is the default device.
        base: the name of the default device, which gets everything that requests no device; for
            None see `devices.placer`.
        soft: whether a request for a missing device is overridden.
        machine: the machine to compile for, if it is not this one.
    """

    prepared: Prepared
    shapes: Sequence[Sequence[int]]
    options: CompileOptions
    strategy: Strategy | None = None
    steps: int | None = None
    device: jax.Device | None = None
    commits: bool = False
    base: str | None = None
    soft: bool = True
    machine: Machine | None = None

    def under(self, options: CompileOptions) -> CompileRequest:
        """The same request under other options."""
        return replace(self, options=options, prepared=self.prepared.under(options))
