"""Runs a compiled program on one device or on several.

An executor takes the state buffers that the program assigns (donated), those that it only reads,
and the feeds. It returns the fetched values and the new buffers. It does not need the program
itself; see `runtime.targets.interface`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from graphc.devices.mesh import jax_mesh
from graphc.errors import ExecutionError, StateError
from graphc.interrupts import uninterrupted
from graphc.ir.costs import bytes_of_type
from graphc.ir.stack import within_stack
from graphc.runtime.buffers.layout import Buffer, StateLayout
from graphc.runtime.buffers.packing import place_on
from graphc.runtime.core.across import is_across
from graphc.runtime.core.failures import RUN_FAILED, raise_lost_peer
from graphc.runtime.core.forking import FORKING, SharedLock
from graphc.runtime.feeds.shares import AXIS_NAME
from graphc.runtime.targets import room
from graphc.runtime.targets.interface import PARTITIONED, SHARDED, SINGLE, Home, Interface
from graphc.runtime.targets.narrow_arguments import from_host, narrow_places
from graphc.runtime.targets.room import Need, find_room, need_of

# Held while a program over several devices is dispatched. If two threads dispatched at the same
# time, one device could get the first program first and another device the second. Each would then
# wait forever for the other's part of a collective.
ONE_AT_A_TIME = SharedLock()


class Places(NamedTuple):
    """The numbers of the buffers that a step takes and assigns, in the step's order."""

    written: list[int]
    read: list[int]
    assigned: list[int]

    @staticmethod
    def of(interface: Interface, layout: StateLayout) -> Places:
        """The places in `layout`, which must have all these buffers."""
        number = {buffer: i for i, buffer in enumerate(layout.buffers)}
        rows = (interface.written, interface.read, interface.assigned)
        return Places(*([number[buffer] for buffer in row] for row in rows))


class Executor:
    """Runs a compiled program. Any thread may call it.

    Args:
        interface: the arguments and results of the program.
        compile: returns the compiled program, a `jax.stages.Compiled` that takes and returns the
            arrays that `interface` lists. It compiles at the first call, unless this was done
            before.
        devices: one per replica.
        max_in_flight: the number of runs that may be dispatched and not finished.

    Attributes:
        homes: the sharding of each buffer of state that the program uses.
        spans_processes: whether some of the devices belong to other processes.
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
        self._need: Need | None = None  # set together with the compiled program
        self._turn = None if interface.kind == SINGLE else ONE_AT_A_TIME
        self.devices = tuple(devices)
        self.homes, self._default, self._feeds = shardings(interface, devices)
        self.spans_processes = is_across(self._default)
        self._in_flight = InFlight(max_in_flight, interface)
        self._narrow = narrow_places(interface.argument_dtypes, self.devices[0].platform)

    @property
    @within_stack
    def compiled(self) -> Any:
        """The compiled program. Waits while it is being compiled.

        Raises:
            ExecutionError: XLA rejects it.
            StateError: it is not compiled, and this process cannot use devices.
        """
        if self._compiled is None:
            FORKING.check()
            self._compiled = self._compile()
        return self._compiled

    def place(self, value: Any, buffer: Buffer) -> jax.Array:
        """The value of a buffer of state, placed where this executor needs it if it uses it."""
        return place_on(value, self.home(buffer))

    def home(self, buffer: Buffer) -> jax.sharding.Sharding:
        """The sharding of a buffer of state in this executor."""
        return self.homes.get(buffer, self._default)

    @property
    def feed_homes(self) -> list[jax.sharding.Sharding]:
        """The sharding of each feed."""
        return list(self._feeds)

    @property
    def need(self) -> Need:
        """The memory that a run allocates."""
        if self._need is None:
            self._need = need_of(self.compiled, self.interface, self.devices)
            self._in_flight.waited_for = self._need.blocks >= room.SMALL
        return self._need

    @property
    def may_be_refused(self) -> bool:
        """Whether the system may refuse memory to a run that was already dispatched."""
        return (self._need or self.need).blocks >= room.SMALL and room.is_limited()

    def has_room(self) -> bool:
        """Whether the system has memory for one more run, now or after all earlier runs have
        finished.

        Raises:
            StateError, ExecutionError: an earlier run failed: see `InFlight.wait`.
        """
        if room.has_room(self.need.blocks):
            return True
        self._in_flight.finish()
        return room.has_room(self.need.blocks)

    def __call__(self, written: Sequence[Any], read: Sequence[Any], feeds: Sequence[Any]) -> Any:
        """(fetched values, assigned state). Feeds have their global shapes.

        Raises:
            ExecutionError: there is not enough memory; nothing has run.
        """
        if self._turn is None:
            return self._call(written, read, feeds)
        with self._turn.lock:
            return self._call(written, read, feeds)

    def update(self, buffers: list[Any], places: Places, feeds: Sequence[Any]) -> Any:
        """Runs on `buffers`, replaces them with the new ones, and returns the fetched values.

        An interrupt takes effect before or after this call, never during it.

        Raises:
            ExecutionError: there is not enough memory; nothing has run.
        """
        if self._turn is None:
            return self._update(buffers, places, feeds)
        with self._turn.lock:
            return self._update(buffers, places, feeds)

    def wait(self) -> None:
        """Waits until one more run may be dispatched.

        Raises:
            StateError, ExecutionError: an earlier run failed: see `InFlight.wait`.
        """
        self._in_flight.wait()

    def finish(self) -> None:
        """Waits until no run is in flight.

        Raises:
            StateError, ExecutionError: a run failed: see `InFlight.wait`.
        """
        self._in_flight.finish()

    def copies(self, buffers: Sequence[Any]) -> list[Any]:
        """Copies of buffers of state. Returns when they are complete."""
        with nullcontext() if self._turn is None else self._turn.lock, jax.enable_x64(True):
            return copies_of(buffers)

    def forget(self) -> None:
        """Forgets the runs in flight, so that no later call reports a failure that the caller has
        already reported."""
        self._in_flight.forget()

    def _call(self, written: Sequence[Any], read: Sequence[Any], feeds: Sequence[Any]) -> Any:
        feeds = self._spread(feeds)
        self._in_flight.wait()
        if (self._need or self.need).is_large:
            self._find_room([*written, *read])
        return self._in_flight.split(self._start([*written, *read, *feeds]))

    def _update(self, buffers: list[Any], places: Places, feeds: Sequence[Any]) -> Any:
        feeds = self._spread(feeds)
        self._in_flight.wait()
        if (self._need or self.need).is_large:
            self._find_room(buffers)
        return uninterrupted(self._hand_over, buffers, places, feeds)

    def _hand_over(self, buffers: list[Any], places: Places, feeds: Sequence[Any]) -> Any:
        """Starts the run and puts the new state in place of the old one."""
        written, read, assigned = places
        old = [buffers[i] for i in written]
        constant = [buffers[i] for i in read]
        fetched, new = self._in_flight.split(self._start([*old, *constant, *feeds]))
        for i, buffer in zip(assigned, new, strict=True):
            buffers[i] = buffer
        return fetched

    def _start(self, values: list[Any]) -> Any:
        """Starts a run with these arguments. A `ClusterError` says that a process has ended."""
        compiled = self._compiled or self.compiled
        if self._narrow:
            values = from_host(values, self._narrow)
        try:
            if self.interface.wide:
                with jax.enable_x64(True):
                    return compiled(*values)
            return compiled(*values)
        except ValueError as error:
            if self.spans_processes:
                raise_lost_peer(error)
            raise

    def _spread(self, feeds: Sequence[Any]) -> Sequence[Any]:
        """The feeds. Those that are on devices are moved to where the program needs them."""
        for value in feeds:
            if type(value) is not np.ndarray:
                rows = zip(feeds, self._feeds, strict=True)
                return [spread(value, where) for value, where in rows]
        return feeds

    def _find_room(self, buffers: Sequence[Any]) -> None:
        """Makes sure that there is memory for one more run. `buffers` are at least those that it
        takes.

        Raises:
            ExecutionError: there is not enough memory.
        """

        def finish() -> None:
            self._in_flight.finish()
            jax.block_until_ready(list(buffers))

        find_room(self.need, self.interface, self.devices, finish)


class Shardings(NamedTuple):
    """The shardings of the arrays of an executable.

    Attributes:
        homes: the sharding of each buffer of state that it uses.
        default: the sharding of any other buffer.
        feeds: the shardings of the feeds, in order.
    """

    homes: Mapping[Buffer, jax.sharding.Sharding]
    default: jax.sharding.Sharding
    feeds: Sequence[jax.sharding.Sharding]


def shardings(interface: Interface, devices: Sequence[jax.Device]) -> Shardings:
    """The shardings of the state and of each feed."""
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
    """The sharding of a value that is split along an axis over the devices of a mesh; with None,
    the value is whole on each device."""
    spec = () if axis is None else (*[None] * axis, AXIS_NAME)
    return NamedSharding(mesh, PartitionSpec(*spec))


def copies_of(arrays: Sequence[Any]) -> list[Any]:
    """Copies of arrays on their devices. Returns when they are complete. Nothing is compiled for
    this, because compilation might find no memory either."""
    made = [
        jax.device_put(array, array.sharding, may_alias=False)
        if isinstance(array, jax.Array)
        else array.copy()
        for array in arrays
    ]
    jax.block_until_ready(made)
    return made


def put_on(values: Sequence[Any], where: Sequence[jax.sharding.Sharding]) -> list[jax.Array]:
    """Starts to move arrays to the given shardings and keeps 64-bit dtypes. An array that is
    already there is not copied. Nothing may write to the arrays."""
    with jax.enable_x64(True):
        placed: list[jax.Array] = jax.device_put(list(values), list(where))
        return placed


def spread(value: Any, where: jax.sharding.Sharding) -> Any:
    """A feed. If it is already on devices, its pieces are moved to where they are needed."""
    if isinstance(value, jax.Array) and value.sharding != where:
        with jax.enable_x64(True):  # otherwise JAX would treat a 64-bit array as a 32-bit one
            return jax.device_put(value, where)
    return value


class InFlight:
    """Limits the number of steps that are not finished. Call `wait`, dispatch the step, then call
    `split`.

    The wait comes first, so that an interrupt (Ctrl-C) finds all state in its place. Threads that
    wait at the same time may each dispatch one more step.

    With collectives on virtual CPU devices, an unbounded queue can starve a rendezvous and abort
    the process. On other devices it would let the memory use grow.
    """

    def __init__(self, bound: int, interface: Interface) -> None:
        self._assigned = len(interface.assigned)
        self._bound = bound
        self.waited_for = False  # if memory is limited: whether the caller waits for each step
        self._waiting: deque[Any] = deque()
        sizes = [bytes_of_type(value.type) for value in interface.fetches] or [0]
        fetched = self._assigned + len(interface.fetches)
        self._of_state, self._of_fetches = slice(self._assigned), slice(self._assigned, fetched)
        watched = self._assigned + sizes.index(min(sizes))
        self._watched = slice(watched, watched + 1)
        if interface.kind == PARTITIONED:  # one token per device: see `runtime.targets.scripts`
            self._watched = slice(fetched, None)

    def wait(self) -> None:
        """Waits until one more step may be dispatched.

        Raises:
            StateError, ExecutionError: an earlier step failed; it is a StateError if the step
                assigns state.
        """
        while len(self._waiting) >= self._bound:
            self._wait_for_the_oldest()

    def finish(self) -> None:
        """Waits until no step is in flight.

        Raises:
            StateError, ExecutionError: a step failed, as for `wait`.
        """
        while self._waiting:
            self._wait_for_the_oldest()

    def forget(self) -> None:
        """Stops waiting for the steps in flight."""
        self._waiting.clear()

    def _wait_for_the_oldest(self) -> None:
        waiting = self._waiting
        try:
            step = waiting.popleft()  # first, so that no other thread removes it too
        except IndexError:
            return  # other threads removed all of them
        try:
            for value in step:
                if not value.is_deleted():  # by the caller
                    value.block_until_ready()
        except RUN_FAILED as error:
            waiting.clear()
            if self.waited_for and room.is_limited():
                return  # only the call that dispatched the step reports it
            kind = StateError if self._assigned else ExecutionError
            raise kind(f"an earlier run failed: {error}") from error
        except BaseException:  # raised by a signal handler: the step did not fail
            waiting.appendleft(step)
            raise

    def split(self, outputs: Sequence[Any]) -> tuple[Any, Any]:
        """(fetched values, assigned state) of a step that was just dispatched."""
        self._waiting.append(outputs[self._watched])
        return outputs[self._of_fetches], outputs[self._of_state]
