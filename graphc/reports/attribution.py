"""How much of the elapsed time each instruction takes.

Instructions run at the same time: in several threads of one device, and on several devices. So the
sum of their durations can be far more than the elapsed time. Here each moment is shared equally by
the instructions that run in it, on all devices together. The sum is then the time in which any
instruction runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from graphc.reports.xplane import Mark, Run

Key = tuple[str, str]
"""The names of a module and of an instruction in it."""


class Times(NamedTuple):
    """The time of each instruction in all steps together.

    Attributes:
        seconds: its part of the elapsed time.
        runs: how often it ran on each device that ran it.
        idle: the time within the steps in which no instruction ran.
        total: the elapsed time of the steps.
    """

    seconds: Mapping[Key, float]
    runs: Mapping[Key, float]
    idle: float
    total: float


def attribute(
    runs: Sequence[Run], steps: Sequence[Mark], is_container: Callable[[Run], bool]
) -> Times:
    """Shares the time of the steps among the runs.

    Args:
        steps: the times of the steps, which do not overlap.
        is_container: whether a run is of a loop, a branch or a call. It counts only while no
            instruction inside runs.
    """
    counts: Counter[tuple[Key, int]] = Counter()
    spent: dict[Key, float] = {}
    busy = total = 0.0
    place = 0
    for step in steps:
        total += step.end - step.start
        while place < len(runs) and runs[place].start < step.start:
            place += 1
        within = []
        while place < len(runs) and runs[place].start < step.end:
            run = runs[place]
            within.append(run._replace(end=max(run.start, min(run.end, step.end))))
            counts[(run.module, run.instruction), run.device] += 1
            place += 1
        busy += _share(within, is_container, spent)
    devices: Counter[Key] = Counter(key for key, _ in counts)
    often: Counter[Key] = Counter()
    for (key, _), count in counts.items():
        often[key] += count
    return Times(
        {key: 1e-9 * time for key, time in spent.items()},
        {key: count / devices[key] for key, count in often.items()},
        1e-9 * (total - busy),
        1e-9 * total,
    )


def _share(
    runs: Sequence[Run], is_container: Callable[[Run], bool], spent: dict[Key, float]
) -> float:
    """Adds the share of each run to `spent`; gives the time in which any ran."""
    contains = [is_container(run) for run in runs]
    ends = [(run.end, 0, i) for i, run in enumerate(runs)]
    starts = [(run.start, 1, i) for i, run in enumerate(runs)]
    level = busy = before = 0.0  # `level`: what a run that was active from the beginning has got
    active = 0
    joined = [0.0] * len(runs)  # the level at which each run began
    open_containers: dict[int, None] = {}
    for time, starting, i in sorted(ends + starts):
        elapsed = time - before
        if active:
            level += elapsed / active
            busy += elapsed
        elif open_containers:
            _add(spent, runs[next(reversed(open_containers))], elapsed)
            busy += elapsed
        before = time
        if starting and runs[i].end > runs[i].start:
            if contains[i]:
                open_containers[i] = None
            else:
                active += 1
                joined[i] = level
        elif not starting and runs[i].end > runs[i].start:
            if contains[i]:
                del open_containers[i]
            else:
                active -= 1
                _add(spent, runs[i], level - joined[i])
    return busy


def _add(spent: dict[Key, float], run: Run, time: float) -> None:
    key = run.module, run.instruction
    spent[key] = spent.get(key, 0.0) + time
