"""`graphc train`: runs a script's job."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphc.artifacts import save
from graphc.checkpoints.checkpointer import Checkpointer
from graphc.cli.failures import running
from graphc.cli.report import amount, check_writable, duration, print_result, table
from graphc.cli.script import load_job
from graphc.cli.targets import ask_for_devices, options_with_cache, strategy_for
from graphc.devices.discovery import name_of
from graphc.errors import GraphcError
from graphc.runtime.session import Session
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.interface import PARTITIONED, REPLICATED, SHARDED, SINGLE
from graphc.train.callbacks.base import Callback
from graphc.train.callbacks.csv_log import CsvLogger
from graphc.train.callbacks.early_stopping import EarlyStopping
from graphc.train.callbacks.json_lines import JsonLinesLogger
from graphc.train.callbacks.time_limit import TimeLimit
from graphc.train.evaluation import Validation
from graphc.train.fitting import fit
from graphc.train.history import History
from graphc.train.job import Job
from graphc.train.tensorboard.callback import TensorBoard

_LAST = 20


def run(options: argparse.Namespace) -> None:
    """Trains, evaluates, saves, and prints a summary."""
    ask_for_devices(options.devices)
    job = load_job(options.script, options.arguments, guarded=False)
    if options.save is not None:
        check_savable(job, options.script, options.save)  # now, not after an hour of training
    check_checkpoints(options.checkpoint_dir, resume=options.resume)
    session = Session(
        job.graph,
        strategy=strategy_for(options.devices),
        options=options_with_cache(options.cache_dir),
    )
    with running(options.script):
        history = fit(
            session,
            job,
            steps=options.steps,
            validation=validation_of(job, options.validate_every, options.script),
            callbacks=callbacks_of(job, options),
            checkpoint=options.checkpoint_dir,
            resume=options.resume,
            progress=not options.no_progress,
        )
        facts = summary(session, job, history)
    if options.save is not None:
        save(session, options.save, signatures=job.signatures)
        facts["saved"] = saved_facts(job, options.save)
    print_result(facts, _text(facts), as_json=options.json)


def check_savable(job: Job, script: str, path: str) -> None:
    """Raises an error if the job cannot be saved, before anything expensive runs.

    Raises:
        GraphcError: the job has no signatures.
        ArtifactError: the folder does not exist.
    """
    if not job.signatures:
        raise GraphcError(
            f"build() of {script} gives no signatures, so there is nothing to save",
            hint='gc.train.Job(..., signatures={"predict": gc.Signature(inputs, outputs)})',
        )
    check_writable(path)


def check_checkpoints(folder: str | None, *, resume: bool) -> None:
    """Rejects a new training run in a folder that has checkpoints, and resuming without a folder.

    Raises:
        GraphcError: one of these is the case.
    """
    if folder is None:
        if resume:
            raise GraphcError(
                "--resume needs the folder of the checkpoints", hint="--checkpoint-dir FOLDER"
            )
    elif not resume and (steps := Checkpointer(folder).steps()):
        raise GraphcError(
            f"{folder!r} has checkpoints, the latest of step {steps[-1]}",
            hint="--resume continues; or give another folder",
        )


def validation_of(job: Job, every: int | None, script: str) -> Validation | None:
    """The job's validation, at the steps of `--validate-every`.

    Raises:
        GraphcError: the job has no validation.
    """
    if every is None:
        return None
    validation = _needed_validation(job, script, "--validate-every")
    return replace(validation, every_steps=every, every_epochs=None)


def _needed_validation(job: Job, script: str, option: str) -> Validation:
    if job.validation is None:
        raise GraphcError(
            f"build() of {script} gives no validation, so {option} has no meaning",
            hint="gc.train.Job(..., validation=gc.train.Validation(batches, metrics))",
        )
    return job.validation


def callbacks_of(job: Job, options: argparse.Namespace) -> list[Callback]:
    """The callbacks for `--early-stop`, `--time-limit` and `--log-dir`.

    Raises:
        GraphcError: the job has no validation.
    """
    found: list[Callback] = []
    if options.early_stop is not None:
        found.append(EarlyStopping(_loss_of(job, options.script), patience=options.early_stop))
    if options.time_limit is not None:
        found.append(TimeLimit(options.time_limit))
    if options.log_dir is not None:
        folder = Path(options.log_dir)
        found += [
            CsvLogger(folder / "log.csv"),
            JsonLinesLogger(folder / "log.jsonl"),
            TensorBoard(folder),
        ]
    return found


def _loss_of(job: Job, script: str) -> str:
    """The figure of the validation that `--early-stop` watches.

    It must be named `loss`: for other names it is not known whether lower values are better.
    """
    metrics = _needed_validation(job, script, "--early-stop").metrics
    if "loss" not in metrics:
        raise GraphcError(
            f"--early-stop looks at the metric 'loss' of the validation; that of {script} has "
            f"{', '.join(map(repr, metrics))}",
            hint='gc.train.Job(..., callbacks=[gc.train.EarlyStopping("validation/accuracy", '
            'mode="max")])',
        )
    return "validation/loss"


def summary(session: Session, job: Job, history: History) -> dict[str, Any]:
    """The devices, the times and the results of the training run."""
    steps = session.executables[:1]  # empty if the checkpoint is from the last step
    metrics = {
        name: {"first": values[0], "last": values[-1], "mean_of_last": np.mean(values[-_LAST:])}
        for name, values in history.metrics.items()
        if len(values)
    }
    evaluation = {} if job.evaluate is None else job.evaluate(session)
    return {
        "graph": job.graph.name,
        "steps": history.steps,
        "start": history.start,
        "epochs": history.epochs,
        "stopped": history.stopped,
        "devices": [device for step in steps for device in devices_of(step)],
        "parallel": PARALLEL[steps[0].interface.kind] if steps else None,
        "notes": steps[0].notes if steps else [],
        "compile_seconds": sum(sum(step.seconds.values()) for step in steps),
        "first_step_seconds": history.first_step_seconds,
        "step_seconds": history.step_seconds,
        "metrics": metrics,
        "validation": {name: values[-1] for name, (_, values) in history.validation.items()},
        "evaluation": {name: float(value) for name, value in evaluation.items()},
    }


def devices_of(step: Executable) -> list[dict[str, str]]:
    """The name and kind of each device on which the step runs."""
    devices = sorted(step.devices, key=lambda device: device.id)
    return [{"name": name_of(d), "kind": str(d.device_kind)} for d in devices]


# How several devices share the work, by the kind of `Interface`.
PARALLEL = {SINGLE: None, REPLICATED: "pmap", SHARDED: "jit", PARTITIONED: "partition"}


def describe_devices(devices: list[dict[str, str]], parallel: str | None) -> str:
    """A short description of the devices."""
    first = devices[0]
    if len(devices) == 1:
        return f"{first['name']} ({first['kind']})"
    kinds = ", ".join(dict.fromkeys(device["kind"] for device in devices))
    how = "each with nodes of its own" if parallel == "partition" else f"through jax.{parallel}"
    return f"{len(devices)} x {kinds} {how}"


def saved_facts(job: Job, path: str) -> dict[str, Any]:
    """The saved signatures and their file."""
    size = Path(path).stat().st_size
    return {"file": path, "bytes": size, "signatures": list(job.signatures)}


def saved_text(saved: dict[str, Any]) -> str:
    """The facts of `saved_facts` as text."""
    signatures = ", ".join(saved["signatures"])
    return f"{saved['file']} ({amount(saved['bytes'], 'B')}): {signatures}"


def _text(facts: dict[str, Any]) -> list[str]:
    rows = []
    if facts["devices"]:
        rows = [
            ("ran on", describe_devices(facts["devices"], facts["parallel"])),
            ("compile", duration(facts["compile_seconds"])),
            ("step", f"{duration(facts['step_seconds'])} (mean, without the first)"),
        ]
    if facts["start"]:
        rows.append(("resumed", f"after step {facts['start']}"))
    if facts["stopped"] is not None:
        rows.append(("stopped", facts["stopped"]))
    for name, values in facts["metrics"].items():
        mean = f"{values['mean_of_last']:.4g} (mean of the last {min(_LAST, facts['steps'])})"
        rows.append((name, f"{values['first']:.4g} at first, {mean}"))
    rows += [(f"validation {name}", f"{value:.4g}") for name, value in facts["validation"].items()]
    rows += [(name, f"{value:.4f}") for name, value in facts["evaluation"].items()]
    rows += [("note", note) for note in facts["notes"]]
    if "saved" in facts:
        rows.append(("saved", saved_text(facts["saved"])))
    return [f"{facts['graph']}: {facts['steps']} steps", *table(rows)]
