"""Divides the server's half of a step among several servers, each with its own variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from graphc.errors import GraphError
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program, ancestors
from graphc.ops.structure.training import GRADIENTS, UPDATED
from graphc.passes.simplify.prune import Prune

_COPIED: Final = 8  # elements: such a variable may be on several servers (a count of steps)


@dataclass(frozen=True)
class ShardHalf:
    """What one server computes in a step.

    Attributes:
        program: the sent values as feeds, and the server's variables as state.
        taken: the numbers of the sent values that it takes.
        fetched: the numbers of the values, among those that servers compute, that it returns.
    """

    program: Program
    taken: tuple[int, ...]
    fetched: tuple[int, ...]


def marks_apart(server: Program) -> Program:
    """The server's half with a mark for each gradient and each new value, in place of marks for all
    of them, which would connect all variables."""
    nodes: list[Node] = []
    for node in server.nodes:
        if node.op in (GRADIENTS, UPDATED):
            count = len(node.outputs)
            for i, tensor in enumerate(node.outputs):
                nodes.append(node.replace(inputs=node.inputs[i::count], outputs=(tensor,)))
        else:
            nodes.append(node)
    return server.replace(nodes=tuple(nodes))


class Assignment:
    """Which servers hold which variables.

    Variables whose updates read each other, such as a parameter and its slots, are on one server.
    A variable of at most 8 elements that several others read, such as the count of steps, is on
    each server that reads it. Each of them updates its own copy.

    Args:
        server: the server's half of a step, after `marks_apart`.
        sizes: the bytes of each variable of the session.
        shards: the number of servers. The largest groups are assigned first, each to the server
            with the fewest bytes.

    Attributes:
        holders: variable -> the servers that hold it.
    """

    def __init__(self, server: Program, sizes: Mapping[str, int], shards: int) -> None:
        reads = _reads(server)
        copied = _copied(server, reads)
        groups = _groups([*sizes], reads, copied)
        loads = [0] * shards
        self.shards = shards
        self.holders: dict[str, tuple[int, ...]] = {}
        for group in sorted(groups, key=lambda names: -sum(sizes[name] for name in names)):
            shard = loads.index(min(loads))
            loads[shard] += sum(sizes[name] for name in group)
            for name in group:
                self.holders[name] = (shard,)
        for name in copied:
            users = {
                shard
                for new, read in reads.items()
                if name in read and new not in copied
                for shard in self.holders.get(new, ())
            }
            self.holders[name] = tuple(sorted(users)) or (0,)

    def of(self, shard: int) -> list[str]:
        """The variables that a server holds."""
        return [name for name, holders in self.holders.items() if shard in holders]

    def halves(self, server: Program) -> list[ShardHalf]:
        """The parts of the server's half of a step, one for each server.

        Raises:
            GraphError: an update or a fetched value reads variables of several servers.
        """
        made = server.producers()
        fetches = server.ports("fetch")
        numbers: list[list[int]] = [[] for _ in range(self.shards)]
        for number, port in enumerate(fetches):
            numbers[self._place(server, port, _state_read(server, made, [port.tensor]))].append(
                number
            )
        for port in server.new_state():
            self._place(server, port, {port.name, *_state_read(server, made, [port.tensor])})
        return [
            _half(server, [fetches[n] for n in numbers[shard]], set(self.of(shard)), numbers[shard])
            for shard in range(self.shards)
        ]

    def _place(self, server: Program, port: Port, read: Iterable[str]) -> int:
        """The server that holds all these variables."""
        read = list(read)
        common = set(range(self.shards)).intersection(*(self.holders[name] for name in read))
        if not common:
            raise GraphError(
                f"run_workers: {port.name!r} depends on variables that are on different parameter "
                "servers",
                details=[f"{name}  on server {self.holders[name][0]}" for name in sorted(read)[:5]],
                hint="fetch it in the first call of run_workers too, or use shards=1",
            )
        return min(common)


def _state_read(
    server: Program, made: Mapping[Tensor, Node], tensors: Sequence[Tensor]
) -> set[str]:
    """The variables whose values before the step these values depend on."""
    nodes = ancestors(made, tensors)
    used = {t for node in nodes for t in node.inputs} | set(tensors)
    return {port.name for port in server.ports("state") if port.tensor in used}


def _reads(server: Program) -> dict[str, set[str]]:
    """Variable -> those that its new value, or a fetched value with it, is computed from."""
    made = server.producers()
    ports = server.new_state()
    found = {port.name: _state_read(server, made, [port.tensor]) for port in ports}
    for port in server.ports("fetch"):
        together = sorted(_state_read(server, made, [port.tensor]))
        if together:
            found.setdefault(together[0], set()).update(together)
    return found


def _copied(server: Program, reads: Mapping[str, set[str]]) -> set[str]:
    """Small variables that several others read, and whose own updates read only such variables."""
    found = set()
    for port in server.ports("state"):
        readers = sum(port.name in read for new, read in reads.items() if new != port.name)
        if readers > 1 and prod(port.tensor.type.sizes) <= _COPIED:
            found.add(port.name)
    while wrong := {name for name in found if not reads.get(name, set()) <= found}:
        found -= wrong
    return found


def _groups(
    names: Sequence[str], reads: Mapping[str, set[str]], copied: set[str]
) -> list[list[str]]:
    """The variables that must be on one server, in the order of `names`."""
    leader = {name: name for name in names}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for new, read in reads.items():
        for name in read - copied:
            if new not in copied:
                leader[find(name)] = find(new)
    groups: dict[str, list[str]] = {}
    for name in names:
        if name not in copied:
            groups.setdefault(find(name), []).append(name)
    return list(groups.values())


def _half(server: Program, fetches: list[Port], own: set[str], numbers: list[int]) -> ShardHalf:
    states = [port for port in server.new_state() if port.name in own]
    part = Prune().run(server.replace(outputs=(*fetches, *states))).program
    used = {t for node in part.nodes for t in node.inputs} | set(part.output_tensors())
    feeds = [(i, p) for i, p in enumerate(server.ports("feed")) if p.tensor in used]
    read = [p for p in server.ports("state") if p.name in own and p.tensor in used]
    program = part.replace(inputs=(*(p for _, p in feeds), *read))
    return ShardHalf(program, tuple(i for i, _ in feeds), tuple(numbers))
