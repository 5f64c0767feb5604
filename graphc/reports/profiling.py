"""Runs steps under JAX's profiler, and finds out which node and which line their time is of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import jax
import numpy as np
from jax.profiler import TraceAnnotation

from graphc.artifacts.entry_point import EntryPoint
from graphc.data.core.checks import check_count
from graphc.errors import AttributeValueError, FeedError, GraphError
from graphc.ir.graph import Graph
from graphc.reports.evaluation import Program, evaluated
from graphc.reports.profile import Profile
from graphc.reports.xplane import MARK, recording
from graphc.runtime.session import Session
from graphc.runtime.step.executable import Executable
from graphc.typing import Feeds, Fetches

_WARM_UP = 2  # steps before any is measured: the first compiles


def profile(
    session: Session,
    fetches: Fetches,
    feeds: Feeds | Iterable[Feeds] | None = None,
    *,
    steps: int = 20,
) -> Profile:
    """Measures where the time of a step goes: by node, by the user's line, and on the host.

    The session runs the steps as `session.run` does, so a training step changes the variables. The
    program is the one that `session.run` runs; nothing is compiled for the profile. A few steps run
    first, and as many steps without the profiler.

    Args:
        session: with any strategy.
        fetches: as for `Session.run`.
        feeds: as for `Session.run`, for every step; or an iterable of feeds, one for each step. If
            it has fewer than `steps`, they are used again.
        steps: the number of steps to profile, at least 1.

    Raises:
        AttributeValueError: an argument is none of these.
        FeedError, FetchError, UnknownNameError: as for `Session.run`.
        ExecutionError: another profile is being recorded in this process.

    Examples:
        >>> x = gc.placeholder((64, 64), name="x")
        >>> session = gc.Session(graph)
        >>> profile = gc.profile(session, x @ x, {x: np.ones((64, 64), "float32")}, steps=5)
        >>> list(profile.nodes), profile.steps
        (['MatMul'], 5)
    """
    if not isinstance(session, Session):
        raise AttributeValueError.here(
            f"profile: the first argument must be a session, got {type(session).__name__}",
            hint="gc.profile(gc.Session(graph), fetches, feeds); for a function of gc.jit or an "
            "entry point of an artifact: gc.profile_call(function, arguments...)",
        )
    check_count("profile: steps", steps, 1)
    batches = _batches(feeds, steps)
    programs: dict[Any, Executable] = {}
    for batch in batches:  # each set of shapes has an executable
        shapes = {key: np.shape(value) for key, value in batch.items()}
        key = tuple(shapes.values())
        if key not in programs:
            programs[key] = session.compile(fetches, shapes)
    executables = list(programs.values())

    def step(number: int) -> None:
        with TraceAnnotation(f"{MARK}feeds"):
            placed = session.put(batches[number % len(batches)])
        with TraceAnnotation(f"{MARK}dispatch"):
            results = session.run(fetches, placed)
        with TraceAnnotation(f"{MARK}wait"):
            jax.block_until_ready(results)
            for executable in executables:
                executable.finish()

    made = [Program.of(executable) for executable in executables]
    devices = max(len(executable.devices) for executable in executables)
    return _measured(step, steps, made, devices, session.graph)


def profile_call(
    function: Callable[..., Any], *args: object, steps: int = 20, **kwargs: object
) -> Profile:
    """Measures where the time of a call goes: of a function of `gc.jit`, an entry point of an
    artifact, or a function of `jax.jit`.

    The lines are those of a `gc.jit` function's own source. An artifact has the names of the nodes,
    but no lines. For other functions, and for those that `gc.jit` leaves to JAX, only XLA's
    instructions are known. `notes` of the profile says so.

    Args:
        function: called `steps` times and a few times before, with these arguments each time. So it
            must not consume them: a function that donates, and an entry point that assigns
            variables, cannot be profiled.
        args, kwargs: the arguments.
        steps: the number of calls to profile, at least 1.

    Raises:
        AttributeValueError: `function` is not callable, or `steps` is no number of steps.
        ExecutionError: another profile is being recorded in this process.

        What the function raises passes through.

    Examples:
        >>> square = gc.jit(lambda x: x @ x)
        >>> profile = gc.profile_call(square, np.ones((64, 64), "float32"), steps=5)
        >>> [node.op for node in profile.nodes.values()]
        ['MatMul']
    """
    if not callable(function):
        raise AttributeValueError.here(
            f"profile_call: the first argument must be a function, got {type(function).__name__}"
        )

    def step(number: int) -> None:
        with TraceAnnotation(f"{MARK}dispatch"):
            results = function(*args, **kwargs)
        with TraceAnnotation(f"{MARK}wait"):
            jax.block_until_ready(results)

    check_count("profile: steps", steps, 1)
    step(0)  # compiles
    programs, notes, devices = _programs_of(function, args, kwargs)
    return _measured(step, steps, programs, devices, None, notes)


def _programs_of(
    function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[list[Program], list[str], int]:
    """(the programs that a call runs, notes on what is not known, the number of devices)."""
    if isinstance(function, EntryPoint):
        note = "an artifact keeps the names of the nodes, but no lines of the user's program"
        text = function.hlo(**kwargs)
        return [Program(text, None)], [note], function.devices
    executable = _executable_of(function)
    if executable is not None:
        return [Program.of(executable)], [], len(executable.devices)
    why = "; ".join(getattr(function, "notes", ()))
    note = "graphc did not compile this function" + (f" ({why})" if why else "")
    return [], [f"{note}, so that only XLA's instructions are known"], 1


def _executable_of(function: object) -> Executable | None:
    """That of the last call of a function of `gc.jit`; None for other functions, and if the call
    was left to JAX."""
    try:
        found = getattr(function, "executable", None)
    except GraphError:
        return None
    return found if isinstance(found, Executable) else None


def _batches(feeds: Any, steps: int) -> list[Feeds]:
    """The feeds of the steps; fewer if they are used again."""
    if feeds is None:
        return [{}]
    if isinstance(feeds, Mapping):
        return [feeds]
    batches: list[Any] = list(islice(feeds, steps)) if isinstance(feeds, Iterable) else [feeds]
    wrong = next((batch for batch in batches if not isinstance(batch, Mapping)), None)
    if not batches or wrong is not None:
        got = "no batch" if not batches else type(wrong).__name__
        raise FeedError.here(
            f"profile: feeds must be a mapping or an iterable of mappings, got {got}",
            hint="gc.profile(session, fetches, {x: batch})",
        )
    return batches


def _measured(
    step: Callable[[int], None],
    steps: int,
    programs: Sequence[Program],
    devices: int,
    graph: Graph | None,
    notes: Sequence[str] = (),
) -> Profile:
    """Runs the steps without and with the profiler."""
    for number in range(_WARM_UP):
        step(number)
    start = time.perf_counter()
    for number in range(steps):
        step(number)
    plain = (time.perf_counter() - start) / steps
    with recording() as recorded:
        for number in range(steps):
            with TraceAnnotation(f"{MARK}step"):
                step(number)
    return evaluated(recorded(), programs, plain, devices, graph, notes)
