"""Writes the script of a partition and determines the executables that it starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from graphc.devices.partition import Cluster, Partition
from graphc.devices.schedule import dispatch_order
from graphc.ir.fingerprint import calls_back, fingerprint
from graphc.ir.node import Tensor, is_among
from graphc.runtime.targets.jax_program import PortOrder
from graphc.runtime.targets.scripts import Script, Step


class Kernel(NamedTuple):
    """One executable that will be compiled. Equal clusters share it."""

    device: int
    cluster: Cluster
    donated: tuple[int, ...]
    token: bool


class ScriptWriter:
    """Writes the script of a partition."""

    def __init__(
        self, parts: Partition, order: PortOrder, number: Mapping[str, int], donate: bool
    ) -> None:
        self._parts, self._number = parts, number
        self._places = 0
        self._at: dict[tuple[Tensor, int | None], int] = {}  # None: on the host, or anywhere
        self._steps: list[Step] = []
        self._found: dict[Any, int] = {}
        self._results: dict[Tensor, list[tuple[int, int]]] = {}
        self._tokens: dict[int, int] = {}  # by device: the token of its last executable
        self.kernels: list[Kernel] = []
        self._order = dispatch_order(parts)
        self._users = self._all_users()
        given = order.written if donate else ()
        self._given = {port.tensor for port in given}
        self._kept = {p.tensor for p in parts.program.inputs} - self._given
        last = {parts.clusters[index].device: n for n, index in enumerate(self._order)}
        self._last_on_device = set(last.values())

    def script(self) -> Script:
        """The script. After this call, `kernels` is complete."""
        parts, number = self._parts, self._number
        arguments = {p.tensor for p in parts.program.inputs}
        for port in parts.program.inputs:
            home = number[parts.homes[port.name]] if port.kind == "state" else None
            self._at[port.tensor, home] = self._place()
        targets: dict[Tensor, list[int]] = {}
        for send in parts.sends:
            targets.setdefault(send.tensor, []).append(number[send.target])
        for send in parts.sends:  # copies of values that exist from the start
            if send.tensor in arguments:
                self._copy(send.tensor, number[send.source], number[send.target])
        for position in range(len(self._order)):
            self._run(position, targets)
        results = []
        for port in parts.program.outputs:
            place, device = self._results[port.tensor].pop(0)
            if port.kind == "state" and number[parts.homes[port.name]] != device:
                place = self._copied(place, number[parts.homes[port.name]])
            results.append(place)
        results += self._tokens.values()
        sizes = tuple(
            (len(k.cluster.takes), len(k.cluster.gives) + k.token, k.device) for k in self.kernels
        )
        calling = tuple([i for i, k in enumerate(self.kernels) if k.cluster.calls_back])
        steps = self._freeing(results)
        return Script(
            steps, self._places, tuple(results), sizes, tokens=len(self._tokens), waited=calling
        )

    def device_of_feed(self, name: str) -> int:
        """The number of the device that uses a feed first."""
        (tensor,) = [
            p.tensor for p in self._parts.program.inputs if (p.name, p.kind) == (name, "feed")
        ]
        clusters = self._parts.clusters
        takers = (clusters[i].device for i in self._order if is_among(tensor, clusters[i].takes))
        return self._number.get(next(takers, ""), 0)

    def _place(self) -> int:
        self._places += 1
        return self._places - 1

    def _all_users(self) -> dict[tuple[Tensor, str], list[int]]:
        """For each value on a device, the positions in the order of the clusters that use it."""
        found: dict[tuple[Tensor, str], list[int]] = {}
        for position, index in enumerate(self._order):
            cluster = self._parts.clusters[index]
            for tensor in cluster.takes:
                found.setdefault((tensor, cluster.device), []).append(position)
        return found

    def _copy(self, tensor: Tensor, source: int | None, target: int) -> None:
        if (tensor, target) not in self._at:
            self._at[tensor, target] = self._copied(self._at[tensor, source], target)

    def _copied(self, place: int, target: int) -> int:
        new = self._place()
        last = self._steps[-1] if self._steps else None
        if last is not None and last.executable is None and last.device == target:
            both = last._replace(takes=(*last.takes, place), gives=(*last.gives, new))
            self._steps[-1] = both
        else:
            self._steps.append(Step(None, target, (place,), (new,)))
        return new

    def _run(self, position: int, targets: Mapping[Tensor, list[int]]) -> None:
        cluster = self._parts.clusters[self._order[position]]
        device = self._number[cluster.device]
        for tensor in cluster.takes:
            if (tensor, device) not in self._at:  # a feed
                self._copy(tensor, None, device)
        takes = tuple([self._at[tensor, device] for tensor in cluster.takes])
        token = position in self._last_on_device or cluster.calls_back
        kernel = Kernel(device, cluster, self._donated(cluster, position), token)
        gives = tuple([self._place() for _ in range(len(cluster.gives) + token)])
        self._steps.append(Step(self._kernel(kernel), device, takes, gives))
        if position in self._last_on_device:
            self._tokens[device] = gives[-1]
        self._at.update({(t, device): p for t, p in zip(cluster.sent, gives, strict=False)})
        leaving = [(target, t) for t in cluster.sent for target in targets.get(t, ())]
        for target, tensor in sorted(leaving, key=itemgetter(0)):  # one call for each device
            self._copy(tensor, device, target)
        for tensor, place in zip(cluster.results, gives[len(cluster.sent) :], strict=False):
            self._results.setdefault(tensor, []).append((place, device))

    def _donated(self, cluster: Cluster, position: int) -> tuple[int, ...]:
        """The arguments that a cluster may overwrite: assigned state, if the cluster is the last
        user, and values that no other cluster uses. Of each type, there are at most as many as the
        cluster has results of that type."""
        room = Counter(tensor.type for tensor in cluster.gives)
        found = []
        for i, tensor in enumerate(cluster.takes):
            users = self._users[tensor, cluster.device]
            mine = users[-1] == position if tensor in self._given else (
                users == [position] and tensor not in self._kept
            )  # fmt: skip
            if mine and room[tensor.type]:
                room[tensor.type] -= 1
                found.append(i)
        return tuple(found)

    def _kernel(self, kernel: Kernel) -> int:
        program = kernel.cluster.program.replace(name="cluster")
        alike: Any = program if calls_back(program) else fingerprint(program)
        key = (kernel.device, kernel.donated, kernel.token, alike)
        if key not in self._found:
            self._found[key] = len(self.kernels)
            self.kernels.append(kernel)
        return self._found[key]

    def _freeing(self, results: Sequence[int]) -> tuple[Step, ...]:
        """The steps. Each step frees the values that no later step uses."""
        kept, steps = set(results), []
        for step in reversed(self._steps):
            frees = [p for p in dict.fromkeys((*step.takes, *step.gives)) if p not in kept]
            kept.update(frees)
            steps.append(step._replace(frees=tuple(frees)))
        return tuple(reversed(steps))
