"""Values in and out of the buffers of state: on the host all at once, on devices one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from graphc.runtime.layout import FLAT, OWN, STACKED, Buffer, StateLayout, elements

Array = np.ndarray[Any, Any]


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


def repack(
    old: StateLayout,
    values: Sequence[Any],
    new: StateLayout,
    place: Callable[[Any, Buffer], Any] | None,
) -> list[Any]:
    """The buffers of `new` with the values that `values` hold as `old` has it.

    What is a buffer in both is taken as it is; the rest goes by way of the host.

    Args:
        place: puts a host value where that buffer belongs; None leaves it on the host.
    """
    members: dict[str, Any] = {}
    for buffer, value in zip(old.buffers, values, strict=True):
        if new.number(buffer) is None:
            members.update(unpack(buffer, value))
    result = []
    for buffer in new.buffers:
        number = old.number(buffer)
        if number is not None:
            result.append(values[number])
            continue
        packed = pack(buffer, members)
        result.append(packed if place is None else place(packed, buffer))
    return result


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
