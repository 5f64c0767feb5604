"""What several loaded artifacts share in one process: weights with equal content, and the cache of
executables."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import jax
from jax.sharding import Sharding

from graphc.devices.environment import environment_of
from graphc.errors import CacheError
from graphc.runtime.targets.loading import Code, from_bytes, noting_reuse, to_bytes
from graphc.store.folder import ExecutableCache, warn_once


class Content(NamedTuple):
    """What a value is: equal contents are equal values."""

    sha256: str
    dtype: str
    shape: tuple[int, ...]


class SharedArrays:
    """Arrays on devices by their content. An array is freed with its last user."""

    def __init__(self) -> None:
        self._arrays: WeakValueDictionary[tuple[Content, Sharding], jax.Array] = (
            WeakValueDictionary()
        )
        self._changed = threading.Condition()
        self._making: set[tuple[Content, Sharding]] = set()

    def get(
        self,
        content: Content,
        where: Sharding,
        check: Callable[[], None],
        make: Callable[[], jax.Array],
    ) -> jax.Array:
        """The array with this content on these devices.

        Args:
            check: raises an error if the caller's own bytes do not have this content. A file that
                only claims the content gets no array of another one.
            make: creates the array if there is none. It checks the bytes too.
        """
        key = (content, where)
        with self._changed:  # files that are loaded at the same time make an array once
            self._changed.wait_for(lambda: key not in self._making)
            found = self._arrays.get(key)
            if found is None:
                self._making.add(key)
        if found is not None:
            check()
            return found
        try:
            made = make()
            with self._changed:
                self._arrays[key] = made
            return made
        finally:
            with self._changed:
                self._making.discard(key)
                self._changed.notify_all()

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays that are in use."""
        with self._changed:
            return sum(array.nbytes for array in self._arrays.values())

    def __len__(self) -> int:
        return len(self._arrays)


@dataclass(frozen=True)
class Sharing:
    """What loaded artifacts share.

    Attributes:
        arrays: weights by content; None shares none.
        cache: where compiled programs are stored for later processes; None stores none.
        most_steps: for how many sizes each entry point keeps its compiled program; None: for all.
        pace: called after each piece of a file that is read.
    """

    arrays: SharedArrays | None = field(default_factory=SharedArrays)
    cache: ExecutableCache | None = None
    most_steps: int | None = None
    pace: Callable[[], None] = lambda: None


def through_cache(
    cache: ExecutableCache,
    key: Mapping[str, Any],
    counts: tuple[int, int],
    devices: Sequence[jax.Device],
    compile: Callable[[], Any],
) -> Any:
    """The executable from the cache, or `compile()`, which is then stored.

    Args:
        key: what the program depends on besides the environment, and its name as "name".
        counts: the number of arrays that the program takes and returns.
    """
    environment = environment_of(devices)
    text = json.dumps([key, environment], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    entry = cache.get(digest)
    if entry is not None:
        try:
            code = Code(entry.payload, entry.metadata.get("targets"))
            return from_bytes(code, *counts, devices)
        except CacheError:
            pass  # the program is compiled and replaces the entry
    start = time.perf_counter()
    with noting_reuse() as reused:
        compiled = compile()
    if not reused:
        try:
            code = to_bytes(compiled, devices[0])
        except CacheError as error:
            warn_once(error.what)
            return compiled
        metadata = {
            "program": key["name"],
            "environment": environment,
            "seconds": {"compile": time.perf_counter() - start},
            "targets": code.targets,
        }
        cache.put(digest, metadata, code.payload)
    return compiled
