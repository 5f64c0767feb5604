"""Checks that the processes of a cluster do the same.

A step over the devices of several processes runs only if all of them run it: with the same program,
on feeds of the same shapes, from the same state. Otherwise they would wait for each other, or train
different models. So they compare before they compile and when they place state.
"""

from __future__ import annotations

import json
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


def exchanged(what: str, mine: str, patience: float = PATIENCE) -> list[str]:
    """What each process gave, by its index. All processes must call this equally often, and in the
    same order.

    Args:
        what: what this process does, for errors: "compiles a program".

    Raises:
        ClusterError: another process does something else, or did not call it in time.
    """
    place, number = place_of("agreement"), jax.process_index()
    set_for_all(f"{place}/{number}", json.dumps([what, mine]))
    found = []
    for index in range(jax.process_count()):
        if index == number:
            found.append(mine)
            continue
        other, text = json.loads(awaited(f"{place}/{index}", index, patience, what))
        if other != what:
            raise ClusterError(
                f"process {number} and process {index} do not do the same",
                details=[f"process {number} {what}", f"process {index} {other}"],
                hint="all processes must run the same steps, on equally many batches",
            )
        found.append(text)
    return found


def place_of(topic: str) -> str:
    """A new place for values of all processes, which must call this equally often for a topic."""
    _asked[topic] += 1
    return f"graphc/{topic}/{_asked[topic]}"


def awaited(key: str, index: int, patience: float = PATIENCE, what: str = "ends its steps") -> str:
    """The value that process `index` gives under a key.

    Args:
        what: what this process does, for errors.

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
        f"{jax.process_index()} {what}",
        hint="all processes must run the same steps; look at what that process does",
    )


def different(given: Sequence[str]) -> int | None:
    """The index of the first process that gave something else than process 0, or None."""
    return next((index for index, one in enumerate(given) if one != given[0]), None)
