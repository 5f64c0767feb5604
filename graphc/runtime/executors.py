"""What runs a compiled program, on one device or replicated on several.

An executor takes the buffers of state that the program assigns (donated), those it only reads,
and the feeds; and gives the fetched values and the new buffers. It needs no program: see
`runtime.interface`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from graphc.devices.mesh import jax_mesh
from graphc.errors import ExecutionError, StateError
from graphc.ir.stack import within_stack
from graphc.ir.types import TensorType
from graphc.runtime.interface import PARTITIONED, SHARDED, SINGLE, Home, Interface
from graphc.runtime.layout import Buffer, elements

AXIS_NAME = "replica"


class Executor:
    """Runs a compiled program.

    Args:
        interface: what the program takes and gives.
        compile: gives what takes the arrays that `interface` lists and gives a list likewise:
            a `jax.stages.Compiled`, made at the first call if not before.
        devices: as many as it has replicas.
        max_in_flight: how many runs may be dispatched and not finished.

    Attributes:
        homes: how each buffer of state lies that it touches.
    """

    def __init__(
        self,
        interface: Interface,
        compile: Callable[[], Any],
        devices: Sequence[jax.Device],
        max_in_flight: int,
    ) -> None:
        self.interface = interface
        self._compile = compile
        self._compiled: Any = None
        self.devices = tuple(devices)
        self.homes, self._default, self._feeds = shardings(interface, devices)
        self._in_flight = InFlight(max_in_flight, interface)

    @property
    @within_stack
    def compiled(self) -> Any:
        """The compiled program, waited for if it is still being made.

        Raises:
            ExecutionError: XLA refuses it.
        """
        if self._compiled is None:
            self._compiled = self._compile()
        return self._compiled

    def place(self, value: Any, buffer: Buffer) -> jax.Array:
        """The value of a buffer of state where this executor wants it, if it touches it."""
        return place_on(value, self.homes.get(buffer, self._default))

    @property
    def feed_homes(self) -> list[jax.sharding.Sharding]:
        """Where it takes each of the feeds."""
        return list(self._feeds)

    def __call__(self, written: Sequence[Any], read: Sequence[Any], feeds: Sequence[Any]) -> Any:
        """(fetched values, assigned state). Feeds have their global shapes."""
        feeds = [spread(value, where) for value, where in zip(feeds, self._feeds, strict=True)]
        self._in_flight.wait()
        compiled = self._compiled or self.compiled
        if self.interface.wide:
            with jax.enable_x64(True):
                outputs = compiled(*written, *read, *feeds)
        else:
            outputs = compiled(*written, *read, *feeds)
        return self._in_flight.split(outputs)


class Shardings(NamedTuple):
    """How the arrays of an executable lie.

    Attributes:
        homes: each buffer of state that it touches.
        default: any other.
        feeds: in order.
    """

    homes: Mapping[Buffer, jax.sharding.Sharding]
    default: jax.sharding.Sharding
    feeds: Sequence[jax.sharding.Sharding]


def shardings(interface: Interface, devices: Sequence[jax.Device]) -> Shardings:
    """How state and each of the feeds lie on the devices."""
    default: jax.sharding.Sharding = jax.sharding.SingleDeviceSharding(devices[0])
    feeds: Sequence[jax.sharding.Sharding] = [default] * len(interface.feeds)
    mesh = None
    if interface.kind == PARTITIONED:
        feeds = [jax.sharding.SingleDeviceSharding(devices[f.device]) for f in interface.feeds]
    elif interface.kind == SHARDED:
        mesh = jax_mesh(interface.mesh, devices)
        default = NamedSharding(mesh, PartitionSpec())
        feeds = [NamedSharding(mesh, PartitionSpec(*feed.spec)) for feed in interface.feeds]
    elif interface.kind != SINGLE:
        mesh = Mesh(np.array(devices), (AXIS_NAME,))
        default = cut_along(mesh, None)
        feeds = [cut_along(mesh, feed.axis) for feed in interface.feeds]

    def sharding(home: Home) -> jax.sharding.Sharding:
        if home.device is not None:
            return jax.sharding.SingleDeviceSharding(devices[home.device])
        return default if mesh is None else NamedSharding(mesh, PartitionSpec(*home.spec))

    buffers = interface.buffers
    wanted = map(sharding, interface.homes) if interface.homes else [default] * len(buffers)
    return Shardings(dict(zip(buffers, wanted, strict=True)), default, feeds)


def cut_along(mesh: Mesh, axis: int | None) -> NamedSharding:
    """Shared by the devices of a mesh along an axis; None: whole on each."""
    spec = () if axis is None else (*[None] * axis, AXIS_NAME)
    return NamedSharding(mesh, PartitionSpec(*spec))


def place_on(value: Any, where: Any) -> jax.Array:
    """`value` committed to a device or sharding, 64-bit dtypes kept; a private copy."""
    if isinstance(value, np.ndarray):
        value = value.copy()  # on CPU the array may be aliased, and state is donated
    with jax.enable_x64(True):
        if isinstance(value, jax.Array):  # first where it is: to several devices, JAX aliases it
            value = jax.device_put(value, value.sharding, may_alias=False)
        placed: jax.Array = jax.device_put(value, where)
        return placed


def put_on(values: Sequence[Any], where: Sequence[jax.sharding.Sharding]) -> list[jax.Array]:
    """Arrays that nobody writes to, on their way to where they belong, 64-bit dtypes kept; what
    lies there already stays as it is."""
    with jax.enable_x64(True):
        placed: list[jax.Array] = jax.device_put(list(values), list(where))
        return placed


def spread(value: Any, where: jax.sharding.Sharding) -> Any:
    """A feed that is on devices already, moved to where its pieces belong."""
    if isinstance(value, jax.Array) and value.sharding != where:
        with jax.enable_x64(True):  # without it JAX would take a 64-bit array for a 32-bit one
            return jax.device_put(value, where)
    return value


class InFlight:
    """Bounds the steps whose results are not there yet: `wait`, dispatch, `split`.

    The waiting comes first: an interrupt (Ctrl-C) then finds all state in its place.

    With collectives on virtual CPU devices an unbounded queue can starve a rendezvous and abort
    the process; elsewhere it would let memory grow.
    """

    def __init__(self, bound: int, interface: Interface) -> None:
        self._assigned = len(interface.assigned)
        self._bound = bound
        self._waiting: deque[Any] = deque()
        sizes = [_bytes(value.type) for value in interface.fetches] or [0]
        self._fetched = self._assigned + len(interface.fetches)
        watched = self._assigned + sizes.index(min(sizes))
        self._watched = slice(watched, watched + 1)
        if interface.kind == PARTITIONED:  # a token of each device: see `runtime.scripts`
            self._watched = slice(self._fetched, None)

    def wait(self) -> None:
        """Waits until one more step may be dispatched.

        Raises:
            StateError, ExecutionError: an earlier step failed, with or without what it assigned.
        """
        waiting = self._waiting
        while len(waiting) >= self._bound:
            try:
                for value in waiting[0]:
                    if not value.is_deleted():  # by the caller
                        value.block_until_ready()
            except Exception as error:
                waiting.clear()
                kind = StateError if self._assigned else ExecutionError
                raise kind(f"an earlier run failed: {error}") from error
            waiting.popleft()

    def split(self, outputs: Sequence[Any]) -> tuple[Any, Any]:
        """(fetched values, assigned state) of a step just dispatched."""
        self._waiting.append(outputs[self._watched])
        return outputs[self._assigned : self._fetched], outputs[: self._assigned]


def _bytes(type: TensorType) -> int:
    return elements(type) * type.dtype.itemsize
