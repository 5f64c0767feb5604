"""XLA executables as bytes, and back: what a cache entry holds beside its facts.

The bytes are a pickle and native code. They are only ever loaded from an entry whose owner and
digest were checked (`store.files`) and whose key says that this process would compile
the same, and never before this process is ready for the functions that they call (`custom_calls`).
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
    """Collects what JAX takes meanwhile, in this thread, from a persistent cache of its own.

    That must not go through `to_bytes`: on CPU, what was loaded once is written without its code,
    which nobody notices before it runs.
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
    """A compiled function of flat arguments that gives a list.

    Args:
        device: one that it runs on.

    Raises:
        CacheError: this backend or this program cannot be serialised, or it calls a function that
            another process may not have.
    """
    targets = targets_of(compiled)
    check_known(targets, platform_of(device))
    try:
        payload: bytes
        payload, *trees = serialize(compiled)
    except Exception as error:  # each backend has its own kinds
        raise CacheError(f"a compiled program cannot be stored: {error}") from error
    arguments, results = (tree.num_leaves for tree in trees)
    if trees != list(_trees(arguments, results)):
        raise CacheError("a compiled program cannot be stored: it takes or gives nests")
    return Code(payload, targets)


def from_bytes(
    code: Code, arguments: int, results: int, devices: Sequence[jax.Device]
) -> jax.stages.Compiled:
    """The compiled function again, on the same devices. Prepares the functions that it calls.

    Args:
        arguments, results: how many arrays it takes and gives.

    Raises:
        CacheError: it does not load here, or calls an unknown function.
    """
    make_ready(code.targets, platform_of(devices[0]))
    try:
        loaded: jax.stages.Compiled = deserialize_and_load(
            code.payload,
            *_trees(arguments, results),
            backend=devices[0].client,
            execution_devices=devices,
        )
    except Exception as error:  # whatever a pickle or a backend raises: it is compiled anew
        raise CacheError(f"a stored program does not load: {error}") from error
    return loaded


def _trees(arguments: int, results: int) -> tuple[Any, Any]:
    return jax.tree.structure(((0,) * arguments, {})), jax.tree.structure([0] * results)
