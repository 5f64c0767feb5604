"""`graphc scale`: how fast a script's training step would be on more devices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from graphc.cli.report import amount, check_writable, duration, print_result, table
from graphc.cli.targets import job_and_target
from graphc.cluster.scale.scaling import Scaling, scaling
from graphc.cluster.scale.schedule import Prediction


def run(options: argparse.Namespace) -> None:
    """Counts the step, and prints the predictions."""
    check_writable(options.plot)
    job, target = job_and_target(options)
    found = scaling(
        job.graph,
        target.fetches,
        dict(target.feeds),
        options.machine,
        options.devices,
        fixed_batch=options.fixed_batch,
        step_seconds=options.step_seconds,
    )
    if options.plot is not None:
        found.plot(options.plot)
    print_result(found.to_json(), _text(found), as_json=options.json)


def _text(found: Scaling) -> Iterator[str]:
    work, hardware = found.work, found.hardware
    yield f"{work.name} on {hardware.name}, predicted"
    kinds = f"{amount(work.parameters, 'B')}, slots {amount(work.slots, 'B')}"
    rows = [
        ("parameters", kinds),
        ("batch", f"{work.rows} rows on one device"),
        ("exchanges", _exchanges(found)),
        ("links", _links(found)),
        *(("note", note) for note in work.notes),
    ]
    yield from table(rows)
    heads = ("devices", "strategy", "split", "step", "rows/s", "efficiency", "memory", "")
    lines: list[tuple[str, ...]] = [heads]
    for name, predictions in found.plain.items():
        lines += [_row(name, prediction) for prediction in predictions]
    lines += [_row("best that fits", prediction) for prediction in found.best.values()]
    yield from table(lines)
    counts = {p.split.devices for predictions in found.plain.values() for p in predictions}
    for count in sorted(counts - set(found.best)):
        yield f"nothing fits on {count} devices: {amount(hardware.memory, 'B')} each"


def _row(name: str, found: Prediction) -> tuple[str, ...]:
    return (
        str(found.split.devices),
        name,
        str(found.split),
        duration(found.seconds),
        f"{found.rows / found.seconds:.4g}",
        f"{found.efficiency:.1%}",
        amount(found.memory, "B"),
        "" if found.fits else "does not fit",
    )


def _exchanges(found: Scaling) -> str:
    given = found.work.exchanges
    total = amount(sum(exchange.bytes for exchange in given), "B")
    return f"{len(given)} over replicas, {total} in all"


def _links(found: Scaling) -> str:
    pairs = {"inside": found.hardware.link, "between machines": found.hardware.network}
    return ", ".join(
        f"{name} {amount(link.bandwidth, 'B')}/s and {duration(link.latency)}"
        for name, link in pairs.items()
    )
