"""What runs a bound program: on one device, or replicated through `jax.pmap`.

An executor takes the buffers of state that the program assigns (donated), those it only reads,
and the feeds; and gives the fetched values and the new buffers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from graphc.config import CompileOptions
from graphc.errors import ExecutionError, GraphError, StateError
from graphc.ir.dims import product
from graphc.ir.program import Port, Program
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.runtime.counters import COUNTERS


@dataclass(frozen=True)
class PortOrder:
    """The order in which a compiled program takes and gives its values.

    Attributes:
        written: state that the program takes and assigns, donated; in this order first.
        read: state that it only reads.
        feeds: the feeds.
        assigned: the state it gives: that of `written` first, in the same order.
        fetches: the values it gives.
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


class SingleDevice:
    """Runs a program on one device."""

    kind = "single"

    def __init__(self, program: Program, options: CompileOptions, device: jax.Device) -> None:
        self.order = PortOrder.of(program)
        self.program = self.order.reorder(program)
        self.device = device
        self.wide = needs_x64(program)
        self._in_flight = InFlight(options.max_in_flight, self.program, self.order)
        self.home: jax.sharding.Sharding = jax.sharding.SingleDeviceSharding(device)
        arguments = [
            jax.ShapeDtypeStruct(p.tensor.type.shape, p.tensor.type.dtype, sharding=self.home)
            for p in self.program.inputs
        ]
        donated = range(len(self.order.written)) if options.donate else ()
        function = with_token(self.program, to_function(self.program))
        jitted = jax.jit(function, donate_argnums=tuple(donated), keep_unused=True)
        self.lowered, self.compiled, self.seconds = compile_jax(
            jitted, arguments, options, self.wide
        )

    def place(self, value: Any) -> jax.Array:
        """A state value where this executor wants it."""
        return place_on(value, self.device)

    def __call__(self, written: Sequence[Any], read: Sequence[Any], feeds: Sequence[Any]) -> Any:
        """(fetched values, assigned state)."""
        feeds = [spread(value, self.home) for value in feeds]
        self._in_flight.wait()
        if self.wide:
            with jax.enable_x64(True):
                outputs = self.compiled(*written, *read, *feeds)
        else:
            outputs = self.compiled(*written, *read, *feeds)
        return self._in_flight.split(outputs)


def place_on(value: Any, where: Any) -> jax.Array:
    """`value` committed to a device or sharding, 64-bit dtypes kept; a private copy."""
    if isinstance(value, np.ndarray):
        value = value.copy()  # on CPU the array may be aliased, and state is donated
    with jax.enable_x64(True):
        if isinstance(value, jax.Array):  # first where it is: to several devices, JAX aliases it
            value = jax.device_put(value, value.sharding, may_alias=False)
        placed: jax.Array = jax.device_put(value, where)
        return placed


def spread(value: Any, where: jax.sharding.Sharding) -> Any:
    """A feed that is on devices already, moved to where its pieces belong."""
    if isinstance(value, jax.Array) and value.sharding != where:
        with jax.enable_x64(True):  # without it JAX would take a 64-bit array for a 32-bit one
            return jax.device_put(value, where)
    return value


def with_token(program: Program, function: Any) -> Any:
    """`function` with a constant output more where the program fetches nothing.

    New state is donated to the next step, so it cannot be waited for; the token can.
    """
    wants_token = not program.ports("fetch")

    def with_outputs(*args: Any) -> list[Any]:
        outputs = list(function(*args))
        return [*outputs, jnp.zeros((), jnp.int32)] if wants_token else outputs

    with_outputs.__name__ = program.name
    return with_outputs


def compile_jax(
    jitted: Any, arguments: Sequence[Any], options: CompileOptions, wide: bool
) -> tuple[Any, Any, dict[str, float]]:
    """Traces, lowers and compiles; gives the two stages and the seconds each took."""
    with jax.enable_x64(True) if wide else nullcontext():
        start = time.perf_counter()
        COUNTERS.traces += 1
        lowered = jitted.lower(*arguments)
        traced = time.perf_counter()
        COUNTERS.compiles += 1
        try:
            compiled = lowered.compile(compiler_options=dict(options.xla_options) or None)
        except Exception as error:
            raise ExecutionError(
                f"XLA could not compile the program: {error}",
                mend="check CompileOptions.xla_options" if options.xla_options else None,
            ) from error
        done = time.perf_counter()
    return lowered, compiled, {"lower": traced - start, "compile": done - traced}


class InFlight:
    """Bounds the steps whose results are not there yet: `wait`, dispatch, `split`.

    The waiting comes first: an interrupt (Ctrl-C) then finds all state in its place.

    With collectives on virtual CPU devices an unbounded queue can starve a rendezvous and abort
    the process; elsewhere it would let memory grow.
    """

    def __init__(self, bound: int, program: Program, order: PortOrder) -> None:
        self._assigned = len(order.assigned)
        self._bound = bound
        self._waiting: deque[Any] = deque()
        sizes = [_bytes(port) for port in order.fetches] or [0]
        self._watched = self._assigned + sizes.index(min(sizes))
        self._fetched = self._assigned + len(order.fetches)

    def wait(self) -> None:
        """Waits until one more step may be dispatched.

        Raises:
            StateError, ExecutionError: an earlier step failed, with or without what it assigned.
        """
        waiting = self._waiting
        while len(waiting) >= self._bound:
            try:
                waiting[0].block_until_ready()
            except Exception as error:
                waiting.clear()
                kind = StateError if self._assigned else ExecutionError
                raise kind(f"an earlier run failed: {error}") from error
            waiting.popleft()

    def split(self, outputs: Sequence[Any]) -> tuple[Any, Any]:
        """(fetched values, assigned state) of a step just dispatched."""
        self._waiting.append(outputs[self._watched])
        return outputs[self._assigned : self._fetched], outputs[: self._assigned]


def _bytes(port: Port) -> int:
    type = port.tensor.type
    size = product(type.shape)
    if not isinstance(size, int):
        raise GraphError(f"{port.name!r} is {type}: sizes must be bound before this")
    return size * type.dtype.itemsize
