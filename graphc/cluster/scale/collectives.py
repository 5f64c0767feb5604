"""How long collectives take: the published models with a latency and a bandwidth for each link.

A message of `size` bytes takes `latency + size / bandwidth` (Hockney 1994). Formulas for rings are
those of Thakur, Rabenseifner and Gropp (2005) and of Patarasu and Yuan (2009), which is optimal in
bandwidth; for trees, those of Sanders, Speck and Traeff (2009), as in NCCL's double binary trees.
Groups over several machines exchange in levels: pieces inside each machine, then each piece between
the machines, then inside again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from graphc.cluster.scale.hardware import Hardware, Link


class Group(NamedTuple):
    """The devices that exchange something: `inside` of each of `machines` machines."""

    inside: int
    machines: int

    @property
    def size(self) -> int:
        """The number of its devices."""
        return self.inside * self.machines

    @classmethod
    def of(cls, size: int, hardware: Hardware, stride: int = 1) -> Group:
        """`size` devices with numbers `stride` apart, where a machine has consecutive numbers."""
        near = max(1, hardware.devices_per_machine // stride)
        inside = math.gcd(size, near) if size > near else size
        return cls(inside, size // inside)


def ring_all_reduce(size: float, ranks: int, link: Link) -> float:
    """A reduce-scatter and an all-gather in a ring: `2 (n - 1)` messages of `size / n` bytes."""
    return 2 * ring_half(size, ranks, link)


def ring_half(size: float, ranks: int, link: Link) -> float:
    """A reduce-scatter or an all-gather of `size` bytes in all."""
    return (ranks - 1) * (link.latency + size / ranks / link.bandwidth)


def tree_all_reduce(size: float, ranks: int, link: Link) -> float:
    """A reduction and a broadcast on two trees at once, each with half of the bytes, in pieces that
    follow each other: the depth counts for latencies only."""
    if ranks < 2:
        return 0.0
    return 2 * (math.ceil(math.log2(ranks)) * link.latency + size / link.bandwidth)


def _flat_all_reduce(size: float, ranks: int, link: Link) -> float:
    """The faster algorithm, as libraries choose it."""
    return min(ring_all_reduce(size, ranks, link), tree_all_reduce(size, ranks, link))


def all_reduce(size: float, group: Group, hardware: Hardware) -> float:
    """Each device of a group has `size` bytes; each gets their sum."""
    link, network = _links(group, hardware)
    inside = group.inside
    if group.machines == 1:
        return _flat_all_reduce(size, inside, link)
    levels = 2 * ring_half(size, inside, link)
    return levels + _flat_all_reduce(size / inside, group.machines, network)


def reduce_scatter(size: float, group: Group, hardware: Hardware) -> float:
    """Each device of a group has `size` bytes; each gets a piece of their sum."""
    link, network = _links(group, hardware)
    near = ring_half(size, group.inside, link)
    return near + ring_half(size / group.inside, group.machines, network)


all_gather = reduce_scatter
"""Each device has a piece, and gets all `size` bytes: the same messages in the other direction."""


def send(size: float, hardware: Hardware, far: bool) -> float:
    """One message to a device of another machine (`far`), or of the same one."""
    link = hardware.network if far else hardware.link
    return link.latency + size / link.bandwidth


def server_half(size: float, workers: int, servers: int, link: Link) -> float:
    """Every worker pushes `size` bytes to parameter servers, which hold equal parts; or pulls them.
    Either takes the time of a server's link, which carries the part of each worker, or the time of
    a worker's link (Li et al., OSDI 2014)."""
    return link.latency + max(size, size * workers / servers) / link.bandwidth


def _links(group: Group, hardware: Hardware) -> tuple[Link, Link]:
    """The links of a group's devices. Devices that share cores take turns on them, too."""
    sharing = min(group.size, hardware.devices_per_machine)
    factor = hardware.slowdown(sharing)
    return _slowed(hardware.link, factor), _slowed(hardware.network, factor)


def _slowed(link: Link, factor: float) -> Link:
    return Link(link.latency * factor, link.bandwidth / factor)
