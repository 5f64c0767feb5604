"""`Run`: how a graph is run for a comparison. From it: its program, its inputs and its device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from graphc.config import CompileOptions
from graphc.devices.discovery import default_device
from graphc.devices.strategy import devices_named
from graphc.devices.targets import target_of
from graphc.divergence.level import ProgramSide
from graphc.divergence.rounding import unit_of
from graphc.errors import AttributeValueError, UnknownNameError, nearest
from graphc.ir.dtypes import as_dtype
from graphc.ir.graph import Graph
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.passes.core.base import Pass
from graphc.passes.manager import PassRow, watching
from graphc.runtime.feeds.feeds import FeedSpec, bind_feeds
from graphc.runtime.feeds.fetches import FetchSet, resolve_feeds
from graphc.runtime.session import Session
from graphc.runtime.state.initial import initial_values
from graphc.runtime.targets.prepare import Prepared, bind, prepare
from graphc.typing import Feeds, Fetches

_UNITS = {"bf16": "bfloat16", "f16": "float16"}
_TF32 = 2.0**-11  # the rounding unit of operands of products on GPUs


@dataclass(frozen=True)
class Run:
    """How a graph is run for `gc.compare`.

    Args:
        options: the options of compilation; None for no passes at all.
        device: where it runs, such as "/gpu:0"; None for the default device.
        before, after: the name of a pass: the program before it or after it is run, instead of the
            program after all passes. "prune:2" is the second run of a pass.
        passes: these passes instead of those that the options select.

    Examples:
        >>> gc.Run(gc.CompileOptions(), after="fuse-attention").label
        'after fuse-attention'
    """

    options: CompileOptions | None = None
    device: str | None = None
    before: str | None = None
    after: str | None = None
    passes: Sequence[Pass] | None = None

    def __post_init__(self) -> None:
        if self.before is not None and self.after is not None:
            raise AttributeValueError(
                "Run: before= and after= exclude each other", hint="give one of them"
            )

    @property
    def label(self) -> str:
        """A short description."""
        parts = []
        if self.after or self.before:
            parts.append(f"after {self.after}" if self.after else f"before {self.before}")
        elif self.passes is not None:
            parts.append("passes " + ",".join(each.name for each in self.passes))
        elif self.options is None:
            parts.append("without passes")
        else:
            parts.append(self.options.pipeline)
        if self.options is not None and self.options.precision:
            parts.append(self.options.precision)
        if self.device:
            parts.append(self.device)
        return " ".join(parts)


@dataclass(frozen=True)
class Definition:
    """What is computed: the program before all passes, with the values of its inputs.

    Attributes:
        prepared: the fetch set. Its sizes are ints.
        inputs: a value for each input of the program.
    """

    prepared: Prepared
    inputs: tuple[np.ndarray[Any, Any], ...]

    @property
    def program(self) -> Program:
        """The program."""
        return self.prepared.functional


def _define(
    graph: Graph, fetches: Fetches, feeds: Feeds, state: Mapping[str, np.ndarray[Any, Any]]
) -> Definition:
    """The definition of `fetches`.

    Args:
        state: the values of the variables and of the hidden state.

    Raises:
        FeedError, FetchError, UnknownNameError: feeds or fetches do not fit the graph.
    """
    options = CompileOptions()
    given = resolve_feeds(graph, feeds)
    fetch_set = FetchSet.of(graph, fetches, given)
    prepared = prepare(graph, fetch_set.nest.distinct, fetch_set.feeds, options)
    values = {}
    for port, tensor in zip(prepared.functional.ports("feed"), fetch_set.feeds, strict=True):
        spec = FeedSpec(port, tensor.node.source, copy=False)
        values[port.name] = np.asarray(spec.convert(given[tensor]))
    shapes = [value.shape for value in values.values()]
    bindings = bind_feeds(prepared.functional, shapes, prepared.sources)
    # Sizes are bound before the passes, so that the passes keep the tensors of this program.
    functional = bind_sizes(prepared.functional, bindings)
    bound = Prepared(functional, prepared.sources, options, prepared.shard_sources)
    graph.finalize()
    inputs = [values[p.name] if p.kind == "feed" else state[p.name] for p in functional.inputs]
    return Definition(bound, tuple(map(np.asarray, inputs)))


def defined(source: Graph | Session, fetches: Fetches, feeds: Feeds | None) -> Definition:
    """What is computed, with the state of the graph or the session."""
    graph = source.graph if isinstance(source, Session) else source
    state = initial_values(graph)
    if isinstance(source, Session):
        state |= source.values()
    return _define(graph, fetches, feeds or {}, state)


class Ran:
    """A run of a definition.

    Attributes:
        side: for the comparison.
        history: (name of a pass, the program after it) for each pass that changed the program.
    """

    def __init__(self, definition: Definition, run: Run) -> None:
        self._definition = definition
        self._device = device_of(run.device)
        self._options = run.options or CompileOptions(pipeline="O0", fuse_attention=False)
        self.label = run.label
        self.history = self._history(run)
        self.side = self.on(self.history[-1][1] if self.history else definition.program)

    def on(self, program: Program) -> ProgramSide:
        """The run of another program of the history."""
        narrow = self._options.precision
        least = unit_of(as_dtype(_UNITS[narrow])) if narrow else 0.0
        products = _TF32 if self._device.platform == "gpu" else 0.0
        inputs = dict(
            zip(
                [p.name for p in self._definition.program.inputs],
                self._definition.inputs,
                strict=True,
            )
        )
        values = [inputs[port.name] for port in program.inputs]
        return ProgramSide(program, values, self._device, self.label, least, max(least, products))

    def _history(self, run: Run) -> list[tuple[str, Program]]:
        start = self._definition.program
        steps: list[tuple[str, Program, Program]] = []

        def keep(row: PassRow, before: Program, after: Program) -> None:
            steps.append((row.name, before, after))

        if run.options is None and run.passes is None:
            return []
        if run.passes is not None:
            program = start
            for each in run.passes:
                result = each.run(program).program
                steps.append((each.name, program, result))
                program = result
        else:
            options = replace(self._options, dump=None, validate=False)
            prepared = self._definition.prepared.under(options)
            with watching(keep):
                bind(prepared, {}, options, target_of([self._device], 1))
        end = len(steps)
        if run.before or run.after:
            end = _position(run.before or run.after or "", steps) + (1 if run.after else 0)
        return [(name, after) for name, before, after in steps[:end] if after is not before]


def _position(wanted: str, steps: Sequence[tuple[str, Program, Program]]) -> int:
    """The number of the step that `wanted` names: as `PassHistory.before` finds it."""
    name, _, number = wanted.partition(":")
    runs = [i for i, step in enumerate(steps) if step[0] == name]
    changed = [i for i in runs if steps[i][1] is not steps[i][2]]
    if not runs:
        known = list(dict.fromkeys(step[0] for step in steps))
        raise UnknownNameError(f"compare: no pass {name!r} ran", hint=nearest(name, known))
    if not number:
        return (changed or runs)[0]
    if not number.isdecimal() or not 1 <= int(number) <= len(runs):
        raise UnknownNameError(
            f"compare: pass {name!r} has no run {number!r}", hint=f"it ran {len(runs)} times"
        )
    return runs[int(number) - 1]


def device_of(name: str | None) -> jax.Device:
    """The device of a run.

    Raises:
        DeviceError: there is no such device.
    """
    if name is None:
        return default_device()
    return devices_named(name)[0]
