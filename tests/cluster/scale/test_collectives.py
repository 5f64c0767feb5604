"""The predicted times of collectives, compared with simulations of each message."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from graphc.cluster.scale.collectives import (
    Group,
    all_gather,
    all_reduce,
    reduce_scatter,
    ring_all_reduce,
    server_half,
    tree_all_reduce,
)
from graphc.cluster.scale.hardware import Hardware, Link

LINK, NETWORK = Link(2e-6, 1e11), Link(2e-5, 1e10)
HARDWARE = Hardware("test", 1e9, 1e12, {}, 1e12, 4, LINK, NETWORK)


def simulated_ring(size: float, ranks: int, link: Link) -> float:
    """The time when every rank has the sum of all pieces; each rank sends one piece at a time."""
    ready = [[0.0] * ranks for _ in range(ranks)]  # by rank and piece
    free = [0.0] * ranks
    for turn in range(2 * (ranks - 1)):
        arrived = []
        for rank in range(ranks):
            piece = (rank - turn) % ranks
            start = max(free[rank], ready[rank][piece])
            end = start + link.latency + size / ranks / link.bandwidth
            free[rank] = end
            arrived.append(((rank + 1) % ranks, piece, end))
        for rank, piece, end in arrived:
            ready[rank][piece] = max(ready[rank][piece], end)
    return max(map(max, ready))


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_a_ring_takes_as_long_as_its_messages(ranks: int) -> None:
    expected = simulated_ring(1e6, ranks, LINK)
    assert math.isclose(ring_all_reduce(1e6, ranks, LINK), expected, abs_tol=1e-12)


def test_trees_win_for_few_bytes_and_rings_for_many() -> None:
    assert tree_all_reduce(1e3, 64, NETWORK) < ring_all_reduce(1e3, 64, NETWORK)
    assert tree_all_reduce(1e9, 64, NETWORK) > ring_all_reduce(1e9, 64, NETWORK)
    for size in (1e3, 1e9):
        both = (tree_all_reduce(size, 4, LINK), ring_all_reduce(size, 4, LINK))
        assert all_reduce(size, Group(4, 1), HARDWARE) == min(both)


def test_groups_fill_machines_first() -> None:
    assert Group.of(4, HARDWARE) == (4, 1)
    assert Group.of(8, HARDWARE) == (4, 2)
    assert Group.of(6, HARDWARE) == (2, 3)
    assert Group.of(8, HARDWARE, stride=4) == (1, 8)
    assert Group.of(8, HARDWARE, stride=2) == (2, 4)


def test_one_device_exchanges_nothing() -> None:
    for exchange in (all_reduce, all_gather, reduce_scatter):
        assert exchange(1e9, Group(1, 1), HARDWARE) == 0


def test_over_machines_each_device_sends_its_piece() -> None:
    size = 4e9
    expected = 2 * 3 * (2e-6 + size / 4 / 1e11) + ring_all_reduce(size / 4, 8, NETWORK)
    assert math.isclose(all_reduce(size, Group(4, 8), HARDWARE), expected)
    halves = reduce_scatter(size, Group(4, 8), HARDWARE) + all_gather(size, Group(4, 8), HARDWARE)
    assert math.isclose(halves, expected)


def test_shared_cores_slow_messages_down() -> None:
    shared = replace(HARDWARE, concurrent=2.0)
    times = [all_reduce(1e8, Group(4, 1), hardware) for hardware in (HARDWARE, shared)]
    assert math.isclose(times[1], 2 * times[0])


def test_a_server_carries_the_part_of_each_worker() -> None:
    assert math.isclose(server_half(1e9, 8, 4, NETWORK), 2e-5 + 2 * 1e9 / 1e10)
    assert math.isclose(server_half(1e9, 2, 4, NETWORK), 2e-5 + 1e9 / 1e10)  # the worker's own link
