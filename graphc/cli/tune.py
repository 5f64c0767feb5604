"""`graphc tune`: finds the fastest way to compile a training step, or other fetches, on this
machine."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from graphc.cli.report import print_result
from graphc.cli.script import load_job
from graphc.cli.targets import Target, machine_of, strategy_on, target_of
from graphc.config import CompileOptions
from graphc.ir.node import Tensor
from graphc.runtime.feeds.fetches import resolve_feed
from graphc.runtime.tuning.tuning import tune
from graphc.train.job import Job


def run(options: argparse.Namespace) -> None:
    """Tunes, and prints the result of each variant."""
    machine = machine_of(options)
    job = load_job(options.script, options.arguments)
    first = next(iter(job.batches), None)  # only once, because batches may be an iterator
    job = replace(job, batches=[] if first is None else [first])
    target = target_of(job, options.fetch, options.feed)
    tuning = tune(
        job.graph,
        target.fetches,
        _feeds(job, target),
        strategy=strategy_on(machine, options.devices),
        machine=machine,
        options=CompileOptions(pipeline=options.pipeline),
        steps=options.loop,
        seconds=options.seconds,
        tolerance=options.tolerance,
        progress=not options.no_progress,
    )
    facts = {"graph": job.graph.name, **tuning.to_json()}
    print_result(facts, [str(tuning)], as_json=options.json)


def _feeds(job: Job, target: Target) -> dict[Tensor, Any]:
    """The values of the job's first batch, in its order, if they have the wanted shapes; shapes for
    all other feeds."""
    batch = next(iter(job.batches), {})
    given = {resolve_feed(job.graph, key): value for key, value in batch.items()}
    order = [t for t in given if t in target.feeds] + [t for t in target.feeds if t not in given]
    return {
        tensor: given[tensor]
        if tensor in given and np.shape(given[tensor]) == target.feeds[tensor]
        else target.feeds[tensor]
        for tensor in order
    }
