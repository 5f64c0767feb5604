"""`graphc compile`: a training step, or other fetches, compiled ahead of time."""

from __future__ import annotations

import argparse
from typing import Any

from graphc.cli.report import amount, duration, print_result, table
from graphc.cli.targets import job_and_target, machine_of, options_with_cache, strategy_on
from graphc.cli.train import PARALLEL, describe_devices, devices_of
from graphc.runtime.step.compiler import compile
from graphc.runtime.step.executable import Executable

# XLA's names of costs (its other names are for single operands), and graphc's for absent machines.
_COSTS = ("flops", "transcendentals", "bytes accessed")
_TOTALS = ("total flops", "total bytes accessed", "total kernels")


def run(options: argparse.Namespace) -> None:
    """Compiles, and prints the cost and the result."""
    machine = machine_of(options)
    job, target = job_and_target(options)
    step = compile(
        job.graph,
        target.fetches,
        dict(target.feeds),
        strategy=strategy_on(machine, options.devices),
        machine=machine,
        options=options_with_cache(options.cache_dir),
    )
    facts = _facts(step)
    report = step.pass_report()
    lines = [*_text(facts), "passes", *(f"  {line}" for line in str(report).splitlines())]
    print_result(facts | {"passes": report.to_json()}, lines, as_json=options.json)


def _facts(step: Executable) -> dict[str, Any]:
    passes = {} if step.cached else {"passes": step.pass_report().milliseconds / 1e3}
    cost, interface = step.cost(), step.interface
    return {
        "graph": interface.name,
        "nodes": interface.nodes,
        "feeds": {feed.name: str(feed.type) for feed in interface.feeds},
        "devices": devices_of(step),
        "parallel": PARALLEL[interface.kind],
        "seconds": passes | dict(step.seconds),
        "cost": {
            name.replace(" ", "_"): cost.get(name, 0.0)
            for name in (_TOTALS if _TOTALS[0] in cost else _COSTS)
        },
        "memory": step.memory(),
        "cache_key": step.cache_key,
        "cached": step.cached,
        "notes": step.notes,
    }


def _text(facts: dict[str, Any]) -> list[str]:
    seconds, cost = facts["seconds"], facts["cost"]
    total = "total_" if "total_flops" in cost else ""
    flops, moved = (
        amount(cost[f"{total}flops"], "FLOP"),
        amount(cost[f"{total}bytes_accessed"], "B"),
    )
    how = "counted from the HLO" if total else "XLA's estimate, loops counted once"
    rows = [
        ("feeds", ", ".join(f"{n}: {t}" for n, t in facts["feeds"].items()) or "none"),
        ("runs on", describe_devices(facts["devices"], facts["parallel"])),
        ("took", ", ".join(f"{name} {duration(s)}" for name, s in seconds.items())),
        ("cost", f"{flops}, {moved} accessed ({how})"),
        ("memory", ", ".join(f"{name} {amount(n, 'B')}" for name, n in facts["memory"].items())),
        ("cache key", facts["cache_key"] + (" (found)" if facts["cached"] else "")),
        *(("note", note) for note in facts["notes"]),
    ]
    return [f"{facts['graph']}: {facts['nodes']} nodes after all passes", *table(rows)]
