"""Tables of which a step uses few rows: only these rows travel between workers and servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program, ancestors
from graphc.ops.arrays.creation import zeros
from graphc.ops.arrays.indexing import SCATTER_ADD, TAKE, scatter_add
from graphc.ops.structure.training import GRADIENTS
from graphc.passes.core.rules import Rewriter
from graphc.passes.simplify.prune import Prune


@dataclass(frozen=True)
class Lookup:
    """Rows of a table that a worker gets before it computes.

    Attributes:
        name: the variable.
        attrs: those of the `Take` that the server evaluates.
    """

    name: str
    attrs: Mapping[str, Any]


@dataclass(frozen=True)
class Lookups:
    """The lookups of a worker's half.

    Attributes:
        worker: the half, which has the rows as feeds, after its other feeds.
        indices: computes the indices of each lookup from the half's first feeds; None if there is
            no lookup.
        lookups: in the order of the last feeds.
    """

    worker: Program
    indices: Program | None
    lookups: tuple[Lookup, ...]


def look_up(lookup: Lookup, table: Any, indices: Any) -> Any:
    """The rows of a table, as the worker's `Take` would give them."""
    fold: Any = TAKE.fold
    return fold(table, indices, **lookup.attrs)


def pull_rows(worker: Program) -> Lookups:
    """The worker's half with rows as feeds, for tables that it only looks up, and whose indices
    depend on feeds alone."""
    users, given = worker.users(), set(worker.output_tensors())
    made, state = worker.producers(), {p.tensor for p in worker.ports("state")}
    found: list[tuple[Port, Node]] = []
    for port in worker.ports("state"):
        nodes = users.get(port.tensor, [])
        if port.tensor not in given and nodes and all(_is_lookup(n, port.tensor) for n in nodes):
            needed = ancestors(made, [node.inputs[1] for node in nodes])
            reads = {t for node in needed for t in node.inputs} | {n.inputs[1] for n in nodes}
            rows = sum(prod(node.outputs[0].type.sizes) for node in nodes)
            if reads.isdisjoint(state) and rows < prod(port.tensor.type.sizes):
                found += [(port, node) for node in nodes]
    if not found:
        return Lookups(worker, None, ())
    whole = {port.tensor for port, _ in found}
    taken = {node for _, node in found}
    feeds = worker.ports("feed")
    rows_fed = [Port(f"rows/{i}", "feed", n.outputs[0]) for i, (_, n) in enumerate(found)]
    kept = [port for port in worker.ports("state") if port.tensor not in whole]
    left = tuple(node for node in worker.nodes if node not in taken)
    asked = [Port(f"indices/{i}", "fetch", n.inputs[1]) for i, (_, n) in enumerate(found)]
    indices = worker.replace(name=f"{worker.name}_indices", inputs=(*feeds,), outputs=(*asked,))
    return Lookups(
        Prune().run(worker.replace(inputs=(*feeds, *rows_fed, *kept), nodes=left)).program,
        Prune().run(indices).program,
        tuple(Lookup(port.name, dict(node.attrs)) for port, node in found),
    )


def _is_lookup(node: Node, table: Tensor) -> bool:
    of_rows = node.op is TAKE and node.attrs["axis"] == 0
    return of_rows and node.inputs[0] is table and node.inputs[1] is not table


def push_rows(worker: Program, server: Program, own: int) -> tuple[Program, Program]:
    """Both halves, after `marks_apart`, with indices and rows in place of a gradient that is zero
    elsewhere: the worker sends them, and the server adds them up.

    Args:
        own: how many of the worker's results are not sent.
    """
    made, uses = worker.producers(), _uses(worker)
    known = Rewriter()
    known.made.update(made)
    sent, taken, added = [], [], []
    outputs = worker.ports("fetch")
    for port, feed in zip(outputs[own:], server.ports("feed"), strict=True):
        rows = _rows_of(port.tensor, made, uses, known)
        if rows is None:
            sent.append(port.tensor)
            taken.append(feed.tensor)
            continue
        indices, updates = (Tensor(t.type, f"{feed.name}/rows") for t in rows.inputs[1:])
        sent += rows.inputs[1:]
        taken += [indices, updates]
        with Builder(like=rows) as builder:
            table = zeros(feed.tensor.type.shape, feed.tensor.dtype)
            total = scatter_add(table, indices, updates, mode=rows.attrs["mode"])
            builder.define((total, feed.tensor))
        added += builder.nodes
    sending = worker.replace(outputs=(*outputs[:own], *_ports("fetch", sent)))
    taking = server.replace(
        inputs=(*_ports("feed", taken), *server.ports("state")), nodes=(*added, *server.nodes)
    )
    return Prune().run(sending).program, taking


def _ports(kind: str, tensors: Sequence[Tensor]) -> list[Port]:
    return [Port(f"crossing/{i}", kind, tensor) for i, tensor in enumerate(tensors)]


def _uses(program: Program) -> Counter[Tensor]:
    found = Counter(tensor for node in program.nodes for tensor in node.inputs)
    found.update(program.output_tensors())
    return found


def _rows_of(
    gradient: Tensor, made: Mapping[Tensor, Node], uses: Counter[Tensor], known: Rewriter
) -> Node | None:
    """The node that adds rows to zeros, if the gradient is its result and nothing else uses it."""
    mark = made.get(gradient)
    if mark is None or mark.op is not GRADIENTS or uses[gradient] != 1:
        return None
    total = mark.inputs[0]
    node = made.get(total)
    if node is None or node.op is not SCATTER_ADD or uses[total] != 1 or node.attrs["axis"] != 0:
        return None
    if known.scalar(node.inputs[0]) != 0:
        return None
    _, indices, updates = (prod(t.type.sizes) for t in node.inputs)
    return node if indices + updates < prod(total.type.sizes) else None
