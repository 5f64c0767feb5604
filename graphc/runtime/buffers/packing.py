"""Values in and out of the buffers of state: on the host all at once, on devices one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from graphc.runtime.buffers.layout import FLAT, OWN, STACKED, Buffer, StateLayout, elements

Array = np.ndarray[Any, Any]

# Bytes of a buffer from which on a second copy of it matters more than compiling a small program.
LARGE: Final = 64 << 20

# Bytes. JAX (0.10 to 0.12) on CPU aliases a NumPy array that begins at a multiple of this.
_ALIGNMENT: Final = 64


def pack(buffer: Buffer, values: Mapping[str, Any]) -> Any:
    """The buffer's value on the host, from those of its members; an own one's is the value."""
    members = [values[name] for name in buffer.members]
    if buffer.kind == OWN:
        return members[0]
    arrays = [np.asarray(value) for value in members]
    if buffer.kind == STACKED:
        return np.stack(arrays)
    return np.concatenate([array.reshape(-1) for array in arrays])


def unpack(buffer: Buffer, value: Any) -> dict[str, Any]:
    """The members' values: views of a host copy; of an own buffer the very value."""
    if buffer.kind == OWN:
        return {buffer.members[0]: value}
    array = np.asarray(value)
    if buffer.kind == STACKED:
        return dict(zip(buffer.members, array, strict=True))
    return {
        name: array[start : start + elements(type)].reshape(type.shape)
        for name, start, type in zip(buffer.members, buffer.starts, buffer.types, strict=True)
    }


def place_on(value: Any, where: Any) -> jax.Array:
    """`value` committed to a device or sharding, 64-bit dtypes kept; a private copy.

    The copy of an array on the host has been made when this returns: JAX copies in another thread,
    and holds the array until then.
    """
    with jax.enable_x64(True):
        if isinstance(value, jax.Array):  # first where it is: to several devices, JAX aliases it
            value = jax.device_put(value, value.sharding, may_alias=False)
            placed: jax.Array = jax.device_put(value, where)
            return placed
        placed = jax.device_put(_not_aliased(np.asarray(value)), where)
        placed.block_until_ready()
        return placed


def _not_aliased(array: Array) -> Array:
    """The array, or a copy of it, at an address from which JAX copies it.

    A step cannot take over memory that belongs to NumPy: it would copy a donated buffer that
    aliases it, and so hold the state twice.
    """
    if array.ctypes.data % _ALIGNMENT:
        return array
    memory = np.empty(array.nbytes + 2 * _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT + array.itemsize
    copy: Array = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def filled(buffer: Buffer, value_of: Callable[[str], Any], home: Sharding | None) -> Any:
    """The buffer's value from those of its members, where it belongs.

    The members of a large stacked buffer are written into it on its devices one by one, so that
    memory holds it once, and one member twice.

    Args:
        value_of: gives a member's value; called once for each.
        home: None leaves the value on the host.
    """
    if home is None or buffer.kind != STACKED or size_of(buffer) < LARGE:
        packed = pack(buffer, {name: value_of(name) for name in buffer.members})
        return packed if home is None else place_on(packed, home)
    shape = [dim for dim in buffer.type.shape if isinstance(dim, int)]
    whole = place_on(np.zeros(shape, buffer.type.dtype), home)
    for member, name in enumerate(buffer.members):
        whole = put(whole, buffer, member, value_of(name), donate=True)
        whole.block_until_ready()  # frees the host's value before the next is made
    return whole


class Members:
    """The values of variables by name, from buffers.

    The host's copy of a buffer is kept until another buffer is asked for.

    Args:
        values: in the order of the layout; None stands for one that has none yet.
        initial: gives the value of a variable of such a buffer.
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
    """The buffers of `new` with the values that `values` hold as `old` has it.

    What is a buffer in both is taken as it is; the rest goes by way of the host.

    Args:
        home_of: where a buffer belongs; None leaves it on the host.
    """
    value_of = Members(old, values)
    numbers = [(buffer, old.number(buffer)) for buffer in new.buffers]
    return [
        filled(buffer, value_of, home_of(buffer)) if number is None else values[number]
        for buffer, number in numbers
    ]


def size_of(buffer: Buffer) -> int:
    """Its bytes."""
    return sum(elements(type) * type.dtype.itemsize for type in buffer.types)


def take(array: jax.Array, buffer: Buffer, member: int) -> jax.Array:
    """A member of a stacked or flat buffer on its devices: a copy.

    Compiled once for a type of buffer and of member, not for each place in it.
    """
    where: Any = array.sharding
    if isinstance(where, NamedSharding):  # of a buffer in pieces, all have the member
        where = NamedSharding(where.mesh, PartitionSpec())
    with jax.enable_x64(True):
        taken: jax.Array = _taker(buffer.kind, buffer.types[member].shape, where)(
            array, np.int32(buffer.starts[member])
        )
        return taken


def put(
    array: jax.Array, buffer: Buffer, member: int, value: Any, *, donate: bool = False
) -> jax.Array:
    """The buffer with another value of one member; compiled as `take` is.

    Args:
        donate: write it in place: `array` is gone then.
    """
    with jax.enable_x64(True):
        written: jax.Array = _putter(buffer.kind, array.sharding, donate)(
            array, value, np.int32(buffer.starts[member])
        )
        return written


@lru_cache(maxsize=256)
def _taker(kind: str, shape: tuple[int, ...], where: Any) -> Any:
    def taken(array: Any, start: Any) -> Any:
        if kind == FLAT:
            return lax.dynamic_slice(array, (start,), (int(np.prod(shape)),)).reshape(shape)
        return lax.dynamic_index_in_dim(array, start, keepdims=False)

    return jax.jit(taken, out_shardings=where)


@lru_cache(maxsize=256)
def _putter(kind: str, where: Any, donate: bool) -> Any:
    def written(array: Any, value: Any, start: Any) -> Any:
        value = jnp.reshape(value, -1) if kind == FLAT else value[None]
        return lax.dynamic_update_slice_in_dim(array, value, start, 0)

    return jax.jit(written, out_shardings=where, donate_argnums=(0,) if donate else ())
