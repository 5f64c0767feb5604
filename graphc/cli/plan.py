"""`graphc plan`: whether a script's training step fits into a machine, and the batch size."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

from graphc.cli.report import amount, duration, print_result, table
from graphc.cli.targets import Target, job_and_target, strategy_on
from graphc.cluster.scale.compiled import run_seconds
from graphc.cluster.scale.hardware import Hardware
from graphc.config import CompileOptions
from graphc.devices.machine import Machine
from graphc.devices.strategy import DataParallel
from graphc.errors import FeedError
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.runtime.largest_batch import Tried, largest_batch, try_batch
from graphc.runtime.step.compiler import compile
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.prepare import prepare


def run(options: argparse.Namespace) -> None:
    """Compiles for one batch size, or for several, and prints which ones fit."""
    machine = Machine(options.machine)
    job, target = job_and_target(options)
    strategy = strategy_on(machine, options.devices)
    axes = _batch_axes(job.graph, target)
    batch = _batch(target, axes, options.largest_batch)
    compile_for = _compiler(job.graph, target, axes, machine, strategy)
    tried: list[Tried] = []

    def tell(found: Tried) -> None:
        tried.append(found)
        if not options.no_progress:
            print(_line(found), file=sys.stderr)

    unit = 1 if strategy is None else strategy.replicas
    if options.largest_batch:
        best = largest_batch(compile_for, batch, machine.usable_memory, unit, tell)
    else:
        best = try_batch(compile_for, batch)
        tell(best)
        best = best if best.step is not None else None
    facts = _facts(job.graph, machine, unit, tried, best)
    print_result(facts, _text(facts), as_json=options.json)


def _batch_axes(graph: Graph, target: Target) -> dict[Tensor, int]:
    """The batch axis of each feed that has one."""
    program = prepare(graph, target.nest.distinct, list(target.feeds), CompileOptions()).functional
    axes = {
        t: program.batch_axes.get(t.name, program.batch_axes.get(t.name.removesuffix(":0")))
        for t in target.feeds
    }
    return {tensor: axis for tensor, axis in axes.items() if axis is not None}


def _batch(target: Target, axes: Mapping[Tensor, int], search: bool) -> int:
    """The number of rows of the batch that the job feeds; 0 if no feed has a batch axis and only
    the job's own shapes were requested.
    """
    rows = {target.feeds[tensor][axis] for tensor, axis in axes.items()}
    if not rows and not search:
        return 0
    if len(rows) != 1:
        what = "no feed has a batch axis" if not rows else f"feeds have batches of {sorted(rows)}"
        raise FeedError(f"plan: {what}", hint='make the first size of the placeholders "batch"')
    return rows.pop()


def _compiler(
    graph: Graph,
    target: Target,
    axes: Mapping[Tensor, int],
    machine: Machine,
    strategy: DataParallel | None,
) -> Callable[[int], Executable]:
    """Compiles the target for a batch."""

    def compile_for(batch: int) -> Executable:
        feeds: dict[Any, Any] = {}
        for tensor, shape in target.feeds.items():
            sizes = list(shape)
            if tensor in axes:
                sizes[axes[tensor]] = batch
            feeds[tensor] = tuple(sizes)
        return compile(graph, target.fetches, feeds, machine=machine, strategy=strategy)

    return compile_for


def _facts(
    graph: Graph, machine: Machine, devices: int, tried: list[Tried], best: Tried | None
) -> dict[str, Any]:
    return {
        "graph": graph.name,
        "machine": str(machine),
        "devices": devices,
        "limit": machine.usable_memory,
        "tried": [{"batch": t.batch, "bytes": t.bytes, "fits": t.step is not None} for t in tried],
        "batch": None if best is None else best.batch,
        "bytes": None if best is None else best.bytes,
        "memory": None if best is None or best.step is None else best.step.memory(),
        "seconds": None if best is None else _seconds(machine, devices, best),
        "recomputes": best is not None and best.step is not None and best.step.stages.recomputes,
    }


def _seconds(machine: Machine, devices: int, best: Tried) -> float | None:
    """The estimated time of a step: see docs/scaling.md."""
    if best.step is None:
        return None
    return run_seconds(best.step.hlo_cost(), Hardware.of(machine), devices)


def _text(facts: Mapping[str, Any]) -> list[str]:
    limit = amount(facts["limit"], "B")
    if facts["batch"] is None:
        least = min(facts["tried"], key=lambda row: int(row["batch"]))
        return [
            f"{facts['graph']} does not fit: a batch of {least['batch']} takes at least "
            f"{amount(least['bytes'], 'B')} on each device, of {limit} that JAX takes of "
            f"{facts['machine']}"
        ]
    memory = facts["memory"]
    batch, devices = facts["batch"], facts["devices"]
    rows = [
        ("machine", facts["machine"]),
        ("batch", f"{batch}, at most {-(-batch // devices)} a device" if batch else "none"),
        ("memory", f"{amount(facts['bytes'], 'B')} of {limit} on each device"),
        ("", ", ".join(f"{name} {amount(n, 'B')}" for name, n in memory.items())),
        ("time", f"{duration(facts['seconds'])} a step, estimated (graphc scale: more devices)"),
        ("recomputes", "yes, to keep to the limit" if facts["recomputes"] else "nothing"),
    ]
    return [f"{facts['graph']} fits", *table(rows)]


def _line(found: Tried) -> str:
    said = "fits" if found.step is not None else "does not fit"
    return f"batch {found.batch}: {said}, {amount(found.bytes, 'B')} on each device"
