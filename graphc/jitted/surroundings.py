"""The context of a call: JAX's settings in this thread, and the devices of the arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding, get_abstract_mesh

from graphc.devices.discovery import default_device
from graphc.jax_internals import is_tracing, trace_settings
from graphc.jaxpr.avals import is_array
from graphc.jaxpr.tracing import NO_VALUE

_CONFIG: Any = jax.config

# These settings request checks that only JAX performs.
_CHECKS = ["jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_debug_key_reuse"]
# Settings on which a program depends, but which JAX does not count among those of a trace.
_NOT_IN_TRACES = [
    "jax_default_prng_impl",
    "jax_enable_custom_prng",
    "jax_legacy_prng_key",
    "jax_debug_nans",
    "jax_debug_infs",
]
_read = attrgetter(*[name for name in _NOT_IN_TRACES if hasattr(_CONFIG, name)])


def settings() -> tuple[Any, ...]:
    """The settings of JAX in this thread that affect the meaning of a call, or whether JAX must
    run it. They may differ between threads and between calls, so each call reads them."""
    return trace_settings(), _read(_CONFIG), is_tracing()


def why_by_jax(leaves: Sequence[Any], has_strategy: bool) -> str | None:
    """The reason why a call with leaves of these types is left to `jax.jit`, whatever the function
    is and where the leaves are; None if there is no reason."""
    checks = [name for name in _CHECKS if getattr(_CONFIG, name, False)]
    if checks:
        return f"{checks[0]} is set"
    if is_tracing() or any(isinstance(leaf, Tracer) for leaf in leaves):
        return "it was called inside jax.grad, jax.vmap or jax.jit"
    if not all(map(_is_array, leaves)):
        return "values that are not arrays, such as a jax.Ref, are among the arguments"
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    if not _CONFIG.jax_enable_x64 and any(map(_is_wide, arrays)):
        return "arrays among the arguments are of 64 bits, and jax_enable_x64 is not set"
    if not has_strategy and not get_abstract_mesh().empty:
        return "it was called inside jax.set_mesh: pass strategy="
    return None


def _is_array(leaf: Any) -> bool:
    """Whether a leaf is an array or a number; also true of what JAX refuses, for a later error."""
    try:
        return is_array(jax.typeof(leaf))
    except NO_VALUE:
        return True


def why_by_places(leaves: Sequence[Any]) -> str | None:
    """The reason why a call without a strategy is left to `jax.jit` because of the devices of these
    leaves; None if there is no reason."""
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    if any(map(is_spread, arrays)):
        return "arrays among the arguments are laid out over a mesh: pass strategy="
    if len(committed_to(arrays)) > 1:
        return "arrays among the arguments are committed to different devices"
    return None


def _is_wide(array: jax.Array) -> bool:
    """Whether an array has an element type that JAX has only in 64-bit mode."""
    dtype: Any = array.dtype
    return str(dtype) in ("float64", "int64", "uint64", "complex128")


def is_spread(array: Any) -> bool:
    """Whether a value is an array on several devices, or one that is laid out over a mesh.

    The results of `jax.jit` for such arrays are laid out over the mesh too.
    """
    return isinstance(array, jax.Array) and not isinstance(array.sharding, SingleDeviceSharding)


def committed_to(arrays: Iterable[Any]) -> set[jax.Device]:
    """The devices to which arrays on one device are committed."""
    return {
        device
        for array in arrays
        if isinstance(array, jax.Array) and array.committed
        for device in array.devices()
    }


class Place(NamedTuple):
    """Where a program runs without a strategy.

    Attributes:
        device: the device that runs it.
        commits: whether its results are committed to the device, also to the default device.
            Always False with a single device, where this makes no difference.
    """

    device: jax.Device
    commits: bool


def place_for(arrays: Iterable[Any], held: Sequence[Any] = ()) -> Place:
    """The device to which arrays are committed; otherwise that of the `held` buffers, or the
    default device."""
    found = committed_to(arrays) or committed_to(held[:1])
    commits = bool(found) and jax.local_device_count() > 1
    return Place(found.pop() if len(found) == 1 else default_device(), commits)
