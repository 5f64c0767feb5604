"""Moves values into and out of state buffers: all at once on the host, one by one on devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from graphc.ir.costs import bytes_of_type
from graphc.ir.types import TensorType
from graphc.runtime.buffers.layout import FLAT, OWN, STACKED, Buffer, StateLayout, elements
from graphc.runtime.core.across import agree_on, from_whole, is_across, on_host
from graphc.runtime.feeds.feed_memory import is_aligned

# Bytes. For a buffer of at least this size, avoiding a second copy matters more than compiling a
# small program.
LARGE: Final = 64 << 20

# Bytes. From this size on, a system's new memory takes longer than compiling a copy into old one.
REUSED: Final = 16 << 20

# Members of a buffer. A program that takes all of them apart is compiled for at most so many, after
# they were taken one by one so many times: compiling it takes a third of a second for 24 members.
MOST_AT_ONCE: Final = 64
ONE_BY_ONE: Final = 50


def pack(buffer: Buffer, values: Mapping[str, Any]) -> Any:
    """The buffer's value on the host, from the values of its members. A buffer of one variable has
    that variable's value."""
    members = [values[name] for name in buffer.members]
    if buffer.kind == OWN:
        return members[0]
    arrays = [np.asarray(value) for value in members]
    if buffer.kind == STACKED:
        return np.stack(arrays)
    return np.concatenate([array.reshape(-1) for array in arrays])


def unpack(buffer: Buffer, value: Any) -> dict[str, Any]:
    """The values of the members, as views of a host copy. For a buffer of one variable, the value
    itself."""
    if buffer.kind == OWN:
        return {buffer.members[0]: value}
    array = on_host(value)
    if buffer.kind == STACKED:
        return dict(zip(buffer.members, array, strict=True))
    return {
        name: array[start : start + elements(type)].reshape(type.shape)
        for name, start, type in zip(buffer.members, buffer.starts, buffer.types, strict=True)
    }


def place_on(value: Any, where: Any) -> jax.Array:
    """A private copy of `value`, committed to a device or sharding. 64-bit dtypes are kept.

    This returns only after an array on the host has been copied. Without the wait, JAX would copy
    it in another thread and hold the array until then.

    No copy aliases the array: a step cannot take over memory that belongs to NumPy. It would copy a
    donated buffer that aliases such memory, so the state would be in memory twice.
    """
    if is_across(where):
        return from_whole(on_host(value), where, place_on)
    with jax.enable_x64(True):
        from_host = not isinstance(value, jax.Array)
        if from_host:
            value, devices = np.asarray(value), _devices_of(where)
            if devices[0].platform == "cpu" and is_aligned(value):
                value = jax.device_put(value, devices[0])  # an alias
        if isinstance(value, jax.Array):  # copied in place first: a transfer aliases it
            value = jax.device_put(value, value.sharding, may_alias=False)
        placed: jax.Array = jax.device_put(value, where)
        if from_host:
            placed.block_until_ready()
        return placed


def _devices_of(where: Any) -> list[jax.Device]:
    """The devices of this process in a sharding, by their numbers; or the device itself."""
    found = where.addressable_devices if isinstance(where, Sharding) else [where]
    return sorted(found, key=lambda device: device.id)


def filled(buffer: Buffer, value_of: Callable[[str], Any], home: Sharding | None) -> Any:
    """The buffer's value from the values of its members, at its home.

    The members of a large stacked buffer are written into it one by one on its devices. So memory
    holds the buffer once, and one member twice.

    Args:
        value_of: returns a member's value; called once for each.
        home: the sharding of the buffer; None leaves the value on the host.
    """
    if home is None or buffer.kind != STACKED or size_of(buffer) < LARGE:
        packed = pack(buffer, {name: value_of(name) for name in buffer.members})
        return packed if home is None else place_on(packed, home)
    shape = [dim for dim in buffer.type.shape if isinstance(dim, int)]
    whole = place_on(np.zeros(shape, buffer.type.dtype), home)
    for member, name in enumerate(buffer.members):
        whole = put(whole, buffer, member, value_of(name), donate=True)
        whole.block_until_ready()  # frees the host's value before the next one is made
    return whole


class Members:
    """The values of variables by name, read from buffers.

    The host copy of a buffer is kept until another buffer is needed.

    Args:
        values: the buffers in the order of the layout; None for a buffer without a value yet.
        initial: returns the value of a variable in such a buffer.
    """

    def __init__(
        self,
        layout: StateLayout,
        values: Sequence[Any],
        initial: Callable[[str], Any] | None = None,
    ) -> None:
        self._layout, self._values, self._initial = layout, values, initial
        self._last: tuple[int, dict[str, Any]] = (-1, {})

    def __call__(self, name: str) -> Any:
        """The value of a variable."""
        number = self._layout.slot(name).buffer
        if self._initial is not None and self._values[number] is None:
            return self._initial(name)
        if self._last[0] != number:
            self._last = number, unpack(self._layout.buffers[number], self._values[number])
        return self._last[1][name]


def repack(
    old: StateLayout,
    values: Sequence[Any],
    new: StateLayout,
    home_of: Callable[[Buffer], Sharding | None],
) -> list[Any]:
    """The buffers of the layout `new`, with the contents of `values`, which has the layout `old`.

    Buffers that are in both layouts are used unchanged. The others are moved through the host.

    Args:
        home_of: returns the sharding of a buffer; None leaves the buffer on the host.
    """
    value_of = Members(old, values)
    numbers = [(buffer, old.number(buffer)) for buffer in new.buffers]
    return [
        filled(buffer, value_of, home_of(buffer)) if number is None else values[number]
        for buffer, number in numbers
    ]


def size_of(buffer: Buffer) -> int:
    """The size of a buffer in bytes."""
    return sum(map(bytes_of_type, buffer.types))


def take(array: jax.Array, buffer: Buffer, member: int) -> jax.Array:
    """A copy of a member of a stacked or flat buffer, on the buffer's devices. It is committed to a
    single device if the buffer is.

    Compiled once for each type of buffer and of member, not for each position in the buffer.
    """
    where = _home_of_members(array)
    with jax.enable_x64(True):
        taken: jax.Array = _taker(buffer.kind, buffer.types[member].shape, where)(
            array, np.int32(buffer.starts[member])
        )
        return taken


def _home_of_members(array: jax.Array) -> Any:
    """The sharding of copies of a buffer's members; None for a device that JAX chooses."""
    where = array.sharding
    if isinstance(where, NamedSharding):  # all its devices get the member
        return NamedSharding(where.mesh, PartitionSpec())
    return where if array.committed else None


def take_several(array: jax.Array, buffer: Buffer, members: Sequence[int]) -> list[jax.Array]:
    """Copies of several members; see `take`.

    Where most members of a buffer are taken again and again, as by a function that reads the
    parameters after each step, one program copies all of them.
    """
    if len(buffer.members) <= MOST_AT_ONCE and 2 * len(members) > len(buffer.members) > 2:
        taker = _all_taker(buffer.kind, buffer.types, _home_of_members(array))
        taker.calls += 1
        if taker.calls > ONE_BY_ONE:
            with jax.enable_x64(True):
                everything = taker.program(array)
            return [everything[member] for member in members]
    return [take(array, buffer, member) for member in members]


def put(
    array: jax.Array, buffer: Buffer, member: int, value: Any, *, donate: bool = False
) -> jax.Array:
    """The buffer with another value of one member. Compiled in the same way as `take`.

    Args:
        donate: whether to write in place, which consumes `array`.
    """
    if is_across(array.sharding):
        agree_on(np.asarray(value))
    with jax.enable_x64(True):
        written: jax.Array = _putter(buffer.kind, array.sharding, donate)(
            array, value, np.int32(buffer.starts[member])
        )
        return written


def can_overwrite(array: Any, buffer: Buffer) -> bool:
    """Whether `overwritten` is faster than a new buffer.

    That is so for large buffers on CPUs, whose memory the system provides page by page. On other
    devices, memory costs no time, and a write can fail for lack of it.
    """
    if not isinstance(array, jax.Array) or buffer.kind == FLAT or size_of(buffer) < REUSED:
        return False
    return bool(_devices_of(array.sharding)[0].platform == "cpu")


def overwritten(array: jax.Array, buffer: Buffer, values: Mapping[str, Any]) -> jax.Array:
    """The buffer with new values of all its members, in the memory of `array`, which is consumed.

    Values in aligned memory are copied once; see `feed_memory.aligned`.
    """
    if buffer.kind == OWN:
        if is_across(array.sharding):
            agree_on(values[buffer.members[0]])
        with jax.enable_x64(True):
            array = _replacer(array.sharding)(array, values[buffer.members[0]])
    else:
        for member, name in enumerate(buffer.members):
            array = put(array, buffer, member, values[name], donate=True)
    return array.block_until_ready()  # until then, JAX reads the values


@lru_cache(maxsize=256)
def _replacer(where: Any) -> Any:
    """A program that copies its second argument into the memory of the first."""
    return jax.jit(
        lambda old, new: new,
        in_shardings=(where, where),
        out_shardings=where,
        donate_argnums=(0,),
        keep_unused=True,
    )


@lru_cache(maxsize=256)
def _taker(kind: str, shape: tuple[int, ...], where: Any) -> Any:
    def taken(array: Any, start: Any) -> Any:
        if kind == FLAT:
            return lax.dynamic_slice(array, (start,), (int(np.prod(shape)),)).reshape(shape)
        return lax.dynamic_index_in_dim(array, start, keepdims=False)

    return jax.jit(taken, out_shardings=where)


class _AllTaker:
    """A program that copies all members of a buffer, and how often they were needed together."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.calls = 0


@lru_cache(maxsize=64)
def _all_taker(kind: str, types: tuple[TensorType, ...], where: Any) -> _AllTaker:
    shapes = [tuple(type.shape) for type in types]
    ends = np.cumsum([elements(type) for type in types])[:-1].tolist()

    def taken(array: Any) -> list[Any]:
        if kind == FLAT:
            parts = jnp.split(array, ends)
            return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return [array[member] for member in range(len(shapes))]

    return _AllTaker(jax.jit(taken, out_shardings=where))


@lru_cache(maxsize=256)
def _putter(kind: str, where: Any, donate: bool) -> Any:
    def written(array: Any, value: Any, start: Any) -> Any:
        value = jnp.reshape(value, -1) if kind == FLAT else value[None]
        return lax.dynamic_update_slice_in_dim(array, value, start, 0)

    return jax.jit(written, out_shardings=where, donate_argnums=(0,) if donate else ())
