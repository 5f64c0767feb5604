"""What the page of a graph shows, as plain data: programs, passes, memory, devices, placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from graphc.devices.discovery import name_of
from graphc.devices.partition import Partition
from graphc.devices.schedule import durations, idle_part, timeline
from graphc.ir.costs import bytes_of
from graphc.ir.graph import Graph
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.passes.core.costs import node_cost, total
from graphc.passes.core.peak import moments
from graphc.reports.node_table import NodeTable, Row, ranges
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.placement_log import placement_rows
from graphc.runtime.step.pass_history import PassHistory


class Compiled(NamedTuple):
    """A compilation, and what its passes did.

    Attributes:
        partition: what each device runs, if the program is on several devices.
    """

    compilation: Compilation
    history: PassHistory
    partition: Partition | None


def data_of_graph(graph: Graph) -> Row:
    """A graph that nothing is fetched from: one program without ports."""
    table = NodeTable({})
    program = table.program(Program(graph.name, (), tuple(graph.nodes), ()))
    step = {"name": "graph", "before": len(graph.nodes), "after": len(graph.nodes), "program": 0}
    return {
        "title": graph.name,
        "note": "the graph as it was built: no fetches were given, so no pass has run",
        "programs": [program],
        "steps": [step],
        "memory": None,
        "lanes": None,
        "placement": {"rows": [], "notes": []},
        **table.to_json(),
    }


def data_of(compiled: Compiled) -> Row:
    """A fetch set of a graph, from the program before all passes to the one that is lowered."""
    compilation, history = compiled.compilation, compiled.history
    table = NodeTable(compilation.bindings)
    programs: list[Row] = [table.program(history.start.after)]
    last = history.start.after
    steps = [_step(asdict(history.start.row), 0)]
    for step in history.steps:
        if step.before is not last:  # the named sizes were bound between two passes
            bound = "(between passes)" if not last.symbols() else "(sizes bound)"
            program = table.program(step.before)
            if not _same(program, programs[-1]):
                counts = [sum(1 for _ in found.walk()) for found in (last, step.before)]
                programs.append(program)
                row = {"name": bound, "before": counts[0], "after": counts[1]}
                steps.append(_step(row, len(programs) - 1))
            last = step.before
        if step.after is not last:
            programs.append(table.program(step.after))
            last = step.after
        steps.append(_step(asdict(step.row), len(programs) - 1))
    final = bind_sizes(last, compilation.bindings) if last.symbols() else last
    data = {
        "title": compilation.prepared.functional.name,
        "note": ", ".join(f"{name} = {size}" for name, size in compilation.bindings.items()),
        "programs": programs,
        "steps": steps,
        "memory": _memory(final, table),
        "lanes": _lanes(compiled, table),
        "placement": _placement(compilation, table),
    }
    return {**data, **table.to_json()}


def _same(one: Row, other: Row) -> bool:
    """Whether two programs look the same: the order of their ports does not matter."""
    if one["nodes"] != other["nodes"]:
        return False
    return all(sorted(one[side]) == sorted(other[side]) for side in ("inputs", "outputs"))


def _step(row: Mapping[str, Any], program: int) -> Row:
    kept = {name: value for name, value in row.items() if value not in (None, (), [])}
    for name in ("milliseconds", "check_milliseconds"):
        if name in kept:
            kept[name] = round(kept[name], 3)
    return {**kept, "program": program}


def _memory(program: Program, table: NodeTable) -> Row:
    """The live bytes while each node of a bound program runs, and which values they are.

    The values are those that are arrays of their own. Where a node writes its results over its
    operands, both are among the values, and the live bytes count them once.
    """
    found = moments(program)
    values = [
        [start, end, bytes_of(tensor), table.tensor(tensor)]
        for start, moment in enumerate(found)
        for tensor, end in moment.ends.items()
    ]
    return {
        "nodes": ranges([table.node(node) or 0 for node in program.nodes]),
        "live": [moment.live for moment in found],
        "inside": [moment.inside for moment in found],
        "values": values,
        "state": bytes_of(*program.input_tensors("state")),
        "feeds": bytes_of(*program.input_tensors("feed")),
    }


def _lanes(compiled: Compiled, table: NodeTable) -> Row | None:
    """What each device runs, and when: estimated from costs, in parts of the step."""
    partition = compiled.partition
    if partition is None:
        devices = [name_of(device) for device in compiled.compilation.devices]
        return {"same": [table.device(name) for name in devices]} if len(devices) > 1 else None
    clusters = partition.clusters
    spans = timeline(clusters, durations(clusters))
    length = max((span.end for span in spans), default=1.0) or 1.0
    rows = []
    for span in spans:
        cluster = clusters[span.cluster]
        nodes = cluster.program.nodes
        row = {
            "cluster": span.cluster,
            "device": table.device(span.device),
            "start": round(span.start / length, 6),
            "end": round(span.end / length, 6),
            "nodes": [node.name or node.op.name for node in nodes],
            "turn": cluster.micro_batch,
            "sent": bytes_of(*cluster.sent),
            **total(map(node_cost, nodes))._asdict(),
        }
        rows.append(row)
    sends = [
        [s.tensor.name, str(s.tensor.type), bytes_of(s.tensor)]
        + [table.device(name) for name in (s.source, s.target)]
        for s in partition.sends
    ]
    return {"clusters": rows, "sends": sends, "idle": round(idle_part(spans), 4)}


def _placement(compilation: Compilation, table: NodeTable) -> Row:
    rows: list[Sequence[Any]] = [
        [row.name, row.op, [table.device(name) for name in row.devices]]
        for row in placement_rows(compilation)
    ]
    return {"rows": rows, "notes": list(compilation.notes)}
