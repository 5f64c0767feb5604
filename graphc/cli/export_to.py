"""`graphc export --to`: a signature, or a model file, in the format of another framework."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphc.artifacts.signature import Signature
from graphc.cli import export_peers as peers
from graphc.cli.export_peers import Peer
from graphc.cli.script import load_job
from graphc.cli.targets import strategy_for
from graphc.cli.timing import latency, timed
from graphc.cli.validate import compare_arrays, error_table, inputs_of, print_compared
from graphc.errors import ArtifactError, GraphcError, UnknownNameError, nearest
from graphc.exporters.iree import to_iree
from graphc.exporters.onnx.entry import DEFAULT, to_onnx
from graphc.exporters.safetensors import to_safetensors
from graphc.exporters.saved_model.entry import to_saved_model
from graphc.exporters.stablehlo import to_stablehlo
from graphc.importers.files import import_model, is_model_file
from graphc.ir.dtypes import Array
from graphc.runtime.session import Session
from graphc.train.fitting import fit
from graphc.train.job import Job

_DEFAULT_NAME = "serving_default"


def run(options: argparse.Namespace) -> None:
    """Trains if requested, writes, and validates if requested.

    Raises:
        SystemExit: code 1, if the results of the file differ from those of the graph.
    """
    _check(options)
    job = _job(options)
    name, signature = _signature(job, options)
    strategy = strategy_for(options.devices)
    session = Session(job.graph, strategy=strategy, unused_feeds="ignore")
    if options.steps is not None:
        fit(session, job, steps=options.steps, progress=not options.no_progress)
    _write(session, signature, options)
    facts: dict[str, Any] = {"file": options.file, "format": options.to, "signature": name}
    facts["bytes"] = _size(Path(options.file))
    if options.validate:
        facts["validation"] = _validated(session, job, signature, options)
    print_compared("export", options.file, facts, _text(facts), options.json)


def _check(options: argparse.Namespace) -> None:
    """Raises an error for options that do not go together, before anything expensive runs."""
    for name, kind in (("opset", "onnx"), ("target", "iree")):
        if getattr(options, name) is not None and options.to != kind:
            raise GraphcError(f"--{name} is for --to {kind}", hint=f"leave --{name} out")
    if options.validate and options.target not in (None, "host"):
        raise GraphcError(
            f"--validate cannot run a module for {options.target} here",
            hint="validate one for --target host",
        )
    parent = Path(options.file).resolve().parent
    if not parent.is_dir():
        raise ArtifactError(f"cannot write {options.file!r}", hint="its folder must exist")


def _job(options: argparse.Namespace) -> Job:
    """The job of a script, or of a model file alone."""
    if not is_model_file(options.script):
        return load_job(options.script, options.arguments)
    if options.steps is not None:
        raise GraphcError(f"{options.script} is a model, and does not say how to train it")
    made = import_model(options.script).to_graph()
    return Job(made.graph, [], [], signatures={"predict": made.signature()})


def _signature(job: Job, options: argparse.Namespace) -> tuple[str, Signature]:
    """The signature to write, with the sizes that were given."""
    known, name = job.signatures, options.signature
    if not known:
        raise GraphcError(
            f"build() of {options.script} gives no signatures, so there is nothing to export",
            hint='gc.train.Job(..., signatures={"predict": gc.Signature(inputs, outputs)})',
        )
    if name is None:
        if len(known) > 1:
            raise GraphcError(
                f"{options.script} has the signatures {', '.join(known)}, and a file holds one",
                hint=f"--signature {next(iter(known))}",
            )
        name = next(iter(known))
    if name not in known:
        raise UnknownNameError(
            f"--signature: there is no signature {name!r}", hint=nearest(name, known)
        )
    found = known[name]
    return name, replace(found, sizes={**found.sizes, **dict(options.size)})


def _write(session: Session, signature: Signature, options: argparse.Namespace) -> None:
    file = options.file
    if options.to == "onnx":
        to_onnx(session, file, signature, opset=options.opset or DEFAULT)
    elif options.to == "saved-model":
        platforms = [each for each in options.platforms if each in ("cpu", "cuda", "tpu")]
        to_saved_model(session, file, signature, platforms=platforms)
    elif options.to == "iree":
        to_iree(session, file, signature, target=options.target or "host")
    elif options.to == "stablehlo":
        to_stablehlo(session, file, signature)
    else:
        to_safetensors(session, file)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


# -- validation ----------------------------------------------------------------------------------


def _peer(session: Session, signature: Signature, options: argparse.Namespace) -> tuple[str, Peer]:
    file = options.file
    if options.to == "onnx":
        return peers.onnx_peer(file)
    if options.to == "saved-model":
        return peers.saved_model_peer(file, _DEFAULT_NAME)
    if options.to == "iree":
        return peers.iree_peer(file, list(signature.outputs))
    if options.to == "stablehlo":
        return peers.stablehlo_peer(file, session.values())
    return peers.safetensors_peer(file)


def _validated(
    session: Session, job: Job, signature: Signature, options: argparse.Namespace
) -> dict[str, Any]:
    """Both sides run on the same inputs: errors and latencies."""
    against, peer = _peer(session, signature, options)
    if options.to == "safetensors":
        return {"against": against, "outputs": _compared(session.values(), peer({}), options)}
    inputs = inputs_of(job, signature)
    feeds: dict[Any, Any] = {signature.inputs[name]: value for name, value in inputs.items()}
    feeds.update(signature.given)
    fetches = list(signature.outputs.values())
    values = session.run(fetches, feeds)
    wanted = {n: np.asarray(v) for n, v in zip(signature.outputs, values, strict=True)}
    return {
        "against": against,
        "inputs": {name: f"{value.dtype}{list(value.shape)}" for name, value in inputs.items()},
        "outputs": _compared(wanted, peer(inputs), options),
        "latency_ms": {
            "graph": latency(timed(lambda: session.run(fetches, feeds))),
            "file": latency(timed(lambda: peer(inputs))),
        },
    }


def _compared(
    wanted: Mapping[str, Array], got: Mapping[str, Array], options: argparse.Namespace
) -> dict[str, Any]:
    return {
        name: compare_arrays(np.asarray(value), np.asarray(got[name]), options.tolerance)
        for name, value in wanted.items()
    }


def _text(facts: Mapping[str, Any]) -> list[str]:
    size = facts["bytes"] / 1e6
    lines = [f"saved {facts['file']}: {facts['format']}, {size:.3g} MB, {facts['signature']}"]
    found = facts.get("validation")
    if found is None:
        return lines
    ms, times = found.get("latency_ms"), ""
    if ms:
        times = f": p50 {ms['graph']['p50']:.3g} ms here, {ms['file']['p50']:.3g} ms there"
    lines.append(f"against {found['against']}{times}")
    return [*lines, *error_table(found["outputs"])]
