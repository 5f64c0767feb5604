"""`gc.compare`: finds where two runs part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from graphc.config import CompileOptions
from graphc.divergence.faults import Located, blamed_pass, innermost, inputs_of
from graphc.divergence.level import Level, ProgramSide, Seen, Side
from graphc.divergence.records import Record
from graphc.divergence.result import Comparison, Divergence
from graphc.divergence.rounding import difference
from graphc.divergence.runs import Definition, Ran, Run, defined
from graphc.errors import AttributeValueError, FetchError, UnknownNameError
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.ir.stack import within_stack
from graphc.runtime.session import Session
from graphc.typing import Feeds, Fetches

Other: TypeAlias = Run | CompileOptions | Record | Mapping[str, Any] | str
"""What a graph is compared with: another `gc.Run` of it, compile options, a device, a record of
another process, or the values of another framework by the names of nodes or tensors."""


class HasGraph(Protocol):
    """What holds a graph with named inputs and outputs: `gc.ModelGraph`."""

    @property
    def graph(self) -> Graph:
        """The graph."""

    @property
    def inputs(self) -> Mapping[str, Tensor]:
        """The placeholders by name."""

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        """The results by name."""


@within_stack
def compare(
    a: Graph | Session | HasGraph,
    b: Other | None = None,
    feeds: Feeds | None = None,
    *,
    fetches: Fetches | None = None,
    run: Run | CompileOptions | None = None,
    find_pass: bool = True,
) -> Comparison:
    """Finds the first node whose values in two runs differ by more than rounding explains.

    Every value that both runs have is computed again in float64, from the run's own values before
    it. What random rounding errors change in that result is rounding; a larger distance is a fault.
    So errors that only grow along the graph are not reported.

    Args:
        a: a graph, which starts with its initial state; a session, which has its own; or a graph of
            an imported model (`ImportedModel.to_graph`).
        b: what it is compared with: another run of the same graph (a `gc.Run`, compile options, or
            the name of a device, with the same options), or values of another program by the names
            of nodes or tensors (a mapping, or a `gc.Record`). By default, a run without passes.
        feeds: values by tensor or name.
        fetches: what is run; by default the outputs of an imported model. The values in between are
            compared.
        run: how `a` is run, if not with the options of the session, or default options. The graph
            of an imported model is compared with a mapping without the pass move-transposes.
        find_pass: whether to find the pass that made a fault, which repeats the comparison a few
            times.

    Raises:
        FeedError, FetchError, UnknownNameError: feeds or fetches do not fit the graph, a pass did
            not run, or no name of a mapping is that of a node.
        DeviceError: there is no such device.

    Examples:
        >>> x = gc.placeholder((4,), name="x")
        >>> y = gc.sqrt(gc.exp(x, name="e"), name="root")
        >>> print(gc.compare(graph, feeds={x: np.zeros(4)}, fetches=y))
        rounding explains all 2 values of O2 and without passes
          largest difference: 0 of the largest element
        ...
        >>> wrong = {"e": np.ones(4, np.float32), "root": np.full(4, 1.001, np.float32)}
        >>> gc.compare(graph, wrong, {x: np.zeros(4)}, fetches=y).first.node
        'root'
    """
    model: Any = a
    if not isinstance(a, (Graph, Session)):
        if not isinstance(getattr(model, "outputs", None), Mapping):
            raise AttributeValueError(
                f"compare: the first argument must be a graph or a session, got {type(a).__name__}",
                hint="gc.compare(session, feeds=..., fetches=...); for an imported model, "
                "gc.compare(model.to_graph(), ...)",
            )
        if fetches is None:
            fetches = list(model.outputs.values())
        feeds = {
            model.inputs.get(k, k) if isinstance(k, str) else k: v for k, v in (feeds or {}).items()
        }
    if fetches is None:
        raise FetchError("compare: no fetches were given", hint="pass fetches=[train, loss]")
    source = a if isinstance(a, (Graph, Session)) else model.graph
    definition = defined(source, fetches, feeds)
    options = a.options if isinstance(a, Session) else CompileOptions()
    if not isinstance(a, (Graph, Session)) and isinstance(b, Mapping):
        # The values of another framework are in its own order of axes.
        options = replace(options, without_passes=("move-transposes",))
    first = _resolved(run, Run(options), options)
    # The same options on another device; without a device, no passes.
    own = first.options if isinstance(first, Run) else options
    return _compared(definition, [first, _resolved(b, Run(), own)], find_pass)


def _resolved(
    given: Other | None, default: Run, options: CompileOptions | None
) -> Run | Mapping[str, Any] | Record:
    if given is None:
        return default
    if isinstance(given, (Run, Mapping, Record)):
        return given
    if isinstance(given, CompileOptions):
        return Run(given)
    if isinstance(given, str):
        return Run(options, device=given)
    raise AttributeValueError(
        f"compare: {type(given).__name__} is not a run",
        hint="pass a gc.Run, gc.CompileOptions, a device, or values by the names of nodes",
    )


class ValuesSide:
    """A run outside of graphc: its values by the names of nodes or tensors."""

    least = least_of_products = 0.0

    def __init__(self, values: Mapping[str, Any], label: str) -> None:
        self._values, self.label = values, label
        self._names: dict[Tensor, str] = {}

    def known(self, program: Program) -> set[Tensor]:
        for node in program.nodes:
            for tensor in node.outputs:
                for name in (tensor.name, tensor.name.removesuffix(":0")):
                    if name in self._values and tensor not in self._names:
                        self._names[tensor] = name
        return set(self._names)

    def values(self, wanted: Sequence[Tensor]) -> Iterator[Mapping[Tensor, Array]]:
        for tensor in wanted:
            yield {tensor: np.asarray(self._values[self._names[tensor]])}


def _compared(
    definition: Definition, runs: Sequence[Run | Mapping[str, Any] | Record], find_pass: bool
) -> Comparison:
    program = definition.program
    ran = [Ran(definition, run) if isinstance(run, Run) else None for run in runs]
    sides: list[Side] = []
    notes: list[str] = []
    for each, run in zip(ran, runs, strict=True):
        if each is not None:
            sides.append(each.side)
            continue
        record = run if isinstance(run, Record) else None
        values = record.checked(definition) if record is not None else run
        assert isinstance(values, Mapping)
        side = ValuesSide(values, "values" if record is None else record.label)
        count = len(side.known(program))
        if not count:
            raise UnknownNameError(
                f"compare: none of the {len(values)} names is that of a value of the graph",
                details=[f"the graph has {', '.join(n.name for n in program.nodes[:5])}, ..."],
                hint="name them as the nodes of the graph",
            )
        notes.append(f"{side.label}: {count} of {len(program.nodes)} nodes have a value")
        sides.append(side)
    inputs = dict(zip(program.input_tensors(), definition.inputs, strict=True))
    given = [inputs_of(program, s) if isinstance(s, ProgramSide) else inputs for s in sides]
    rows: list[Divergence] = []
    first: Divergence | None = None
    for seen in Level(program, sides).compare(given):
        rows.append(_row(Located(seen), [side.label for side in sides]))
        if first is None and rows[-1].is_fault:
            first = _located(definition, seen, rows[-1], ran, find_pass)
    return Comparison((sides[0].label, sides[1].label), tuple(rows), first, tuple(notes))


def _located(
    definition: Definition, seen: Seen, row: Divergence, ran: Sequence[Ran | None], find_pass: bool
) -> Divergence:
    """The fault of a value: inside loops, and with the pass that made it."""
    number = max(range(len(ran)), key=lambda i: seen.local[i].ratio)
    run = ran[number]
    if run is None:
        return row
    located: tuple[str | None, Located] | None = None
    if find_pass and run.history:
        located = blamed_pass(definition, run)
    blamed, found = located or (None, innermost(Located(seen), run.side))
    inner = _row(found, [run.label] * len(found.seen.local))
    return replace(inner, blamed=blamed, difference=row.difference)


def _row(found: Located, labels: Sequence[str]) -> Divergence:
    seen = found.seen
    node = seen.segment.node
    name, source = found.name_and_source
    number = max(range(len(labels)), key=lambda i: seen.local[i].ratio)
    return Divergence(
        node=name,
        op=node.op.name,
        source=source,
        tensor=seen.tensor.name,
        type=str(seen.tensor.type),
        nodes=tuple(n.name or n.op.name for n in seen.segment.nodes if n.op.name != "Constant"),
        difference=difference(seen.values[0], seen.values[-1]),
        errors=tuple(each.relative for each in seen.local),
        ratios=tuple(each.ratio for each in seen.local),
        inside=found.inside,
        index=seen.local[number].at,
        run=labels[number],
    )
