"""A profile as text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from graphc.reports.figures import amount, elapsed, table
from graphc.reports.source_files import lines_of

if TYPE_CHECKING:
    from graphc.reports.profile import LineTime, NodeTime, Profile

_ROWS = 20  # of a table
_AROUND = 2  # lines of the source before and after one that takes time


def text_of(profile: Profile) -> str:
    """The whole profile: see `Profile.text`."""
    parts = [_summary(profile), _lines(profile), _nodes(profile), *_sources(profile)]
    return "\n".join(line for part in parts for line in (*part, ""))


def percent(share: float) -> str:
    """
    >>> percent(0.1234), percent(0.0001)
    ('12.3%', '<0.1%')
    """
    return "<0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"


def summary_rows(profile: Profile) -> list[tuple[str, float, str]]:
    """What a step consists of: (name, seconds, explanation)."""
    named = profile.device_seconds - profile.unattributed_seconds
    host = profile.host
    return [
        ("nodes", named, "instructions of nodes of the graph"),
        ("unattributed", profile.unattributed_seconds, "instructions that belong to no node"),
        ("idle", profile.idle_seconds, "no instruction runs: the host and the runtime work"),
        ("host: feeds", host.feeds, "converting the feeds and starting their copies"),
        ("host: dispatch", host.dispatch, "starting the step"),
        ("host: wait", host.wait, "waiting for the results, while the device works"),
    ]


def headline(profile: Profile) -> str:
    """The time of a step in one sentence."""
    devices = f"{profile.devices} device" + "s" * (profile.devices != 1)
    return (
        f"{elapsed(profile.step_seconds)} a step ({elapsed(profile.plain_seconds)} without the "
        f"profiler), the mean of {profile.steps} steps on {devices}"
    )


def rate(node: NodeTime) -> str:
    """The achieved rate of a node, "" if it computes nothing."""
    return amount(node.flops_per_second, "FLOP/s") if node.flops and node.seconds else ""


def _summary(profile: Profile) -> list[str]:
    step = profile.step_seconds or 1.0
    rows = [
        (name, elapsed(seconds), percent(seconds / step), what)
        for name, seconds, what in summary_rows(profile)
    ]
    notes = [f"note: {note}" for note in profile.notes]
    return [headline(profile), *table(rows, right=(1, 2)), *notes]


def _lines(profile: Profile) -> list[str]:
    if not profile.lines:
        return ["no node has a line of the user's program"]
    phases = phases_of(profile)
    rows: list[Sequence[str]] = [("share", "time", *phases, "line", "code")]
    for line in list(profile.lines.values())[:_ROWS]:
        parts = [_time(line.phases[phase]) for phase in phases]
        code = line.code + _called_by(line)
        share, time = percent(line.share), elapsed(line.seconds)
        rows.append((share, time, *parts, str(line.source), code))
    left = len(profile.lines) - len(rows) + 1
    more = [f"  and {left} more lines"] if left > 0 else []
    return ["by line", *table(rows, right=range(2 + len(phases))), *more]


def phases_of(profile: Profile) -> list[str]:
    """The phases that take time in any line."""
    lines = profile.lines.values()
    first = next(iter(lines), None)
    phases = [] if first is None else list(first.phases)
    return [phase for phase in phases if any(line.phases[phase] for line in lines)]


def _time(seconds: float) -> str:
    return "" if seconds < 5e-9 else elapsed(seconds)


def _called_by(line: LineTime) -> str:
    names = ", ".join(str(caller) for caller in line.callers)
    return f"  (backward pass of {names})" if names else ""


def _nodes(profile: Profile) -> list[str]:
    nodes = list(profile.nodes.values())
    if not nodes:
        return _instructions(profile)
    rows: list[Sequence[str]] = [("share", "time", "count", "rate", "node", "operator", "line")]
    step = profile.step_seconds or 1.0
    for node in nodes[:_ROWS]:
        share, time = percent(node.seconds / step), elapsed(node.seconds)
        line = str(node.source) if node.source is not None else ""
        rows.append((share, time, f"{node.count:.4g}", rate(node), node.name, node.op, line))
    left = len(nodes) - _ROWS
    more = [f"  and {left} more nodes"] if left > 0 else []
    return ["by node", *table(rows, right=(0, 1, 2, 3)), *more]


def _instructions(profile: Profile) -> list[str]:
    """The slowest instructions, where no node is known."""
    ranked = sorted(profile.unattributed.items(), key=lambda row: -row[1])[:_ROWS]
    if not ranked:
        return ["no instruction was recorded"]
    step = profile.step_seconds or 1.0
    rows = [(percent(seconds / step), elapsed(seconds), name) for name, seconds in ranked]
    return ["by instruction of XLA", *table(rows, right=(0, 1))]


def _sources(profile: Profile) -> Iterator[list[str]]:
    """The annotated source of each file."""
    for file, times in by_file(profile).items():
        text = lines_of(file)
        if not text:
            yield [f"{os.path.basename(file)}: the source is not available"]
            continue
        rows: list[Sequence[str]] = []
        before = 0
        near = {n for line in times for n in range(line - _AROUND, line + _AROUND + 1)}
        for number in sorted(n for n in near if 1 <= n <= len(text)):
            if number > before + 1:
                rows.append(("", "", "...", ""))
            time = times.get(number)
            share = "" if time is None else percent(time.share)
            spent = "" if time is None else elapsed(time.seconds)
            rows.append((share, spent, str(number), text[number - 1].rstrip()))
            before = number
        yield [os.path.basename(file), *table(rows, right=(0, 1, 2))]


def by_file(profile: Profile) -> Mapping[str, Mapping[int, LineTime]]:
    """File -> line -> its time; the file that takes most of the time first."""
    found: dict[str, dict[int, LineTime]] = {}
    for line in profile.lines.values():
        found.setdefault(line.source.file, {})[line.source.line] = line
    total = {file: sum(line.seconds for line in rows.values()) for file, rows in found.items()}
    return {file: found[file] for file in sorted(found, key=lambda name: -total[name])}
