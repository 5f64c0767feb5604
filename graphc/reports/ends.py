"""When runs of instructions ended.

XLA:CPU divides an instruction among threads, and records its end when the last thread leaves the
task. That thread may first do other work: without a correction, a sum of 10 us seems to take as
long as the matrix product after it. An instruction that reads the result starts after it is there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from graphc.reports.node_names import Instructions
from graphc.reports.xplane import Run

_Place = tuple[str, str, int]
"""The names of a module and of an instruction in it, and a device."""


def with_true_ends(runs: Sequence[Run], tables: Mapping[str, Instructions]) -> list[Run]:
    """The runs, each ended when the first instruction that reads its result starts.

    Args:
        runs: in the order of their starts.
        tables: the instructions by the name of their module.
    """
    starts: dict[_Place, list[float]] = {}
    for run in runs:
        starts.setdefault((run.module, run.instruction, run.device), []).append(run.start)
    return [run._replace(end=min(run.end, _read(run, tables, starts))) for run in runs]


def _read(
    run: Run, tables: Mapping[str, Instructions], starts: Mapping[_Place, Sequence[float]]
) -> float:
    """When its result was read first."""
    table = tables.get(run.module)
    first = float("inf")
    for reader in () if table is None else table.readers.get(run.instruction, ()):
        times = starts.get((run.module, reader, run.device), ())
        place = bisect_right(times, run.start)
        if place < len(times):
            first = min(first, times[place])
    return first
