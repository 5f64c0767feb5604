"""Checks that the processes of a cluster do the same.

A step over the devices of several processes runs only if all of them run it: with the same program,
on feeds of the same shapes, from the same state. Otherwise they would wait for each other, or train
different models. So they compare before they compile and when they place state.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

import jax

from graphc.errors import ClusterError
from graphc.jax_internals import set_for_all, value_of_all

PATIENCE: Final = 600.0
"""Seconds to wait for a process that does not come to the same point."""

_TURN = 0.5  # seconds between two chances for Ctrl-C

_asked: Counter[str] = Counter()


def exchanged(topic: str, mine: str, patience: float = PATIENCE) -> list[str]:
    """What each process gave, by its index. All processes must call this equally often, and in the
    same order for one topic.

    Raises:
        ClusterError: a process did not call it in time.
    """
    place = place_of(topic)
    set_for_all(f"{place}/{jax.process_index()}", mine)
    return [
        mine if index == jax.process_index() else awaited(f"{place}/{index}", index, patience)
        for index in range(jax.process_count())
    ]


def place_of(topic: str) -> str:
    """A new place for values of all processes, which must call this equally often for a topic."""
    _asked[topic] += 1
    return f"graphc/{topic}/{_asked[topic]}"


def awaited(key: str, index: int, patience: float = PATIENCE) -> str:
    """The value that process `index` gives under a key.

    Raises:
        ClusterError: it does not give one in time.
    """
    end = time.monotonic() + patience
    while (left := end - time.monotonic()) > 0:
        found = value_of_all(key, min(left, _TURN))
        if found is not None:
            return found
    raise ClusterError(
        f"process {index} has not come within {patience:.0f} s to where process "
        f"{jax.process_index()} is: {key.rpartition('/')[0]}",
        hint="all processes must run the same steps; look at what that process does",
    )


def different(given: Sequence[str]) -> int | None:
    """The index of the first process that gave something else than process 0, or None."""
    return next((index for index, one in enumerate(given) if one != given[0]), None)
