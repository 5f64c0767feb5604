"""Partition: a program whose nodes are on several devices, as clusters that each run on one.

A cluster is what becomes one executable. What one cluster makes and another device needs is sent
as soon as the cluster has run: `Send`. After TensorFlow's partitioning (Abadi et al. 2016,
section 3.3), where each device has one subgraph that may wait in its middle; XLA's executables
cannot wait, so a device's part is cut where it would have to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphc.devices.clustering import Key, grouped
from graphc.devices.micro_batch_turns import unrolled
from graphc.devices.placer import devices_of
from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Effects
from graphc.ir.program import Program, effects_of, region
from graphc.ops.structure.state import IDENTITY


class Send(NamedTuple):
    """A value that leaves the device it was made on, as soon as it exists."""

    tensor: Tensor
    source: str
    target: str


@dataclass(frozen=True, eq=False)
class Cluster:
    """Nodes that one device runs at once.

    Attributes:
        device: its name.
        program: takes `takes`, and gives `sent` and `results`, in their order.
        takes: inputs of the whole program, and what other clusters made.
        sent: what other clusters want of it.
        results: what the caller wants of it, once for each output of the whole program.
        micro_batch: which one it works on, if it is of a loop over micro-batches.
    """

    device: str
    program: Program
    takes: tuple[Tensor, ...]
    sent: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    micro_batch: int | None = None

    @property
    def calls_back(self) -> bool:
        """Whether it prints or calls Python functions, which happens in program order."""
        return any(effects_of(node) & Effects.HOST for node in self.program.nodes)

    @property
    def gives(self) -> tuple[Tensor, ...]:
        """All that it gives, in order."""
        return (*self.sent, *self.results)


@dataclass(frozen=True, eq=False)
class Partition:
    """A program in clusters.

    Attributes:
        program: the whole, every node that belongs to a device naming it.
        clusters: in an order in which each can run.
        sends: what crosses from device to device.
        homes: where each state input lies, and each state output goes, by name.
    """

    program: Program
    clusters: tuple[Cluster, ...]
    sends: tuple[Send, ...]
    homes: Mapping[str, str]

    def __str__(self) -> str:
        lines = []
        for number, cluster in enumerate(self.clusters):
            turn = "" if cluster.micro_batch is None else f", micro-batch {cluster.micro_batch}"
            lines += [f"# cluster {number} on {cluster.device}{turn}", str(cluster.program), ""]
        lines += [f"# send {s.tensor.name}  {s.source} -> {s.target}" for s in self.sends]
        return "\n".join(lines)


def partition(program: Program, homes: Mapping[str, str], base: str) -> Partition:
    """Cuts a placed program into clusters, as few as can run one after the other.

    Loops over micro-batches whose body is on several devices are written out, and clusters hold
    nodes of one micro-batch only: so the devices can work on different ones at the same time.
    Nodes without a device, which passes made, are where most bytes of their operands are; what
    takes nothing, or only feeds, is computed wherever it is used.

    Args:
        program: pure and bound; nodes name devices as `placer.place` wrote them.
        homes: the device of each state port, by its name.
        base: where what is nowhere is computed, if it is wanted.

    Raises:
        DeviceError: a node that is placed whole holds nodes for several devices.
    """
    turns: dict[Node, int] = {}
    state = {port.tensor: homes[port.name] for port in program.ports("state")}
    program = unrolled(program, state, base, turns)
    program = _with_copies(program, state, homes, base)
    devices = devices_of(program.nodes, dict(state), base)
    named = {node: node.replace(device=device) for node, device in devices.items()}
    whole = program.replace(nodes=tuple([named.get(node, node) for node in program.nodes]))
    devices = {named[node]: device for node, device in devices.items()}
    turns = {named[node]: turn for node, turn in turns.items() if node in named}
    groups = grouped(whole, {n: Key(device, turns.get(n)) for n, device in devices.items()})
    clusters = tuple(_clusters(whole, groups, devices, turns))
    return Partition(whole, clusters, tuple(_sends(whole, clusters, state, homes)), homes)


def _clusters(
    program: Program,
    groups: Sequence[Sequence[Node]],
    devices: Mapping[Node, str],
    turns: Mapping[Node, int],
) -> Iterator[Cluster]:
    """The clusters of groups of nodes, with what is nowhere computed in each that uses it."""
    wanted = [port.tensor for port in program.outputs]
    users: dict[Tensor, set[int]] = {}
    anywhere = {t: node for node in program.nodes if node not in devices for t in node.outputs}
    whole: list[list[Node]] = []
    order = {node: i for i, node in enumerate(program.nodes)}
    for number, group in enumerate(groups):
        nodes = sorted([*group, *_needed(group, anywhere)], key=order.__getitem__)
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
        first = group[0]
        yield Cluster(
            devices[first],
            region(f"{program.name}.{number}", list(takes), nodes, [*sent, *results]),
            tuple(takes),
            tuple(sent),
            tuple(results),
            turns.get(first),
        )


def _needed(group: Sequence[Node], anywhere: Mapping[Tensor, Node]) -> set[Node]:
    """The nodes without a device that a group needs."""
    found: set[Node] = set()
    pending = [t for node in group for t in node.inputs]
    while pending:
        node = anywhere.get(pending.pop())
        if node is not None and node not in found:
            found.add(node)
            pending += node.inputs
    return found


def _sends(
    program: Program,
    clusters: Sequence[Cluster],
    state: Mapping[Tensor, str],
    homes: Mapping[str, str],
) -> Iterator[Send]:
    """What crosses, each once for each device that it goes to; feeds come from the host."""
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
    """Outputs that no node on a device makes (inputs as they are, constants) go through one."""
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
