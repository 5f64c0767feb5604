"""The forms in which a file holds a program, ordered from the fastest to start to the most durable.

Native code is for one environment, and is only run if the user trusts the file. JAX versions of
several years can read StableHLO. Any later graphc can read the graph. The first form that can be
used is chosen, and notes state why earlier forms cannot be used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax

from graphc.artifacts.graphs import bound, from_data, largest
from graphc.artifacts.limits import Limits, not_compiled
from graphc.artifacts.lowering import (
    Function,
    compiled_program,
    compiled_within,
    for_one,
    for_replicas,
    places_on,
)
from graphc.artifacts.sharing import through_cache
from graphc.artifacts.source import Source
from graphc.artifacts.stablehlo import (
    check_convention,
    check_program,
    check_refined,
    check_types,
    deserialize,
    serialized,
)
from graphc.artifacts.steps import Shapes, Sizes, Step, Steps
from graphc.config import CompileOptions
from graphc.devices.environment import environment_of
from graphc.devices.targets import target_of
from graphc.errors import (
    ArtifactError,
    ArtifactVersionError,
    CacheError,
    DeviceError,
    ExecutionError,
    FeedError,
    GraphcError,
    LayoutError,
    MemoryLimitError,
)
from graphc.interrupts import uninterrupted
from graphc.ir.program import Program
from graphc.runtime.feeds.feeds import bind_feeds
from graphc.runtime.targets.jax_program import x64
from graphc.runtime.targets.loading import Code, from_bytes
from graphc.untrusted.kernel_contracts import CHANGING
from graphc.untrusted.safe_reading import UnreadableError, read_program, try_compile

NATIVE, STABLEHLO, GRAPH = "native", "stablehlo", "graph"


class Way(NamedTuple):
    """A form that can be used. It returns the step for the shapes of the inputs."""

    name: str
    step: Callable[[Shapes], Step]


class Chain:
    """The way of one signature. It is chosen at the first call. If it fails, the next way replaces
    it.

    Attributes:
        way: "native", "stablehlo" or "graph"; None until one is chosen.
        notes: why earlier ways were not chosen, one line each.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._rest = iter(_WAYS)
        self._way: Way | None = None
        self._steps = Steps(source.most_steps)
        self._lock = threading.Lock()
        self.notes: list[str] = []

    @property
    def way(self) -> str | None:
        return None if self._way is None else self._way.name

    def program(self) -> Program | None:
        """The program in graphc's own format, whichever way is chosen; None if the file has none.

        Raises:
            ArtifactError: it cannot be read, or does not match the manifest.
        """
        source, member = self._source, self._source.entry.graph
        if member is None:
            return None
        program = from_data(source.name, source.members[member], source.entry, source.types)
        source.limits.check_operations(source.name, sum(1 for _ in program.walk()))
        return program

    def choose(self) -> str:
        """Chooses the way if none is chosen yet. Returns its name.

        Raises:
            ArtifactVersionError: no way can be used.
            ArtifactCorruptError: the file is altered or inconsistent.
        """
        chosen = self._way
        if chosen is not None:  # without the lock: another thread may be compiling
            return chosen.name
        with self._lock:
            return (self._way or self._next()).name

    def known(self, shapes: Sizes) -> Step | None:
        """The program for inputs of these shapes, if it is compiled."""
        return self._steps.get(shapes)

    def step(self, shapes: Sizes) -> Step:
        """The program for inputs of these shapes.

        Raises:
            ArtifactError: as for `choose`.
            LayoutError, DeviceError: it cannot be distributed over these devices.
        """
        found = self._steps.get(shapes)
        if found is not None:
            return found
        with self._lock:
            while (found := self._steps.get(shapes)) is None:
                way = self._way or self._next()
                try:
                    self._steps.put(shapes, way.step(shapes))
                except ExecutionError as error:
                    self._note(way.name, error)
                    try:
                        self._next()
                    except ArtifactVersionError:
                        raise error from error.__cause__  # other sizes may still work
            return found

    def release(self) -> None:
        """Forgets the compiled programs. They are compiled again when they are needed."""
        with self._lock:
            self._steps.clear()

    def _next(self) -> Way:
        for name, open_way in self._rest:
            try:
                way = open_way(self._source)
            except UnreadableError as error:
                self._note(name, error)
                continue
            if way is not None:
                self._way = Way(name, way)
                return self._way
        source = self._source
        raise ArtifactVersionError(
            f"program {source.name!r} cannot be run here: none of its forms can be used",
            details=[
                *self.notes,
                f"written by graphc {source.manifest.graphc}, jax {source.manifest.jax}; "
                f"this is jax {jax.__version__}",
            ],
            hint="install the jax it was written with or a newer one, or save it again",
        )

    def _note(self, name: str, error: Exception) -> None:
        why = error.what if isinstance(error, GraphcError) else str(error)
        self.notes.append(f"{name}: {why.splitlines()[0] if why else type(error).__name__}")


# -- native code ----------------------------------------------------------------------------


def _native(source: Source) -> Callable[[Shapes], Step] | None:
    native = source.entry.native
    if native is None:
        return None
    if not source.trust_native:
        raise UnreadableError("not trusted: gc.load(path, trust_native=True) would use it")
    _check_devices(source)
    here = environment_of(source.devices)
    other = sorted(
        k for k in {*here, *native.environment} if here.get(k) != native.environment.get(k)
    )
    if other:
        raise UnreadableError(f"made for another environment: {', '.join(other)[:200]} differ")
    data = bytes(source.members[native.member])  # raises an error if its checksum does not match
    code = Code(data, native.targets)
    try:
        compiled = from_bytes(code, source.arguments, source.results, source.devices)
    except CacheError as error:
        raise UnreadableError(error.what) from error
    places = places_on(source.devices, source.entry.splits, source.replicated)
    return lambda shapes: Step(compiled, places)


# -- StableHLO ------------------------------------------------------------------------------


def _check_changing(source: Source, found: Mapping[str, Any]) -> None:
    """Rejects calls of kernels that this version of JAX may call in another way."""
    changing = {call["target"] for call in found["calls"]}.intersection(CHANGING)
    if changing and source.manifest.jax != jax.__version__:
        raise UnreadableError(
            f"it calls {min(changing)} as jax {source.manifest.jax} does; this is {jax.__version__}"
        )


def _stablehlo(source: Source) -> Callable[[Shapes], Step]:
    entry, members = source.entry, source.members
    if source.platform not in source.manifest.platforms:
        made_for = ", ".join(source.manifest.platforms)
        raise UnreadableError(f"saved for {made_for}; this device is {source.platform}")
    _check_devices(source)
    check_convention(entry.convention)
    data = members[entry.stablehlo]
    digest = members.digest(entry.stablehlo)
    found = read_program(data, digest)
    _check_changing(source, found)
    again = check_program(found, entry.devices)
    source.limits.check_operations(source.name, found["work"])
    source.limits.check_tensor(source.name, found["elements"])
    exported = deserialize(data)
    check_convention(exported.calling_convention_version)  # JAX's own record of it
    check_types(source.name, exported, entry, source.types, found["main"])
    places = places_on(source.devices, entry.splits, source.replicated)
    state = (places.home,) * (source.arguments - len(entry.inputs))
    donated = tuple(range(len(entry.written)))
    rows = {row.value.name: row for row in source.manifest.variables}
    state_rows = [rows[name] for name in (*entry.written, *entry.read)]
    dtypes = [value.type.dtype for value in entry.inputs]

    def step(shapes: Shapes) -> Step:
        def call(*arguments: Any) -> Any:
            return exported.call(*arguments)

        def lower() -> Any:
            # JAX keeps the executables of a function as long as the function. This one is for
            # these sizes alone, so that its executable is freed when no one needs it.
            jitted = jax.jit(call, in_shardings=(*state, *places.feeds), donate_argnums=donated)
            given = [(row.shape, row.value.type.dtype) for row in state_rows]
            given += zip(shapes, dtypes, strict=True)
            structs = [jax.ShapeDtypeStruct(*one) for one in given]
            with x64(entry.wide):
                lowered = uninterrupted(jitted.lower, *structs)
            if again:
                check_refined(lowered, entry.devices)
            _within_time(source, data, [shape for shape, _ in given])
            return lowered

        return Step(_compiled(source, STABLEHLO, digest, shapes, lower), places)

    return step


def _check_devices(source: Source) -> None:
    if len(source.devices) != source.entry.devices:
        raise UnreadableError(
            f"saved for {source.entry.devices} devices, but it must run on {len(source.devices)}"
        )


# -- the graph ------------------------------------------------------------------------------


def _graph(source: Source) -> Callable[[Shapes], Step] | None:
    entry = source.entry
    if entry.graph is None:
        return None
    digest = source.members.digest(entry.graph)
    program = from_data(source.name, source.members[entry.graph], entry, source.types)
    source.limits.check_operations(source.name, sum(1 for _ in program.walk()))

    def step(shapes: Shapes) -> Step:
        bindings = bind_feeds(program, shapes, {})
        try:
            replicas = len(source.devices) if source.replicated else 1
            tight = entry.memory_limit is not None
            target = replace(target_of(source.devices, replicas), tight=tight)
            options = CompileOptions(memory_limit=entry.memory_limit)
            local = bound(source.name, program, bindings, options, target)
            source.limits.check_tensor(source.name, largest(local))

            def make(budget: int | None) -> Function:
                if source.replicated:
                    return for_replicas(local, source.devices, budget=budget)
                device = source.devices[0]
                return for_one(local, len(entry.written), device=device, budget=budget)

            def compile(function: Function) -> Any:
                if source.limits.seconds is not None:
                    data = serialized(function)
                    _within_time(source, data, [one.shape for one in function.arguments])
                return _compiled(source, GRAPH, digest, shapes, function.lower)

            function, compiled = compiled_within(entry.memory_limit, make, compile)
        except (ArtifactError, DeviceError, FeedError, LayoutError):
            raise
        except MemoryLimitError as error:
            raise ArtifactError(
                f"graph {source.name!r}: {error.what}",
                details=error.details,
                hint=f"save it with memory_limit={error.least} or more, or feed a smaller batch",
            ) from error
        except GraphcError as error:
            raise ArtifactVersionError(
                f"graph {source.name!r} cannot be compiled here",
                details=[error.what, *error.details],
                hint="save it again",
            ) from error
        return Step(compiled, places_on(source.devices, function.splits, source.replicated))

    return step


def _compiled(
    source: Source, form: str, digest: str, shapes: Shapes, lower: Callable[[], Any]
) -> Any:
    key = {
        "program": digest,
        "form": form,
        "shapes": str(list(shapes)),
        "replicated": str(source.replicated),
    }
    # With a memory limit, a program is compiled for several budgets; with limits on resources,
    # the checks are part of the compilation.
    if source.cache is None or source.entry.memory_limit is not None or source.limits != Limits():
        compiled = compiled_program(key, lower, source.devices)
    else:
        facts = {
            **key,
            "name": source.name,
            "entry": source.entry.to_json(),
            "variables": {name: str(type) for name, type in source.types.items()},
        }
        counts = source.arguments, source.results
        compiled = through_cache(
            source.cache,
            facts,
            counts,
            source.devices,
            lambda: compiled_program(key, lower, source.devices),
        )
    source.limits.check_compiled(source.name, compiled)
    return compiled


def _within_time(source: Source, program: bytes | memoryview, shapes: Shapes) -> None:
    """Compiles a program in another process first, if the time is limited.

    Raises:
        ArtifactError: it took too long, or it cannot be compiled in another process for these
            devices.
    """
    seconds = source.limits.seconds
    if seconds is None:
        return
    if source.platform != "cpu" or source.entry.devices > 1:
        raise not_compiled(source.name, "only programs for one CPU device can be tried", seconds)
    why = try_compile(bytes(program), shapes, source.entry.wide, seconds)
    if why:
        raise not_compiled(source.name, why, seconds)


_WAYS: tuple[tuple[str, Callable[[Source], Callable[[Shapes], Step] | None]], ...] = (
    (NATIVE, _native),
    (STABLEHLO, _stablehlo),
    (GRAPH, _graph),
)
