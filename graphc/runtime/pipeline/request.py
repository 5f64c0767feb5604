"""What is asked of the compiler, as one record."""

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
    """A program, the sizes of its feeds, and the devices that it is for.

    Attributes:
        prepared: the program of a fetch set.
        shapes: of the feeds in program order, global; those of one step.
        options: see `CompileOptions`.
        strategy: how several devices share the work; None without one.
        steps: None, or how many steps a run makes in a loop on the device.
        device: the one that everything is to run on, whatever the program asks for.
        base: the name of the device that has what asks for none; None: see `devices.placer`.
        soft: whether a request for a device that is not there is overridden.
        machine: the one that it is compiled for, where that is not this one.
    """

    prepared: Prepared
    shapes: Sequence[Sequence[int]]
    options: CompileOptions
    strategy: Strategy | None = None
    steps: int | None = None
    device: jax.Device | None = None
    base: str | None = None
    soft: bool = True
    machine: Machine | None = None

    def under(self, options: CompileOptions) -> CompileRequest:
        """The same under other options."""
        return replace(self, options=options, prepared=self.prepared.under(options))
