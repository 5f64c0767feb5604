"""A profile as one HTML page, which needs no network."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.reports.figures import elapsed
from graphc.reports.graph_page import resource
from graphc.reports.profile_text import by_file, headline, percent, phases_of, rate, summary_rows
from graphc.reports.source_files import lines_of, write_report

if TYPE_CHECKING:
    from graphc.reports.profile import LineTime, Profile

_WHAT = {
    "forward": "forward pass",
    "backward": "backward pass",
    "update": "update of the variables",
    "exchange": "exchange between devices",
    "loop": "loops themselves",
    "unattributed": "instructions that belong to no node",
    "idle": "no instruction runs",
}


def write_html(profile: Profile, path: str | Path) -> None:
    """Writes the page: see `Profile.html`."""
    write_report(path, page(profile))


def page(profile: Profile) -> str:
    """The text of the page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'><title>Profile</title>",
        f"<style>{resource('profile.css')}</style></head><body><main>",
        f"<h1>Where the time goes</h1><p>{escape(headline(profile))}</p>",
        *[f"<p class='note'>{escape(note)}</p>" for note in profile.notes],
        *_bar(profile),
        *_summary(profile),
        *_lines(profile),
        *_sources(profile),
        *_nodes(profile),
        f"<script type='application/json' id='data'>{_json(_data(profile))}</script>",
        f"<script>{resource('profile.js')}</script></main></body></html>",
    ]
    return "\n".join(parts)


def _json(value: Mapping[str, Any]) -> str:
    """JSON that cannot end the element that it is in."""
    return json.dumps(value).replace("<", "\\u003c")


def _data(profile: Profile) -> Mapping[str, Any]:
    step = profile.step_seconds or 1.0
    nodes = [
        {
            "name": node.name,
            "op": node.op,
            "seconds": node.seconds,
            "share": node.seconds / step,
            "count": round(node.count, 2),
            "rate": rate(node),
            "flops_per_second": node.flops_per_second,
            "phase": node.phase,
            "line": "" if node.source is None else str(node.source),
        }
        for node in profile.nodes.values()
    ]
    lines = {
        key: {"nodes": list(line.nodes), "callers": [str(caller) for caller in line.callers]}
        for key, line in profile.lines.items()
    }
    return {"nodes": nodes, "lines": lines}


def _bar(profile: Profile) -> Iterator[str]:
    """The step as one bar."""
    phases = dict.fromkeys(_WHAT, 0.0)
    for node in profile.nodes.values():
        phases[node.phase] += node.seconds
    phases["unattributed"] = profile.unattributed_seconds
    phases["idle"] = profile.idle_seconds
    shown = {name: seconds for name, seconds in phases.items() if seconds > 0}
    yield "<div class='bar'>"
    for name, seconds in shown.items():
        width = f"flex: {1e3 * seconds / profile.step_seconds:.6f} 0 0"
        yield f"<span class='{name}' style='{width}' title='{_WHAT[name]}: {elapsed(seconds)}'>"
        yield "</span>"
    yield "</div><div class='legend'>"
    for name, seconds in shown.items():
        share = percent(seconds / (profile.step_seconds or 1.0))
        text = f"{_WHAT[name]}: {elapsed(seconds)} ({share})"
        yield f"<span><i class='{name}'></i>{text}</span>"
    yield "</div>"


def _summary(profile: Profile) -> Iterator[str]:
    yield "<h2>The step</h2><table>"
    for name, seconds, what in summary_rows(profile):
        share = percent(seconds / (profile.step_seconds or 1.0))
        yield (
            f"<tr><td>{name}</td><td class='n'>{elapsed(seconds)}</td>"
            f"<td class='n'>{share}</td><td class='wide'>{escape(what)}</td></tr>"
        )
    yield "</table>"


def _lines(profile: Profile) -> Iterator[str]:
    if not profile.lines:
        yield "<h2>Lines</h2><p>No node has a line of the user's program.</p>"
        return
    phases = phases_of(profile)
    heads = "".join(f"<th class='n'>{phase}</th>" for phase in ("share", "time", *phases))
    yield f"<h2>Lines</h2><table id='lines'><tr>{heads}<th>line</th><th>code</th></tr>"
    for key, line in list(profile.lines.items())[:30]:
        spent = [percent(line.share), elapsed(line.seconds)]
        spent += [elapsed(line.phases[p]) if line.phases[p] > 5e-9 else "" for p in phases]
        cells = "".join(f"<td class='n'>{escape(text)}</td>" for text in spent)
        link = f"<a href='#{escape(key, quote=True)}'>{escape(str(line.source))}</a>"
        yield f"<tr>{cells}<td>{link}</td><td class='code'>{escape(line.code)}</td></tr>"
    yield "</table>"


def _sources(profile: Profile) -> Iterator[str]:
    """The source of each file in full; a click on a line shows its nodes."""
    files_of = by_file(profile)
    if files_of:
        yield "<h2>Source</h2><p>Click on a line to see its nodes.</p>"
    most = max((line.share for line in profile.lines.values()), default=1.0) or 1.0
    for file, times in files_of.items():
        yield f"<h3 title='{escape(file, quote=True)}'>{escape(os.path.basename(file))}</h3>"
        text = lines_of(file) or [""] * max(times)
        if not lines_of(file):
            yield "<p>The file cannot be read here: only its line numbers are known.</p>"
        yield "<div class='source'><table>"
        for number, code in enumerate(text, 1):
            if number in times or lines_of(file):
                yield _source_row(file, number, code.rstrip("\n"), times.get(number), most)
        yield "</table></div>"


def _source_row(file: str, number: int, code: str, line: LineTime | None, most: float) -> str:
    if line is None:
        cells = "<td></td><td></td>"
        cells += f"<td class='n number'>{number}</td><td class='text'>{escape(code)}</td>"
        return f"<tr>{cells}</tr>"
    key = escape(f"{file}:{number}", quote=True)
    heat = f"background: rgba(var(--hot), {0.05 + 0.55 * line.share / most:.3f})"
    return (
        f"<tr class='timed' id='{key}' data-line='{key}' data-share='{line.share:.6f}' "
        f"style='{heat}'>"
        f"<td class='n number'>{escape(percent(line.share))}</td>"
        f"<td class='n'>{elapsed(line.seconds)}</td><td class='n number'>{number}</td>"
        f"<td class='text'>{escape(code)}</td></tr>"
    )


def _nodes(profile: Profile) -> Iterator[str]:
    yield "<h2>Nodes</h2><input id='filter' placeholder='name, operator, line or phase'>"
    yield "<p id='left'></p><table id='nodes'><thead><tr>"
    columns = {
        "seconds": "time",
        "count": "count",
        "flops_per_second": "rate",
        "phase": "phase",
        "name": "node",
        "op": "operator",
        "line": "line",
    }
    yield "<th class='n'>share</th>"
    for key, name in columns.items():
        number = key in ("seconds", "count", "flops_per_second")
        yield f"<th data-sort='{key}'{' class=n' if number else ''}>{name}</th>"
    yield "</tr></thead><tbody></tbody></table>"
    if profile.unattributed:
        yield "<h2>Instructions that belong to no node</h2><table>"
        ranked = sorted(profile.unattributed.items(), key=lambda row: -row[1])[:50]
        for name, seconds in ranked:
            time = elapsed(seconds)
            yield f"<tr><td class='n'>{time}</td><td class='name'>{escape(name)}</td></tr>"
        yield "</table>"
