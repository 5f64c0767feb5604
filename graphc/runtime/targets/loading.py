"""Converts XLA executables to bytes and back. A cache entry holds these bytes and its metadata.

The bytes are a pickle and native code. They are loaded only from an entry whose owner and digest
were checked (`store.files`) and whose key says that this process would compile the same program.
They are loaded only after this process has prepared the functions that they call (`custom_calls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import local
from typing import Any, NamedTuple

import jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from graphc.devices.discovery import platform_of
from graphc.errors import CacheError
from graphc.jax_internals import CACHE_HIT
from graphc.runtime.hlo.custom_calls import check_known, make_ready, targets_of


@contextmanager
def noting_reuse() -> Iterator[list[str]]:
    """Collects the hits in JAX's own persistent cache, in this thread, while the context is active.

    An executable from that cache must not go through `to_bytes`: on CPU, an executable that was
    loaded once is written without its code, and this is noticed only when it runs.
    """
    _listen()
    found: list[str] = []
    _here.found = found
    try:
        yield found
    finally:
        _here.found = None


_here = local()


@lru_cache(maxsize=1)
def _listen() -> None:
    def note(event: str, **_: Any) -> None:
        found = getattr(_here, "found", None)
        if found is not None and event == CACHE_HIT:
            found.append(event)

    jax.monitoring.register_event_listener(note)


class Code(NamedTuple):
    """An executable as it is stored.

    Attributes:
        payload: XLA's bytes.
        targets: the targets of its custom calls. From a file, this may be anything, or None if none
            were recorded.
    """

    payload: bytes
    targets: Any


def to_bytes(compiled: jax.stages.Compiled, device: jax.Device) -> Code:
    """The bytes of a compiled function that takes flat arguments and returns a list.

    Args:
        device: one of the devices that the function runs on.

    Raises:
        CacheError: this backend or this program cannot be serialised, or it calls a function that
            another process may not have.
    """
    targets = targets_of(compiled)
    check_known(targets, platform_of(device))
    try:
        payload: bytes
        payload, *trees = serialize(compiled)
    except Exception as error:  # the type depends on the backend
        raise CacheError(f"a compiled program cannot be stored: {error}") from error
    arguments, results = (tree.num_leaves for tree in trees)
    if trees != list(_trees(arguments, results)):
        raise CacheError("a compiled program cannot be stored: it has nested arguments or results")
    return Code(payload, targets)


def from_bytes(
    code: Code, arguments: int, results: int, devices: Sequence[jax.Device]
) -> jax.stages.Compiled:
    """The compiled function, loaded on the same devices. Prepares the functions that it calls.

    Args:
        arguments, results: the number of arrays that it takes and returns.

    Raises:
        CacheError: it cannot be loaded here, or it calls an unknown function.
    """
    make_ready(code.targets, platform_of(devices[0]))
    try:
        loaded: jax.stages.Compiled = deserialize_and_load(
            code.payload,
            *_trees(arguments, results),
            backend=devices[0].client,
            execution_devices=devices,
        )
    except Exception as error:  # a pickle or a backend may raise anything
        raise CacheError(f"a stored program does not load: {error}") from error
    return loaded


def _trees(arguments: int, results: int) -> tuple[Any, Any]:
    return jax.tree.structure(((0,) * arguments, {})), jax.tree.structure([0] * results)
