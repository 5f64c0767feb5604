"""Counts a workload: from graphc's program for one device, the collectives that the replicate pass
inserts into it, and the HLO that XLA compiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from graphc.cluster.scale.workload import Exchange, Memory, Products, Workload
from graphc.config import CompileOptions
from graphc.devices.bucketing import (
    BUCKET_BYTES,
    GPU_BUCKET_BYTES,
    BucketCollectives,
    exchanges_behind,
)
from graphc.devices.join_moments import JoinMoments
from graphc.devices.machine import Machine
from graphc.devices.narrow_exchanges import NarrowExchanges
from graphc.devices.replicate import Replicate
from graphc.errors import FeedError, MemoryLimitError, MissingExtraError
from graphc.ir.costs import bytes_of, bytes_of_type
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.ops.structure.collective import EXCHANGES
from graphc.ops.structure.training import GRADIENTS, LOSS_ADJOINT
from graphc.passes.core.costs import node_cost
from graphc.passes.simplify.drop_marks import DropMarks
from graphc.runtime.feeds.feeds import bind_feeds
from graphc.runtime.feeds.fetches import FetchSet, resolve_feeds
from graphc.runtime.hlo.hlo_cost import HloCost
from graphc.runtime.pipeline.fitting import taken_by
from graphc.runtime.step.compiler import compile, shape_of
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.prepare import prepare
from graphc.runtime.targets.slot_pieces import is_slot
from graphc.typing import Feeds, Fetches

_WINDOWS = 16  # parts of the forward pass; a pipeline cuts each at its narrowest place


def workload_of(
    graph: Graph,
    fetches: Fetches,
    feeds: Feeds,
    options: CompileOptions,
    machine: Machine | None = None,
) -> Workload:
    """Compiles the step for one device, and counts it.

    Args:
        feeds: as for `gc.compile`: the shapes of the batch of one device.
        machine: the GPU to compile for; this machine's default device if it is None, or if it
            cannot be compiled for here.

    Raises:
        FeedError: no feed has a batch axis, or their sizes differ.
        LayoutError, FetchError: as for `gc.compile`.
    """
    given = resolve_feeds(graph, feeds)
    fetch_set = FetchSet.of(graph, fetches, given)
    shapes = {tensor: tuple(shape_of(tensor, given[tensor])) for tensor in fetch_set.feeds}
    prepared = prepare(graph, fetch_set.nest.distinct, fetch_set.feeds, options)
    functional = prepared.functional
    bindings = bind_feeds(functional, list(shapes.values()), prepared.sources)
    program = bind_sizes(functional, bindings) if bindings else functional
    axes = _batch_axes(program, fetch_set.feeds)
    rows = _rows(shapes, axes)
    phases = _Phases(program)
    compiled = _Compiler(graph, fetches, shapes, axes, machine, options)
    samples = [(size, compiled(size)) for size in sorted({rows, max(1, rows // 2)}, reverse=True)]
    ports = {port.name: bytes_of_type(port.tensor.type) for port in program.ports("state")}
    slots = sum(size for name, size in ports.items() if is_slot(name, ports))
    held = sum(ports.values())
    work = [float(node_cost(node).flops) for node in phases.forward]
    return Workload(
        name=program.name,
        rows=rows,
        costs=[(size, found[0]) for size, found in samples],
        parameters=held - slots,
        slots=slots,
        forward=phases.share,
        exchanges=_exchanges(program, phases, GPU_BUCKET_BYTES if machine else BUCKET_BYTES),
        products=_products(program, phases.forward, rows),
        layers=work,
        boundary=_boundary(program, phases.forward, work) / rows,
        memory=_memory([(size, found[1] - held) for size, found in samples]),
        notes=tuple(dict.fromkeys((*compiled.notes, *samples[0][1][0].notes))),
    )


class _Compiler:
    """Compiles the step for several batches, and keeps what could not be done as asked.

    Attributes:
        notes: one line for each.
    """

    def __init__(
        self,
        graph: Graph,
        fetches: Fetches,
        shapes: Mapping[Tensor, tuple[int, ...]],
        axes: Mapping[Tensor, int],
        machine: Machine | None,
        options: CompileOptions,
    ) -> None:
        self._graph, self._fetches, self._options = graph, fetches, options
        self._shapes, self._axes = shapes, axes
        self._machine = None if machine is None else Machine.of(machine.model)
        self.notes: list[str] = []

    def __call__(self, rows: int) -> tuple[HloCost, int]:
        """The cost of a step of so many rows, and the bytes that it needs."""
        feeds: dict[Any, Any] = {}
        for tensor, shape in self._shapes.items():
            sizes = list(shape)
            if tensor in self._axes:
                sizes[self._axes[tensor]] = rows
            feeds[tensor] = tuple(sizes)
        step = self._step(feeds)
        return step.hlo_cost(), taken_by(step.compiled)

    def _step(self, feeds: dict[Any, Any]) -> Executable:
        if self._machine is not None:
            try:
                return compile(
                    self._graph, self._fetches, feeds, machine=self._machine, options=self._options
                )
            except (MissingExtraError, MemoryLimitError) as error:
                why = str(error).splitlines()[0]
                self.notes.append(f"counted from the program for this machine's CPU, since: {why}")
                self._machine = None
        return compile(self._graph, self._fetches, feeds, options=self._options)


def _batch_axes(program: Program, feeds: Sequence[Tensor]) -> dict[Tensor, int]:
    """The batch axis of each feed that has one; the program's ports are in the order of feeds."""
    ports = program.ports("feed")
    axes = [program.batch_axes.get(port.name) for port in ports]
    found = zip(feeds, axes, strict=True)
    return {feed: axis for feed, axis in found if axis is not None}


def _rows(shapes: Mapping[Tensor, tuple[int, ...]], axes: Mapping[Tensor, int]) -> int:
    """The number of rows of the batch."""
    sizes = {shapes[tensor][axis] for tensor, axis in axes.items()}
    if len(sizes) != 1 or not min(sizes):
        what = f"feeds have batches of {sorted(sizes)}" if sizes else "no feed has a batch axis"
        raise FeedError(f"scaling: {what}", hint='make the first size of placeholders "batch"')
    return sizes.pop()


def _memory(samples: Sequence[tuple[int, float]]) -> Memory:
    """The line through the samples. With one sample, all of it counts for the rows."""
    (rows, total), (fewer, less) = samples[0], samples[-1]
    slope = (total - less) / (rows - fewer) if rows != fewer else total / rows
    slope = min(max(slope, 0.0), total / rows)
    return Memory(max(0.0, total - slope * rows), slope)


class _Phases:
    """Which nodes of a program with the marks of `minimize` belong to which part of a step.

    Attributes:
        forward: the nodes before the gradient of the loss, in program order.
        share: their part of the work of both passes.
        late: the names of the nodes that depend on gradients: the optimizer.
    """

    def __init__(self, program: Program) -> None:
        nodes = program.nodes
        marks = [place for place, node in enumerate(nodes) if node.op is LOSS_ADJOINT]
        end = marks[0] if marks else len(nodes)
        updates = _behind(program, GRADIENTS)
        self.forward = nodes[:end]
        self.late = {node.name for node in updates}
        forward = _flops(self.forward)
        both = forward + _flops([node for node in nodes[end:] if node not in updates])
        self.share = forward / both if both else 1.0


def _behind(program: Program, mark: Any) -> set[Node]:
    """The nodes with this operator, and all that depend on them."""
    made: set[Tensor] = set()
    found = set()
    for node in program.nodes:
        if node.op is mark or not made.isdisjoint(node.inputs):
            made.update(node.outputs)
            found.add(node)
    return found


def _flops(nodes: Sequence[Node]) -> float:
    return float(sum(node_cost(node).flops for node in nodes))


def _exchanges(program: Program, phases: _Phases, bucket: int) -> list[Exchange]:
    """The exchanges of a data-parallel run. Their bytes do not depend on the number of replicas."""
    local = Replicate(2).replicate(DropMarks().run(program).program).program
    for a_pass in (JoinMoments(2), NarrowExchanges(), BucketCollectives(bucket)):
        local = a_pass.run(local).program
    done, position = 0.0, {}
    for node in local.nodes:
        position[node] = done
        if node.name not in phases.late and node.op not in EXCHANGES:
            done += node_cost(node).flops
    users: dict[Tensor, float] = {}
    for node in reversed(local.nodes):
        at = done if node.name in phases.late else position[node]
        users.update((t, min(at, users.get(t, done))) for t in node.inputs)
    behind = exchanges_behind(local.nodes)
    total = done or 1.0
    return [
        Exchange(
            max(bytes_of(*node.inputs), bytes_of(*node.outputs)),
            position[node] / total,
            min(users.get(t, done) for t in node.outputs) / total,
            not behind[node],
        )
        for node in local.nodes
        if node.op in EXCHANGES
    ]


def _products(program: Program, forward: Sequence[Node], rows: int) -> Products:
    """The products of data with weights in the forward pass, in pairs."""
    weights = {port.tensor for port in program.ports("state")}
    data = {port.tensor for port in program.ports("feed")}
    outputs: list[Tensor] = []
    for node in forward:
        of_data = not data.isdisjoint(node.inputs)
        is_product = node.op.precision == "narrow" and not node.regions and len(node.outputs) == 1
        if is_product and of_data and not weights.isdisjoint(node.inputs):
            outputs.append(node.outputs[0])
        (data if of_data else weights).update(node.outputs)
    pairs = list(zip(outputs[::2], outputs[1::2], strict=False))
    if not pairs:
        return Products(0, 0.0, 1)
    sums = sum(min(bytes_of(a), bytes_of(b)) for a, b in pairs)
    widths = [max(pair, key=bytes_of).type.shape[-1] for pair in pairs]
    return Products(len(pairs), sums / rows, math.gcd(*[w for w in widths if isinstance(w, int)]))


def _boundary(program: Program, forward: Sequence[Node], work: Sequence[float]) -> float:
    """The bytes between two stages: of each part of the forward pass the fewest that are computed
    from feeds and needed later, and of these the most."""
    last = {t: i for i, node in enumerate(forward) for t in node.inputs}
    data = {port.tensor for port in program.ports("feed")}
    total = math.fsum(work) or 1.0
    narrowest: dict[int, float] = {}
    ends: dict[int, float] = {}
    live = 0.0
    for i, (node, done) in enumerate(zip(forward, accumulate(work), strict=True)):
        if not data.isdisjoint(node.inputs):
            data.update(node.outputs)
            for tensor in node.outputs:
                if last.get(tensor, -1) > i:
                    live += bytes_of(tensor)
                    end = last[tensor]
                    ends[end] = ends.get(end, 0.0) + bytes_of(tensor)
        live -= ends.pop(i, 0.0)
        window = int(_WINDOWS * done / total)
        if 0 < window < _WINDOWS - 1 and live:
            narrowest[window] = min(live, narrowest.get(window, math.inf))
    return max(narrowest.values(), default=0.0)
