"""`graphc profile`: the time of each part of a script's training step."""

from __future__ import annotations

import argparse
from typing import Any

from graphc.cli.report import check_writable, print_result
from graphc.cli.script import load_job
from graphc.cli.targets import ask_for_devices, options_with_cache, strategy_for
from graphc.errors import FeedError
from graphc.reports.profiling import profile
from graphc.runtime.session import Session


def run(options: argparse.Namespace) -> None:
    """Profiles some steps, prints the tables, and writes the requested files."""
    for path in (options.html, options.trace):
        check_writable(path)  # now, not after the steps
    ask_for_devices(options.devices)
    job = load_job(options.script, options.arguments)
    session = Session(
        job.graph,
        strategy=strategy_for(options.devices),
        options=options_with_cache(options.cache_dir),
        unused_feeds="ignore",  # feeds of the training step, if other fetches are profiled
    )
    fetches: Any = options.fetch or {"train": job.train, "metrics": dict(job.metrics)}  # as `fit`
    try:
        made = profile(session, fetches, job.batches, steps=options.steps)
    except FeedError as error:
        if error.what.startswith("profile:"):
            raise FeedError(
                f"build() of {options.script} gives no batches to profile",
                hint="gc.train.Job(..., batches=...) must have at least one",
            ) from error
        raise
    if options.html is not None:
        made.html(options.html)
    if options.trace is not None:
        made.trace(options.trace)
    wrote = [f"wrote {path}" for path in (options.html, options.trace) if path is not None]
    facts = {"graph": job.graph.name, **made.to_json()}
    print_result(facts, [made.text().rstrip(), *wrote], as_json=options.json)
