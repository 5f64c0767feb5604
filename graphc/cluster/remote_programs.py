"""RemotePrograms of steps as bytes, and as compiled programs in the processes that run them."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from graphc.config import CompileOptions
from graphc.ir.program import Program
from graphc.ir.serial import dump_program, from_bytes, load_program, to_bytes
from graphc.ops.catalogue import CATALOGUE
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.executable_cache import CacheSlot
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.step.compiler import make
from graphc.runtime.targets.prepare import Prepared
from graphc.runtime.workers.step_parts import Part


@dataclass(frozen=True)
class Sent:
    """A program on its way to another process.

    Attributes:
        key: names the program among those of a session.
        data: the program.
        options: how to compile it.
    """

    key: int
    data: bytes
    options: CompileOptions


def send(key: int, program: Program, options: CompileOptions) -> Sent:
    """A program as bytes.

    Raises:
        SerialError: the program holds a Python function, or an operator that the user registered.
    """
    return Sent(key, to_bytes(*dump_program(program)), options)


def remote_options(options: CompileOptions) -> CompileOptions:
    """The options of a session for such programs: each variable has an array of its own."""
    return replace(options, state_buffers="separate", max_in_flight=1)


def state_as_feeds(program: Program) -> Program:
    """The program with its state as feeds, after the other feeds."""
    feeds, state = program.ports("feed"), program.ports("state")
    return program.replace(inputs=(*feeds, *(p._replace(kind="feed") for p in state)))


class RemoteProgram:
    """A program that this process runs on one device. XLA's executable comes from the cache of
    compiled programs if it is there.

    Args:
        device: by default, the first of this process.
    """

    def __init__(self, sent: Sent, device: jax.Device | None = None) -> None:
        program = load_program(*from_bytes(sent.data), CATALOGUE)
        self.names = tuple(port.name for port in program.ports("state"))
        self.assigned = tuple(port.name for port in program.new_state())
        types = {port.name: port.tensor.type for port in program.ports("state")}
        types |= {port.name: port.tensor.type for port in program.new_state()}
        shapes: Any = [port.tensor.type.shape for port in program.ports("feed")]
        layout = StateLayout({}).with_variables(types)
        prepared = Prepared(program, {}, sent.options)
        device = jax.local_devices()[0] if device is None else device
        request = CompileRequest(prepared, shapes, sent.options, device=device)
        compilation = Compilation(request)
        made = make(compilation, CacheSlot(compilation, layout), layout)
        self._layout = made.layout
        self._part = Part(made.executor)

    def __call__(
        self, feeds: Sequence[Any], state: MutableMapping[str, Any]
    ) -> list[np.ndarray[Any, Any]]:
        """The fetched values on the host. New values of variables replace those in `state`."""
        return [np.asarray(value) for value in self.on_device(feeds, state)]

    def on_device(self, feeds: Sequence[Any], state: MutableMapping[str, Any]) -> list[Any]:
        """The fetched values on the device, when they are complete; otherwise as a call."""
        buffers = [state.get(buffer.name) for buffer in self._layout.buffers]
        fetched = self._part(self._layout, buffers, list(feeds))
        for buffer, value in zip(self._layout.buffers, buffers, strict=True):
            if buffer.name in self.assigned:
                state[buffer.name] = value
        return fetched


class RemotePrograms:
    """The programs that a process has received, compiled when they are first used."""

    def __init__(self) -> None:
        self._programs: dict[int, RemoteProgram] = {}

    def get(self, sent: Sent) -> RemoteProgram:
        """The program of this key."""
        found = self._programs.get(sent.key)
        if found is None:
            found = self._programs[sent.key] = RemoteProgram(sent)
        return found


def bytes_of(values: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, int]:
    """The size of each value in bytes."""
    return {name: value.nbytes for name, value in values.items()}
