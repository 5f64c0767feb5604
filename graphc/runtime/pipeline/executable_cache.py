"""Executables in the cache: their keys, and the contents of their entries."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax

from graphc.config import DEFAULT
from graphc.errors import CacheError
from graphc.ir.fingerprint import names_digest
from graphc.passes.manager import PassReport, PassRow
from graphc.runtime.buffers.layout import Buffer, StateLayout, groups_of
from graphc.runtime.core.across import spans_processes
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.fitting import taken_by
from graphc.runtime.pipeline.joint import all_found
from graphc.runtime.pipeline.stages import Stages
from graphc.runtime.targets.interface import PARTITIONED, Interface
from graphc.runtime.targets.loading import Code, from_bytes, to_bytes
from graphc.runtime.targets.scripts import CompiledPartition
from graphc.store.files import Entry
from graphc.store.folder import ExecutableCache, open_cache, warn_once


class Found(NamedTuple):
    """An executable from the cache.

    Attributes:
        interface, compiled: what an `Executor` takes.
        layout: the layout of the state; it has the buffers of the interface.
        report: what the passes did when the executable was compiled.
        seconds: how long reading the entry took.
        budget: the memory budget that it was compiled with; see `Stages`.
        names: the `names_digest` of the program that it was compiled from; None if it is not known.
    """

    interface: Interface
    compiled: jax.stages.Compiled
    layout: StateLayout
    report: PassReport
    seconds: float
    budget: int | None = None
    names: str | None = None


class CacheBackend(Protocol):
    """A store that executables are looked up in, and added to after compilation."""

    def find(self) -> Found | None:
        """The executable, if the store has it."""

    def keep(self, stages: Stages, compiled: jax.stages.Compiled) -> None:
        """Stores a compiled executable."""


class CacheSlot:
    """The place of one executable in the cache. Without a cache, it finds and keeps nothing.

    An executable fits a layout if the layout has the buffers of its interface or can be given
    them. The first executable of a program is kept under the program's key. If that one does not
    fit a layout, another one is compiled. It is kept under a key that includes the layout.
    """

    def __init__(self, compilation: Compilation, layout: StateLayout) -> None:
        self._compilation, self._layout = compilation, layout
        self._cache, self._key = cache_for(compilation), compilation.key or ""

    def find(self) -> Found | None:
        """The executable, if the cache has it. Then no stage of `compilation` is needed."""
        cache, compilation = self._cache, self._compilation
        # An executable that cannot run here cannot be loaded.
        if cache is None or compilation.machine is not None:
            return None
        try:
            found = self._found(cache)
        except CacheError:
            found = None  # the program is compiled and replaces the entry
        if spans_processes(compilation.devices) and not all_found(found is not None):
            found = None
        COUNTERS.add(**{"cache_misses" if found is None else "cache_hits": 1})
        if found is None and compilation.devices[0].platform == "gpu":
            compilation.notes += _shipped_for_others(cache, compilation)
        return found

    def keep(self, stages: Stages, compiled: jax.stages.Compiled) -> None:
        """Stores a compiled executable under the key that `find` looked for."""
        if self._cache is None:
            return
        compilation, interface = self._compilation, stages.interface
        if compilation.machine is not None:
            why = self._why_not_shipped(self._cache, stages)
            if why is not None:
                warn_once(f"not kept for {compilation.machine}: {why}")
                return
        try:
            if isinstance(compiled, CompiledPartition):
                code = compiled.to_bytes()
            else:
                code = to_bytes(compiled, compilation.devices[0])
        except CacheError as error:
            warn_once(error.what)
            return
        report = stages.report
        seconds = {"passes": report.milliseconds / 1e3, **stages.seconds}
        metadata = {
            "program": interface.name,
            "environment": compilation.environment,
            "seconds": seconds,
            "interface": interface.to_json(),
            "passes": report.to_json(),
            "budget": stages.budget,
            "targets": code.targets,
            "names": names_digest(stages.local),
            "shipped": None if compilation.machine is None else compilation.program_key,
            **self._memory(stages, compiled),
        }
        kept = self._cache.put(self._key, metadata, code.payload)
        if not kept and compilation.machine is not None:
            warn_once(f"not kept for {compilation.machine}: the cache folder cannot be written")

    def _why_not_shipped(self, cache: ExecutableCache, stages: Stages) -> str | None:
        """Why an executable for another machine must not be stored under its key, or None if it
        may be. The key contains neither the memory size of that machine nor who compiled the
        program."""
        options = self._compilation.options
        if options.memory_limit is None and stages.recomputes:
            return (
                "it recomputes values to fit into memory; to allow this, set "
                "CompileOptions(memory_limit=...) on both machines"
            )
        entry = cache.get(self._key)
        facts: Any = {} if entry is None else entry.metadata
        if entry is not None and facts.get("shipped") is None:
            return "the folder has one that was compiled on such GPUs with timed kernels"
        return None

    def _memory(self, stages: Stages, compiled: jax.stages.Compiled) -> dict[str, int]:
        """What `_fits` needs if the limit is the memory of the devices: it is not in the key.

        - "taken": the bytes that a run uses;
        - "limit": the limit for which the program recomputes values, if it does.
        """
        limit = self._compilation.memory_limit
        if limit is None or self._compilation.options.memory_limit is not None:
            return {}
        found = {"taken": taken_by(compiled)}
        return {**found, "limit": limit} if stages.recomputes else found

    def _fits(self, facts: Mapping[str, Any]) -> bool:
        """Whether an executable is the one to use with the memory of the devices: it fits, and it
        does not recompute values that fit."""
        limit = self._compilation.memory_limit
        if limit is None or self._compilation.options.memory_limit is not None:
            return True
        # JAX rounds the part of the memory that it may use.
        saves_too_much = facts.get("limit") is not None and facts["limit"] < 0.99 * limit
        return facts.get("taken", 0) <= limit and not saves_too_much

    def _found(self, cache: ExecutableCache) -> Found | None:
        entry = cache.get(self._key)
        found = None if entry is None else self._load(entry)
        if entry is None or found is not None:
            return found
        program = self._compilation.prepared.functional
        names = {port.name for port in (*program.ports("state"), *program.new_state())}
        buffers = [buffer.to_json() for buffer in self._layout.touched(names)]
        text = json.dumps([self._key, buffers])
        self._key = hashlib.sha256(text.encode()).hexdigest()
        entry = cache.get(self._key)
        return None if entry is None else self._load(entry)

    def _load(self, entry: Entry) -> Found | None:
        """`load_entry`, with a note if the executable was compiled elsewhere.

        Raises:
            CacheError: see `load_entry`; or the devices have another amount of memory.
        """
        if not self._fits(entry.metadata or {}):
            raise CacheError("the executable was compiled for another amount of memory")
        found = load_entry(entry, self._layout, self._compilation.devices)
        if found is not None and entry.metadata.get("shipped") is not None:
            self._compilation.notes.append(_SHIPPED)
        return found


def load_entry(entry: Entry, layout: StateLayout, devices: Sequence[jax.Device]) -> Found | None:
    """The executable of an entry; None if its buffers do not fit the state.

    Raises:
        CacheError: XLA cannot load it, or it calls a function that may be missing in this process.
    """
    start = time.perf_counter()
    facts: Any = entry.metadata
    interface = Interface.from_json(facts["interface"])
    fitting = fitted(layout, interface.buffers)
    if fitting is None:
        return None
    code = Code(entry.payload, facts.get("targets"))
    if interface.kind == PARTITIONED:
        compiled: Any = CompiledPartition.from_bytes(code, devices)
    else:
        compiled = from_bytes(code, interface.arguments, interface.results, devices)
    report = PassReport(
        tuple(PassRow(**{**row, "notes": tuple(row["notes"])}) for row in facts["passes"])
    )
    seconds, budget = time.perf_counter() - start, facts.get("budget")
    return Found(interface, compiled, fitting, report, seconds, budget, facts.get("names"))


def fitted(layout: StateLayout, buffers: Sequence[Buffer]) -> StateLayout | None:
    """`layout` with these buffers; None if it cannot have them."""
    layout = layout.with_groups(groups_of(buffers))
    return layout if layout.has(buffers) else None


_SHIPPED = (
    "compiled on a machine without these devices, so XLA has not timed kernels on them; to "
    "compare, compile it here with another cache"
)


def _shipped_for_others(cache: ExecutableCache, compilation: Compilation) -> list[str]:
    """Why executables of this program that were compiled elsewhere for GPUs are not used here."""
    here, notes = compilation.environment, []
    for entry in cache.entries():
        facts: Any = entry.metadata or {}
        if facts.get("shipped") != compilation.program_key:
            continue
        there = facts.get("environment", {})
        other = [k for k in here if here[k] != there.get(k)]
        if not other:
            notes.append("compiled here; the executable in the cache for such GPUs cannot be used")
            continue
        rows = [f"{k}: {str(there.get(k))[:80]}, here {here[k][:80]}" for k in other]
        notes.append(f"compiled here; the cache has it for another machine ({'; '.join(rows)})")
    return notes


def cache_for(compilation: Compilation) -> ExecutableCache | None:
    """The cache of a compilation. It is None in these cases:

    - the user disabled the cache, or asked to validate or dump the passes;
    - the program must not be cached, because `key` is None;
    - the program is for another machine, and the user named no cache folder.
    """
    options = compilation.options
    if compilation.machine is not None and options.cache is DEFAULT:
        return None
    if options.validate or options.dump is not None:
        return None
    return open_cache(options) if compilation.key is not None else None
