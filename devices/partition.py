"""Partition: divides a program whose nodes are on several devices into clusters that each run on
one device.

A cluster becomes one executable. If another device needs a result of a cluster, the result is sent
as soon as the cluster has run: `Send`. This follows TensorFlow's partitioning (Abadi et al. 2016,
section 3.3). There, each device has one subgraph, which may wait for data while it runs. XLA's
executables cannot wait, so a device's part is divided at the points where it would have to wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphc.devices.clustering import Key, grouped
from graphc.devices.micro_batch_turns import unrolled
from graphc.devices.pipelining import PipelineParallel
from graphc.devices.placed_nodes import devices_of
from graphc.devices.stage_recompute import recomputed
from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Effects
from graphc.ir.program import Program, ancestors, effects_of, region
from graphc.ops.structure.state import IDENTITY


class Send(NamedTuple):
    """A value that is sent to another device as soon as it is computed."""

    tensor: Tensor
    source: str
    target: str


@dataclass(frozen=True, eq=False)
class Cluster:
    """Nodes that one device runs as one executable.

    Attributes:
        device: the name of the device.
        program: a program with the inputs `takes` and the outputs `sent` and `results`, in this
            order.
        takes: inputs of the whole program, and results of other clusters.
        sent: results that other clusters use.
        results: results that the caller uses, one for each output of the whole program.
        micro_batch: the micro-batch that it computes, if it belongs to a loop over micro-batches.
    """

    device: str
    program: Program
    takes: tuple[Tensor, ...]
    sent: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    micro_batch: int | None = None

    @property
    def calls_back(self) -> bool:
        """Whether it prints or calls Python functions. Such clusters run in program order."""
        return any(effects_of(node) & Effects.HOST for node in self.program.nodes)

    @property
    def gives(self) -> tuple[Tensor, ...]:
        """All its outputs, in order."""
        return (*self.sent, *self.results)


@dataclass(frozen=True, eq=False)
class Partition:
    """A program divided into clusters; `Executable.partition` gives it, and `print` shows it.

    Attributes:
        program: the whole program. Every node that belongs to a device names it.
        clusters: in an order in which they can run.
        sends: the values that are sent from device to device.
        homes: the device of each state input and state output, by name.
        schedule: how clusters of different micro-batches take turns: see `PipelineParallel`.

    Examples:
        >>> with gc.device("/cpu:0"):
        ...     x = gc.exp(gc.placeholder((2,), name="x"))
        >>> with gc.device("/cpu:1"):
        ...     y = gc.sqrt(x)
        >>> partition = gc.compile(graph, y, {"x": (2,)}).partition
        >>> [cluster.device for cluster in partition.clusters], len(partition.sends)
        (['/device:CPU:0', '/device:CPU:1'], 1)
    """

    program: Program
    clusters: tuple[Cluster, ...]
    sends: tuple[Send, ...]
    homes: Mapping[str, str]
    schedule: str = "gpipe"

    def __str__(self) -> str:
        lines = []
        for number, cluster in enumerate(self.clusters):
            turn = "" if cluster.micro_batch is None else f", micro-batch {cluster.micro_batch}"
            lines += [f"# cluster {number} on {cluster.device}{turn}", str(cluster.program), ""]
        lines += [f"# send {s.tensor.name}  {s.source} -> {s.target}" for s in self.sends]
        return "\n".join(lines)


def partition(
    program: Program, homes: Mapping[str, str], base: str, pipeline: PipelineParallel | None = None
) -> Partition:
    """Divides a placed program into as few clusters as can run one after the other.

    Loops over micro-batches whose body is on several devices are unrolled. A cluster contains nodes
    of one micro-batch only, so that devices can compute different micro-batches at the same time.
    Nodes without a device, which passes created, run where most bytes of their operands are. Nodes
    without operands, or with feeds as their only operands, are computed on each device that uses
    them.

    Args:
        program: pure and bound. Its nodes name devices in the form that `placer.place` writes.
        homes: the device of each state port, by its name.
        base: the device for values without a device that are outputs.
        pipeline: how stages take turns on micro-batches, and whether they recompute.

    Raises:
        DeviceError: a node that must run on one device contains nodes for several devices.
    """
    turns: dict[Node, int] = {}
    state = {port.tensor: homes[port.name] for port in program.ports("state")}
    program = unrolled(program, state, base, turns)
    program = _with_copies(program, state, homes, base)
    devices = devices_of(program.nodes, dict(state), base)
    named = {node: node.replace(device=device) for node, device in devices.items()}
    whole = program.replace(nodes=tuple([named.get(node, node) for node in program.nodes]))
    keys = {named[node]: Key(device, turns.get(node)) for node, device in devices.items()}
    groups = grouped(whole, keys)
    pipeline = pipeline or PipelineParallel("gpipe")
    if pipeline.recompute:
        whole, groups, keys = recomputed(whole, groups, keys)
    clusters = tuple(_clusters(whole, groups, keys))
    sends = tuple(_sends(whole, clusters, state, homes))
    return Partition(whole, clusters, sends, homes, pipeline.schedule)


def _clusters(
    program: Program, groups: Sequence[Sequence[Node]], keys: Mapping[Node, Key]
) -> Iterator[Cluster]:
    """The clusters of groups of nodes. Nodes without a device are computed in each cluster that
    uses them."""
    wanted = [port.tensor for port in program.outputs]
    users: dict[Tensor, set[int]] = {}
    anywhere = {t: node for node in program.nodes if node not in keys for t in node.outputs}
    whole: list[list[Node]] = []
    order = {node: i for i, node in enumerate(program.nodes)}
    for number, group in enumerate(groups):
        needed = ancestors(anywhere, [t for node in group for t in node.inputs])
        nodes = sorted([*group, *needed], key=order.__getitem__)
        whole.append(nodes)
        for node in nodes:
            for tensor in node.inputs:
                users.setdefault(tensor, set()).add(number)
    for number, (group, nodes) in enumerate(zip(groups, whole, strict=True)):
        made = dict.fromkeys(t for node in nodes for t in node.outputs)
        takes = dict.fromkeys(t for node in nodes for t in node.inputs if t not in made)
        own = dict.fromkeys(t for node in group for t in node.outputs)
        sent = [t for t in own if users.get(t, set()) - {number}]
        results = [t for t in wanted if t in own]
        key = keys[group[0]]
        yield Cluster(
            key.device,
            region(f"{program.name}.{number}", list(takes), nodes, [*sent, *results]),
            tuple(takes),
            tuple(sent),
            tuple(results),
            key.micro_batch,
        )


def _sends(
    program: Program,
    clusters: Sequence[Cluster],
    state: Mapping[Tensor, str],
    homes: Mapping[str, str],
) -> Iterator[Send]:
    """The values to send, once for each target device. Feeds are excluded, because they come from
    the host."""
    at = dict(state)
    for cluster in clusters:
        at.update(dict.fromkeys(cluster.gives, cluster.device))
    found = {
        Send(tensor, at[tensor], cluster.device): None
        for cluster in clusters
        for tensor in cluster.takes
        if tensor in at and at[tensor] != cluster.device
    }
    yield from found
    for port in program.new_state():
        if at[port.tensor] != homes[port.name]:
            yield Send(port.tensor, at[port.tensor], homes[port.name])


def _with_copies(
    program: Program, state: Mapping[Tensor, str], homes: Mapping[str, str], base: str
) -> Program:
    """Adds a copy node for each output that no node on a device computes (inputs, constants)."""
    at = dict(state)
    devices_of(program.nodes, at, base)
    inputs, makers = set(program.input_tensors()), program.producers()
    copies: list[Node] = []
    outputs = []
    for port in program.outputs:
        if port.tensor in inputs or port.tensor not in at:
            asked = makers[port.tensor].device if port.tensor in makers else ""
            where = homes.get(port.name) if port.kind == "state" else at.get(port.tensor)
            where = where or asked or base
            copy = Builder(scope=port.name).add(IDENTITY, (port.tensor,), name="copy")
            copies.append(copy.replace(device=where))
            port = port._replace(tensor=copy.outputs[0])
        outputs.append(port)
    return program.replace(nodes=(*program.nodes, *copies), outputs=tuple(outputs))
