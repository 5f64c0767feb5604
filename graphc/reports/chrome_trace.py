"""A profile in Chrome's trace format, which Perfetto reads: https://ui.perfetto.dev."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.reports.source_files import write_report
from graphc.reports.xplane import MARK, Run

if TYPE_CHECKING:
    from graphc.reports.profile import Profile

_HOST = 0  # the number of the host's process; a device has its own number + 1


def write_trace(profile: Profile, path: str | Path) -> None:
    """Writes the events: see `Profile.trace`."""
    lanes = _lanes(profile)
    marks = [
        _event(mark.name.removeprefix(MARK), mark.start, mark.end, _HOST, 0, {})
        for mark in profile.recording.marks
    ]
    events = [*_names(profile, lanes), *marks, *_runs(profile, lanes)]
    write_report(path, json.dumps({"displayTimeUnit": "ms", "traceEvents": events}))


def _names(profile: Profile, lanes: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    yield _name("process_name", _HOST, 0, "host")
    yield _name("thread_name", _HOST, 0, "steps")
    used = {(run.device, lane) for run, lane in zip(profile.recording.runs, lanes, strict=True)}
    for device, lane in sorted(used):
        if lane == 0:
            yield _name("process_name", device + 1, 0, f"device {device}")
        yield _name("thread_name", device + 1, lane, f"lane {lane + 1}")


def _name(kind: str, process: int, thread: int, name: str) -> Mapping[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _lanes(profile: Profile) -> list[int]:
    """The lane of each run on its device: the first one where it overlaps none, or is in a loop.

    The threads of a device are of no help: a run may go on in several of them.
    """
    open_runs: dict[int, list[list[Run]]] = {}
    found = []
    for run in profile.recording.runs:
        lanes = open_runs.setdefault(run.device, [])
        for lane in lanes:
            while lane and lane[-1].end <= run.start:
                lane.pop()
        number = next((i for i, lane in enumerate(lanes) if _fits(profile, run, lane)), len(lanes))
        if number == len(lanes):
            lanes.append([])
        lanes[number].append(run)
        found.append(number)
    return found


def _fits(profile: Profile, run: Run, lane: Sequence[Run]) -> bool:
    if not lane:
        return True
    around = lane[-1]
    contains = (around.module, around.instruction) in profile.containers
    return contains and run.end <= around.end


def _runs(profile: Profile, lanes: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    for run, lane in zip(profile.recording.runs, lanes, strict=True):
        name = profile.owners.get((run.module, run.instruction), run.instruction)
        node = profile.nodes.get(name)
        facts = {"instruction": run.instruction, "module": run.module, "thread": run.line}
        if node is not None:
            facts |= {"operator": node.op, "phase": node.phase}
            if node.source is not None:
                facts["line"] = f"{node.source.file}:{node.source.line}"
        yield _event(name, run.start, run.end, run.device + 1, lane, facts)


def _event(
    name: str, start: float, end: float, process: int, thread: int, facts: Mapping[str, Any]
) -> Mapping[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
        "pid": process,
        "tid": thread,
        "args": facts,
    }
