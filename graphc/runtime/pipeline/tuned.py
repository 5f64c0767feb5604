"""The fastest choice that `gc.tune` found for a program, stored in the executable cache.

Its key is derived from the program's key under the tuned options. So a change that would give
another executable (sizes, versions, the machine) also gives another key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from graphc.config import CompileOptions
from graphc.errors import GraphcError
from graphc.ir.node import EMPTY
from graphc.runtime.buffers.layout import OWN, Buffer, StateLayout
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.executable_cache import cache_for, fitted
from graphc.runtime.targets.interface import Interface


@dataclass(frozen=True)
class Choice:
    """Changes to the user's options.

    Attributes:
        name: a readable name.
        options: fields of `CompileOptions` and their new values.
        xla_options: options to add to those of XLA. Options that the user set stay unchanged.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    xla_options: Mapping[str, str | int | bool | float] = field(default_factory=dict, hash=False)

    def apply(self, options: CompileOptions) -> CompileOptions:
        """`options` with these changes.

        Raises:
            AttributeValueError: an option does not exist or has an invalid value.
        """
        xla = {**self.xla_options, **options.xla_options}
        return replace(options, **{**self.options, "xla_options": xla})

    def __add__(self, other: Choice) -> Choice:
        """Both choices. They must not contradict each other."""
        return Choice(
            f"{self.name}, {other.name}",
            {**self.options, **other.options},
            {**self.xla_options, **other.xla_options},
        )

    def contradicts(self, other: Choice) -> bool:
        """Whether both change the same thing."""
        same = self.options.keys() & other.options.keys()
        return bool(same or self.xla_options.keys() & other.xla_options.keys())

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "options": dict(self.options),
            "xla_options": dict(self.xla_options),
        }


@dataclass(frozen=True)
class Tuned:
    """The choice that won.

    Attributes:
        choice: how to compile. It has no changes if the unchanged options were as fast.
        ratio: its time divided by the time with the unchanged options.
        buffers: the buffers of its state during the measurement.
    """

    choice: Choice
    ratio: float
    buffers: tuple[Buffer, ...]

    def __str__(self) -> str:
        return f"tuned: {self.choice.name}, {self.ratio:.2f} of the time without"


def find_tuned(compilation: Compilation, layout: StateLayout) -> Tuned | None:
    """The choice stored for this program, or None.

    The options must allow it. The state must have the buffers of the measurement, or it must be
    possible to give it these buffers and keep the shared buffers of other programs. Otherwise this
    program or the others might be slower.
    """
    cache = cache_for(compilation) if compilation.options.tuned else None
    if cache is None or compilation.key is None:
        return None
    entry = cache.get(_key(compilation.key))
    if entry is None:
        return None
    tuned = _from_json(entry.metadata.get("tuned", EMPTY), compilation.options)
    after = None if tuned is None else fitted(layout, tuned.buffers)
    shared = [buffer for buffer in layout.buffers if buffer.kind != OWN]
    return None if after is None or not after.has(shared) else tuned


def keep_tuned(compilation: Compilation, tuned: Tuned | None, interface: Interface) -> bool:
    """Records this choice for later compilations of the program. None removes an earlier record,
    so that the unchanged options are used.

    Returns:
        Whether the record was changed. This is False if there is no cache, if the cache does not
        accept such programs, or if it cannot be written.
    """
    cache = cache_for(compilation)
    if cache is None or compilation.key is None:
        return False
    if tuned is None:
        return cache.remove(_key(compilation.key))
    metadata = {
        "program": f"{interface.name} ({tuned})",
        "environment": compilation.environment,
        "tuned": {
            **tuned.choice.to_json(),
            "ratio": tuned.ratio,
            "buffers": [buffer.to_json() for buffer in tuned.buffers],
        },
    }
    return cache.put(_key(compilation.key), metadata, b"")


def _key(program: str) -> str:
    return hashlib.sha256(f"tuned {program}".encode()).hexdigest()


def _from_json(data: Mapping[str, Any], options: CompileOptions) -> Tuned | None:
    """The choice in an entry. It is None if `keep_tuned` did not write the data; then the unchanged
    options are used."""
    try:
        options_of = {k: tuple(v) if type(v) is list else v for k, v in data["options"].items()}
        choice = Choice(data["name"], options_of, data["xla_options"])
        choice.apply(options)
        buffers = tuple(Buffer.from_json(buffer) for buffer in data["buffers"])
        return Tuned(choice, float(data["ratio"]), buffers)
    except (KeyError, TypeError, ValueError, AttributeError, GraphcError):
        return None
