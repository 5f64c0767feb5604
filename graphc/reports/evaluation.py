"""From a recording to a profile: the time of nodes, of lines and of the host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from graphc.errors import GraphcError, GraphError
from graphc.ir import program as ir
from graphc.ir.fingerprint import names_digest
from graphc.ir.graph import Graph
from graphc.ir.node import Node
from graphc.ir.source import Source
from graphc.passes.core.costs import node_cost
from graphc.reports.attribution import Key, Times, attribute
from graphc.reports.ends import with_true_ends
from graphc.reports.node_names import (
    Instructions,
    Owner,
    Shares,
    instruction_names,
    instructions_of,
)
from graphc.reports.profile import (
    BACKWARD,
    EXCHANGE,
    FORWARD,
    LOOP,
    UPDATE,
    HostTime,
    NodeTime,
    Profile,
)
from graphc.reports.xplane import MARK, Mark, Recording, Run
from graphc.runtime.step.executable import Executable

_GRADIENTS = re.compile(r"gradients(_\d+)?")
_COLLECTIVES = frozenset(("AllReduce", "ReduceScatter", "AllGather"))


class Program(NamedTuple):
    """A compiled program that was profiled.

    Attributes:
        hlo: its HLO text.
        lowered: the program that was lowered; None if it is not known.
        notes: what is not known about it.
    """

    hlo: str
    lowered: ir.Program | None
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(executable: Executable) -> Program:
        """That of an executable."""
        text, stages = executable.hlo(), executable.stages
        try:
            lowered = stages.local
        except GraphError as error:
            return Program(text, None, (f"the lines are not known: {error.what}",))
        if not executable.cached or stages.names == names_digest(lowered):
            return Program(text, lowered)
        # The cache had an equal program, perhaps of another script. Its instructions are those of
        # this one, and only their names differ.
        own = str(stages.compiled.as_text())
        if instruction_names(own) == instruction_names(text):
            return Program(own, lowered)
        note = (
            "the executable in the cache has the names of another script: compile with cache=None"
        )
        return Program(text, None, (note,))


def evaluated(
    recording: Recording,
    programs: Sequence[Program],
    plain_seconds: float,
    devices: int,
    graph: Graph | None,
    notes: Sequence[str] = (),
) -> Profile:
    """The profile of the steps in a recording.

    Args:
        plain_seconds: the time of a step without the profiler.
        graph: the user's graph, if there is one.
    """
    steps = [mark for mark in recording.marks if mark.name == f"{MARK}step"]
    tables = _tables(programs)
    recording = recording._replace(runs=with_true_ends(recording.runs, tables))
    seen = {(run.module, run.instruction) for run in recording.runs}
    times = attribute(recording.runs, steps, lambda run: _contains(tables, seen, run))
    lowered = [program.lowered for program in programs if program.lowered is not None]
    once = {node for program in lowered for node in program.nodes}
    spent, counts, unattributed, owners = _by_owner(times, tables, seen, once)
    count = len(steps) or 1
    nodes = _node_times(spent, counts, count, _Phases(lowered, graph))
    total = sum(unattributed.values())
    program = lowered[0] if lowered else None
    known = [note for program in programs for note in program.notes]
    notes = [*notes, *known, *_notes(times, tables, total)]
    return Profile(
        nodes={node.name: node for node in nodes},
        host=_host(recording.marks, count),
        step_seconds=times.total / count,
        plain_seconds=plain_seconds,
        unattributed_seconds=total / count,
        idle_seconds=times.idle / count,
        steps=len(steps),
        devices=devices,
        unattributed={name: seconds / count for name, seconds in unattributed.items()},
        notes=tuple(notes),
        recording=_within(recording, steps),
        owners=owners,
        containers=frozenset(
            (run.module, run.instruction) for run in recording.runs if _contains(tables, seen, run)
        ),
        program=program,
        program_seconds={} if program is None else _seconds_in(program, spent, count),
    )


def _seconds_in(
    program: ir.Program, spent: Mapping[Owner, float], steps: int
) -> Mapping[Node, float]:
    """The time of the program's own nodes in one step."""
    found = {owner.node: seconds / steps for owner, seconds in spent.items()}
    return {node: found[node] for node in program.walk() if node in found}


def _tables(programs: Iterable[Program]) -> Mapping[str, Instructions]:
    """The instructions of the programs by the name of their module."""
    tables: dict[str, Instructions] = {}
    for program in programs:
        for name, table in instructions_of(program.hlo, program.lowered).items():
            tables[name] = table if name not in tables else tables[name].joined(table)
    return tables


def _contains(tables: Mapping[str, Instructions], seen: set[Key], run: Run) -> bool:
    """Whether a run is of a loop, branch or call of whose parts some were recorded."""
    table = tables.get(run.module)
    inside = table.containers.get(run.instruction) if table is not None else None
    return inside is not None and any((run.module, name) in seen for name in inside)


def _by_owner(
    times: Times, tables: Mapping[str, Instructions], seen: set[Key], once: set[Node]
) -> tuple[dict[Owner, float], dict[Owner, float], dict[str, float], dict[Key, str]]:
    """Seconds and runs by owner, the seconds of instructions without one, and the name of the
    largest owner of each instruction.

    Args:
        once: the nodes outside of loops. One that XLA runs as a loop still runs once, and one in a
            loop runs as often as the loop even if some of it was moved out.
    """
    spent: dict[Owner, float] = {}
    counts: dict[Owner, float] = {}
    unattributed: dict[str, float] = {}
    owners: dict[Key, str] = {}
    for key, seconds in times.seconds.items():
        shares = _shares(tables, seen, key)
        for owner, share in shares.items():
            spent[owner] = spent.get(owner, 0.0) + share * seconds
            runs = times.runs.get(key, 0.0)
            chosen = min if owner.node in once else max
            counts[owner] = chosen(counts.get(owner, runs), runs)
        if shares:
            owners[key] = max(shares, key=lambda owner: shares[owner]).name
        else:
            unattributed[key[1]] = unattributed.get(key[1], 0.0) + seconds
    return spent, counts, unattributed, owners


def _shares(tables: Mapping[str, Instructions], seen: set[Key], key: Key) -> Shares:
    table = tables.get(key[0])
    if table is None:
        return {}
    inside = table.containers.get(key[1])
    if inside is not None and not any((key[0], name) in seen for name in inside):
        return table.whole.get(key[1], {})
    return table.shares.get(key[1], {})


def _host(marks: Sequence[Mark], steps: int) -> HostTime:
    def total(name: str) -> float:
        return 1e-9 * sum(m.end - m.start for m in marks if m.name == MARK + name) / steps

    return HostTime(total("feeds"), total("dispatch"), total("wait"))


def _within(recording: Recording, steps: Sequence[Mark]) -> Recording:
    """The part of the recording from the start of the first step on, which begins at 0."""
    if not steps:
        return recording
    first = steps[0].start

    def moved(item: Run | Mark) -> tuple[float, float]:
        return item.start - first, item.end - first

    runs = [r for r in recording.runs if r.start >= first]
    return Recording(
        [r._replace(start=moved(r)[0], end=moved(r)[1]) for r in runs],
        [m._replace(start=moved(m)[0], end=moved(m)[1]) for m in recording.marks],
    )


def _notes(times: Times, tables: Mapping[str, Instructions], unattributed: float) -> Iterator[str]:
    busy = times.total - times.idle
    if not times.seconds:
        yield (
            "the profiler recorded no instruction: this version of JAX writes profiles in another "
            "form, or the device records none"
        )
    elif tables and unattributed > max(0.1 * busy, 0.02 * times.total):
        yield (
            f"{100 * unattributed / busy:.0f}% of the device's time belongs to no node: XLA gave "
            "these instructions no name"
        )
    named = sum(table.named for table in tables.values())
    known = sum(table.known for table in tables.values())
    if known < 0.5 * named:
        yield (
            f"{named - known} of {named} operations have names that are not in this graph: JAX's "
            "own compilation cache may have given the executable of another script"
        )


# -- nodes ----------------------------------------------------------------------------------


def _node_times(
    spent: Mapping[Owner, float], counts: Mapping[Owner, float], steps: int, phases: _Phases
) -> list[NodeTime]:
    """The nodes, the slowest first. A node of a loop that replaces several counts as these."""
    found: dict[str, NodeTime] = {}
    for owner, seconds in spent.items():
        for node in _expanded(owner, seconds / steps, counts[owner] / steps, phases):
            known = found.get(node.name)
            found[node.name] = node if known is None else _added(known, node)
    return sorted(found.values(), key=lambda node: -node.seconds)


def _expanded(owner: Owner, seconds: float, count: float, phases: _Phases) -> Iterator[NodeTime]:
    node = owner.node
    if node is None:
        yield NodeTime(owner.name, "", seconds, count, 0.0, 0.0, None, phases.phase(owner.name))
        return
    flops, moved = _cost(node)
    turns = node.source.turns if node.source is not None else ()
    for name, source in turns or ((owner.name, node.source),):
        name = name or owner.name
        parts = len(turns) or 1
        yield NodeTime(
            name,
            node.op.name,
            seconds / parts,
            count / parts,
            flops * count / parts,
            moved * count / parts,
            None if source is None else Source(source.file, source.line),
            _phase(node, name, phases),
            phases.caller(name),
        )


def _phase(node: Node, name: str, phases: _Phases) -> str:
    if node.regions:
        return LOOP
    return EXCHANGE if node.op.name in _COLLECTIVES else phases.phase(name)


def _cost(node: Node) -> tuple[float, float]:
    """FLOPs and bytes of one run; of a loop or a branch none, because its parts have theirs."""
    if node.regions:
        return 0.0, 0.0
    try:
        cost = node_cost(node)
    except GraphcError:  # a size is open
        return 0.0, 0.0
    return float(cost.flops), float(cost.bytes)


def _added(a: NodeTime, b: NodeTime) -> NodeTime:
    """Two nodes of one name, such as two bodies of a branch have."""
    return NodeTime(
        a.name,
        a.op,
        a.seconds + b.seconds,
        max(a.count, b.count),
        a.flops + b.flops,
        a.bytes + b.bytes,
        a.source or b.source,
        a.phase,
        a.caller,
    )


class _Phases:
    """The nodes of the backward pass and of the update, and the line that requested them.

    `gc.minimize` puts the first into the scope `NAME/gradients`, and the second into
    `NAME/update`. `gc.gradients` has the scope `gradients`.
    """

    def __init__(self, programs: Sequence[ir.Program], graph: Graph | None) -> None:
        graphs = [] if graph is None else list(graph.nodes)
        nodes = [*graphs, *(node for program in programs for node in program.walk())]
        self._callers: dict[str, Source | None] = {}
        for node in nodes:
            scope = _scope_of_gradients(node.name)
            if scope is not None:
                self._callers.setdefault(scope, None)
        for node in nodes:
            scope = self._asked_in(node.name)
            if scope is not None and self._callers[scope] is None and node.source is not None:
                self._callers[scope] = Source(node.source.file, node.source.line)

    def _asked_in(self, name: str) -> str | None:
        """The scope of gradients, if a node in it has the line that requested them: the step of
        `gc.minimize` itself, the update, or the gradient of the result."""
        parts = name.split("/")
        if len(parts) >= 2 and _GRADIENTS.fullmatch(parts[-2]):
            scope = "/".join(parts[:-1])
            return scope if scope in self._callers else None
        for end in (len(parts), *[i for i, part in enumerate(parts) if part == "update"]):
            scope = "/".join([*parts[:end], "gradients"])
            if scope in self._callers:
                return scope
        return None

    def phase(self, name: str) -> str:
        """ "forward", "backward" or "update"."""
        if _scope_of_gradients(name) is not None:
            return BACKWARD
        return FORWARD if self._updated_in(name) is None else UPDATE

    def caller(self, name: str) -> Source | None:
        """The line that requested the gradients or the update; None for the forward pass."""
        scope = _scope_of_gradients(name) or self._updated_in(name)
        return None if scope is None else self._callers.get(scope)

    def _updated_in(self, name: str) -> str | None:
        parts = name.split("/")
        for i, part in enumerate(parts):
            scope = "/".join([*parts[:i], "gradients"])
            if part == "update" and scope in self._callers:
                return scope
        return None


def _scope_of_gradients(name: str) -> str | None:
    """The scope of the gradients that a node is part of, such as "train/gradients"."""
    parts = name.split("/")
    for i, part in enumerate(parts):
        if _GRADIENTS.fullmatch(part):
            return "/".join(parts[: i + 1])
    return None
