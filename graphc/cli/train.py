"""`graphc train`: runs a script's job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from graphc.artifacts import save
from graphc.cli.report import amount, duration, print_json, table
from graphc.cli.script import load_job
from graphc.cli.targets import ask_for_devices, options_with_cache, strategy_for
from graphc.devices.discovery import name_of
from graphc.errors import ArtifactError, GraphcError
from graphc.runtime.session import Session
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.interface import PARTITIONED, REPLICATED, SHARDED, SINGLE
from graphc.train.loop import History, Job, fit

_LAST = 20


def run(options: argparse.Namespace) -> None:
    """Trains, evaluates, saves, and prints a summary."""
    ask_for_devices(options.devices)
    job = load_job(options.script, options.arguments)
    if options.save is not None:
        check_savable(job, options.script, options.save)  # now, not after an hour of training
    session = Session(
        job.graph,
        strategy=strategy_for(options.devices),
        options=options_with_cache(options.cache_dir),
    )
    history = fit(session, job, steps=options.steps, progress=not options.no_progress)
    facts = summary(session, job, history)
    if options.save is not None:
        save(session, options.save, signatures=job.signatures)
        facts["saved"] = saved_facts(job, options.save)
    if options.json:
        print_json(facts)
    else:
        print("\n".join(_text(facts)))


def check_savable(job: Job, script: str, path: str) -> None:
    """Refuses what cannot be saved before anything costly is done.

    Raises:
        GraphcError: the job names no signatures.
        ArtifactError: there is no such folder.
    """
    if not job.signatures:
        raise GraphcError(
            f"build() of {script} gives no signatures, so there is nothing to save",
            hint='gc.train.Job(..., signatures={"predict": gc.Signature(inputs, outputs)})',
        )
    if not Path(path).parent.is_dir() or Path(path).is_dir():
        raise ArtifactError(f"cannot write {path!r}", hint="give a file in a folder that exists")


def summary(session: Session, job: Job, history: History) -> dict[str, Any]:
    """What ran where, how long it took, and what came out."""
    step = session.executables[0]
    metrics = {
        name: {"first": values[0], "last": values[-1], "mean_of_last": np.mean(values[-_LAST:])}
        for name, values in history.metrics.items()
    }
    return {
        "graph": job.graph.name,
        "steps": history.steps,
        "devices": devices_of(step),
        "parallel": PARALLEL[step.interface.kind],
        "notes": step.notes,
        "compile_seconds": sum(step.seconds.values()),
        "first_step_seconds": history.first_step_seconds,
        "step_seconds": history.step_seconds,
        "metrics": metrics,
        "evaluation": {} if job.evaluate is None else job.evaluate(session),
    }


def devices_of(step: Executable) -> list[dict[str, str]]:
    """Name and kind of each device that the step runs on."""
    devices = sorted(step.devices, key=lambda device: device.id)
    return [{"name": name_of(d), "kind": str(d.device_kind)} for d in devices]


# How several devices share the work, by the kind of `Interface`.
PARALLEL = {SINGLE: None, REPLICATED: "pmap", SHARDED: "jit", PARTITIONED: "partition"}


def describe_devices(devices: list[dict[str, str]], parallel: str | None) -> str:
    """The devices in a few words."""
    first = devices[0]
    if len(devices) == 1:
        return f"{first['name']} ({first['kind']})"
    kinds = ", ".join(dict.fromkeys(device["kind"] for device in devices))
    how = "each with nodes of its own" if parallel == "partition" else f"through jax.{parallel}"
    return f"{len(devices)} x {kinds} {how}"


def saved_facts(job: Job, path: str) -> dict[str, Any]:
    """What was saved, and where."""
    size = Path(path).stat().st_size
    return {"file": path, "bytes": size, "signatures": list(job.signatures)}


def saved_text(saved: dict[str, Any]) -> str:
    """The same in words."""
    signatures = ", ".join(saved["signatures"])
    return f"{saved['file']} ({amount(saved['bytes'], 'B')}): {signatures}"


def _text(facts: dict[str, Any]) -> list[str]:
    rows = [
        ("ran on", describe_devices(facts["devices"], facts["parallel"])),
        ("compile", duration(facts["compile_seconds"])),
        ("step", f"{duration(facts['step_seconds'])} (mean, without the first)"),
    ]
    for name, values in facts["metrics"].items():
        mean = f"{values['mean_of_last']:.4g} (mean of the last {min(_LAST, facts['steps'])})"
        rows.append((name, f"{values['first']:.4g} at first, {mean}"))
    rows += [(name, f"{value:.4f}") for name, value in facts["evaluation"].items()]
    rows += [("note", note) for note in facts["notes"]]
    if "saved" in facts:
        rows.append(("saved", saved_text(facts["saved"])))
    return [f"{facts['graph']}: {facts['steps']} steps", *table(rows)]
