"""`Source`: what a program of an artifact is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax

from graphc.artifacts.container import Members
from graphc.artifacts.limits import Limits
from graphc.artifacts.manifest import Entry, Manifest
from graphc.ir.types import TensorType
from graphc.store.folder import ExecutableCache


@dataclass(frozen=True)
class Source:
    """One signature in an open artifact, and the devices for it.

    Attributes:
        platform: the platform of the devices, in the notation of `gc.save`.
        trust_native: whether native code may be run.
        limits: bounds for the other forms.
        cache: where compiled programs are stored; None stores none.
        most_steps: for how many sizes a compiled program is kept; None keeps all.
    """

    name: str
    entry: Entry
    manifest: Manifest
    members: Members
    devices: tuple[jax.Device, ...]
    platform: str
    trust_native: bool
    limits: Limits = field(default_factory=Limits)
    cache: ExecutableCache | None = None
    most_steps: int | None = None

    @property
    def types(self) -> dict[str, TensorType]:
        """The types of the variables."""
        return {row.value.name: row.value.type for row in self.manifest.variables}

    @property
    def replicated(self) -> bool:
        return self.entry.devices > 1

    @property
    def arguments(self) -> int:
        """The number of arrays that the program takes."""
        return len(self.entry.written) + len(self.entry.read) + len(self.entry.inputs)

    @property
    def results(self) -> int:
        """The number of arrays that it returns."""
        return len(self.entry.assigned) + (self.entry.fetches or 1)
