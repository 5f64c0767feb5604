"""`graphc compare`: where two runs of a script's training step part."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphc.cli.pass_texts import parse_passes
from graphc.cli.report import check_writable, print_result
from graphc.cli.script import load_job
from graphc.cli.targets import Target, target_of
from graphc.config import PIPELINES, CompileOptions
from graphc.devices.discovery import platform_of
from graphc.divergence.comparing import Other, compare
from graphc.divergence.records import Record
from graphc.divergence.result import Comparison
from graphc.divergence.runs import Run, device_of
from graphc.errors import AttributeValueError, FeedError
from graphc.importers.files import ONNX, format_of, import_model, is_model_file
from graphc.importers.originals import random_inputs
from graphc.importers.recorded import original_values
from graphc.ir.node import Tensor
from graphc.passes.core.target import Target as PassTarget
from graphc.runtime.feeds.fetches import resolve_feed
from graphc.runtime.session import Session
from graphc.train.fitting import fit
from graphc.train.job import Job

_PRECISIONS = ("bf16", "f16")


def run(options: argparse.Namespace) -> None:
    """Compares, or writes the record of a run.

    Raises:
        SystemExit: code 1, if rounding does not explain a value.
    """
    for path in (options.record, options.plot):
        check_writable(path)
    if options.record is not None and options.against is not None:
        raise AttributeValueError(
            "--record and --against exclude each other",
            hint="write the record in one environment, and compare --against it in the other",
        )
    if is_model_file(options.script):
        return _show(options, *_of_model(options))
    job = load_job(options.script, options.arguments)
    target = target_of(job, options.fetch, [])
    feeds = _feeds(job, target)
    ran = _run_of(options)
    other = None if options.against is None else _other(options.against, ran)
    session = Session(job.graph)
    if options.steps is not None:
        fit(session, job, steps=options.steps, progress=not options.no_progress)
    if options.record is not None:
        record = Record.write(options.record, session, feeds, fetches=target.fetches, run=ran)
        count = len(record.values)
        wrote = f"wrote {options.record}: {count} values of {record.label}"
        facts = {"record": options.record, "values": count}
        return print_result(facts, [wrote], as_json=options.json)
    found = compare(session, other, feeds, fetches=target.fetches, run=ran)
    _show(options, job.graph.name, found)


def _show(options: argparse.Namespace, name: str, found: Comparison) -> None:
    """Prints a comparison."""
    if options.plot is not None:
        found.plot(options.plot)
    lines = [found.text(options.rows)]
    if options.plot is not None:
        lines.append(f"wrote {options.plot}")
    print_result({"graph": name, **found.to_json()}, lines, as_json=options.json)
    if not found.ok:
        sys.stdout.flush()
        raise SystemExit(1)


def _of_model(options: argparse.Namespace) -> tuple[str, Comparison]:
    """The comparison of a model file on random inputs: by default, with its own framework."""
    if options.record is not None or options.steps is not None or options.fetch:
        raise AttributeValueError(
            "--record, --steps and --fetch are for scripts", hint="leave them out"
        )
    model = import_model(options.script)
    made = model.to_graph()
    inputs = random_inputs(model, {})
    ran = _run_of(options)
    if options.against is not None:
        other: Other = _other(options.against, ran)
    elif format_of(options.script) == ONNX:
        other = original_values(options.script, made, inputs)
    else:
        other = Run()
    return Path(options.script).name, compare(made, other, dict(inputs), run=ran)


def _feeds(job: Job, target: Target) -> dict[Tensor, Any]:
    """The values of the needed feeds in the job's first batch."""
    batch = next(iter(job.batches), {})
    values = {resolve_feed(job.graph, key): np.asarray(value) for key, value in batch.items()}
    missing = [tensor for tensor in target.feeds if tensor not in values]
    if missing:
        raise FeedError(
            f"the job's first batch has no value for feed {missing[0].name.removesuffix(':0')!r}",
            source=missing[0].node.source,
            hint="choose other fetches with --fetch",
        )
    return {tensor: values[tensor] for tensor in target.feeds}


def _run_of(options: argparse.Namespace) -> Run:
    """The run that the options describe."""
    made = CompileOptions(pipeline=options.pipeline, precision=options.precision)
    passes = None
    if options.passes is not None:
        target = PassTarget(platform_of(device_of(options.device)))
        passes = parse_passes(options.passes, target)
    return Run(
        made, device=options.device, before=options.before, after=options.after, passes=passes
    )


def _other(text: str, ran: Run) -> Other:
    """What `--against` names: the same run with one difference, or a record."""
    kind, colon, name = text.partition(":")
    alone = replace(ran, before=None, after=None, passes=None)
    options = ran.options or CompileOptions()
    if text == "none":
        return Run()
    if text in PIPELINES:
        return replace(alone, options=replace(options, pipeline=text))
    if text in _PRECISIONS:
        return replace(alone, options=replace(options, precision=text))
    if colon and kind == "before":
        return replace(alone, before=name)
    if colon and kind == "after":
        return replace(alone, after=name)
    if text.startswith("/") and not Path(text).exists():
        return replace(ran, device=text)
    return Record.open(text)
