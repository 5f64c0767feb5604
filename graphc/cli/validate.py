"""`graphc export --validate`: compares the graph in this process with the file in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from graphc.artifacts.signature import Signature
from graphc.cli.arrays import common, write_arrays
from graphc.cli.report import plain, print_result, table
from graphc.cli.timing import latency, timed
from graphc.errors import ExecutionError
from graphc.ir.dims import as_symbol, substitute
from graphc.ir.dtypes import Array, is_floating, is_integer, short_name
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.runtime.feeds.fetches import resolve_feed
from graphc.runtime.session import Session
from graphc.runtime.step.compiler import compile
from graphc.train.job import Job

_SIZE = 8  # the value of named sizes that no batch determines
_TOLERANCES = {8: 1e-9, 4: 1e-4, 2: 2e-2, 1: 0.2}  # by bytes of a floating dtype


def validate(session: Session, job: Job, path: str, tolerance: float | None) -> dict[str, Any]:
    """Runs every signature on both sides from the same state, and writes the results.

    Args:
        path: the artifact, just saved from `session`.
        tolerance: a fraction of the largest value of an output; None for the default of the dtype.

    Raises:
        ExecutionError: the file could not be run in a separate process.
    """
    inputs = {name: inputs_of(job, signature) for name, signature in job.signatures.items()}
    here = {
        name: _run_here(session, signature, inputs[name])
        for name, signature in job.signatures.items()
    }
    there, facts = _run_there(path, inputs)
    signatures = {
        name: {
            **facts["signatures"][name]["about"],
            "inputs": {n: f"{short_name(v.dtype)}{list(v.shape)}" for n, v in inputs[name].items()},
            "outputs": {
                output: compare_arrays(value, there[name][output], tolerance)
                for output, value in values.items()
            },
            "latency_ms": {
                "graph": latency(seconds),
                "artifact": latency(facts["signatures"][name]["seconds"]),
            },
        }
        for name, (values, seconds) in here.items()
    }
    found = {
        "artifact": Path(path).name,
        "graphc": facts["graphc"],
        "jax": jax.__version__,
        "device": str(jax.devices()[0].device_kind),
        "signatures": signatures,
    }
    found["ok"] = not failures(found)
    text = json.dumps(plain(found), indent=1, allow_nan=False)
    report_path(path).write_text(text + "\n")
    return found


def compare_arrays(here: Array, there: Array, tolerance: float | None) -> dict[str, Any]:
    """The largest error of an output: absolute, and as a fraction of the largest value."""
    if tolerance is None:
        tolerance = _tolerance(here.dtype)
    wide = np.complex128 if np.iscomplexobj(here) else np.float64
    a, b = common(here).astype(wide), common(there).astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities too
    with np.errstate(invalid="ignore"):
        errors = np.where(same, 0.0, np.abs(a - b))
    sizes = np.abs(a[np.isfinite(a)])
    largest, error = float(sizes.max(initial=0.0)), float(errors.max(initial=0.0))
    relative = error / largest if largest else error
    return {
        "max_abs": error,
        "max_rel": relative,
        "tolerance": tolerance,
        "ok": relative <= tolerance,  # False for NaN
    }


def _tolerance(dtype: Any) -> float:
    """The largest difference that another rounding order may cause; 0 for ints."""
    if is_floating(dtype):
        return _TOLERANCES[dtype.itemsize]
    return _TOLERANCES[dtype.itemsize // 2] if np.iscomplexobj(np.zeros((), dtype)) else 0.0


def report_path(path: str) -> Path:
    """The path of the file with the results."""
    return Path(path).with_suffix(".validation.json")


def failures(found: Mapping[str, Any]) -> list[str]:
    """A line for each output whose error exceeds the tolerance."""
    return [
        f"{name}, {line}"
        for name, signature in found["signatures"].items()
        for line in too_far(signature["outputs"])
    ]


def too_far(outputs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each output, as `compare_arrays` compared it, whose error is too large."""
    return [
        f"{name}: {row['max_rel']:.3g} of its largest value, and {row['tolerance']:.3g} is allowed"
        for name, row in outputs.items()
        if not row["ok"]
    ]


def print_compared(
    command: str, file: str, facts: Mapping[str, Any], lines: Iterable[str], as_json: bool
) -> None:
    """Prints what a command has made, as `lines` or as JSON.

    Raises:
        SystemExit: code 1, if outputs of its "validation" differ; they are named on stderr.
    """
    print_result(facts, lines, as_json=as_json)
    wrong = too_far(facts.get("validation", {}).get("outputs", {}))
    if wrong:
        sys.stdout.flush()
        print(f"graphc {command}: {file} differs: {'; '.join(wrong)}", file=sys.stderr)
        raise SystemExit(1)


def error_table(outputs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The lines of a table with the largest error of each output."""
    rows = [("output", "max error", "relative")]
    rows += [(n, f"{r['max_abs']:.3g}", f"{r['max_rel']:.3g}") for n, r in outputs.items()]
    return table(rows, right=(1, 2))


def validation_text(found: Mapping[str, Any]) -> list[str]:
    """The results as a short table."""
    rows = [("signature", "output", "max error", "relative", "p50 graph/file", "p99 graph/file")]
    for name, signature in found["signatures"].items():
        ms = signature["latency_ms"]
        times = [f"{ms['graph'][p]:.3g}/{ms['artifact'][p]:.3g} ms" for p in ("p50", "p99")]
        for output, row in signature["outputs"].items():
            rows.append((name, output, f"{row['max_abs']:.3g}", f"{row['max_rel']:.3g}", *times))
            name, times = "", ["", ""]
    return [*table(rows, right=(2, 3, 4, 5)), ""]


# -- inputs ---------------------------------------------------------------------------------


def inputs_of(job: Job, signature: Signature) -> dict[str, Array]:
    """The job's first batch, if it contains the input; otherwise numbers of its type."""
    graph = job.graph
    batch = {resolve_feed(graph, k): np.asarray(v) for k, v in next(iter(job.batches), {}).items()}
    sizes = _sizes(graph, signature, batch)
    rng = np.random.default_rng(0)
    values = {}
    for argument, key in signature.inputs.items():
        tensor = resolve_feed(graph, key)
        given = batch.get(tensor)
        dims = [substitute(graph.constraints.find(dim), sizes) for dim in tensor.type.shape]
        shape = tuple(dim if isinstance(dim, int) else _SIZE for dim in dims)
        if given is None or given.shape != shape:
            given = _numbers(rng, tensor, shape)
        values[argument] = given
    return values


def _sizes(graph: Graph, signature: Signature, batch: Mapping[Tensor, Array]) -> dict[str, int]:
    """The named sizes: those that the signature fixes, then those of the batch."""
    sizes: dict[str, int] = {}
    inputs = [resolve_feed(graph, key) for key in signature.inputs.values()]
    for dim in {dim for tensor in inputs for dim in tensor.type.shape}:
        stands = as_symbol(graph.constraints.find(dim))
        if stands is not None and str(dim) in signature.sizes:
            sizes[stands] = signature.sizes[str(dim)]
    for tensor, value in batch.items():
        for dim, size in zip(tensor.type.shape, value.shape, strict=False):
            stands = as_symbol(graph.constraints.find(dim))
            if stands is not None:
                sizes.setdefault(stands, size)
    return sizes


def _numbers(rng: np.random.Generator, tensor: Tensor, shape: tuple[int, ...]) -> Array:
    dtype = tensor.type.dtype
    if is_floating(dtype):
        return rng.normal(size=shape).astype(dtype)
    if dtype == np.bool_ or is_integer(dtype):  # perhaps an index: 0 is valid for any table
        return np.zeros(shape, dtype)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


# -- both sides -----------------------------------------------------------------------------


def _run_here(
    session: Session, signature: Signature, inputs: Mapping[str, Array]
) -> tuple[dict[str, Array], list[float]]:
    """The outputs of one run from the session's state, and the times of several runs."""
    graph = session.graph
    feeds = {resolve_feed(graph, signature.inputs[name]): v for name, v in inputs.items()}
    fetches = [list(signature.outputs.values()), list(signature.updates)]
    shapes = {tensor: value.shape for tensor, value in feeds.items()}
    strategy = session.strategy if signature.replicated else None
    step = compile(graph, fetches, shapes, strategy=strategy, options=session.options)
    (values, _), state = step(session.state(), feeds)
    outputs = {n: np.asarray(v) for n, v in zip(signature.outputs, values, strict=True)}

    def again() -> Any:
        nonlocal state
        (fetched, _), state = step(state, feeds)
        return fetched or next(iter(state.values()), None)

    return outputs, timed(again)


def _run_there(
    path: str, inputs: Mapping[str, Mapping[str, Array]]
) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
    """The outputs of the file in a new process, and the facts that this process reports."""
    with tempfile.TemporaryDirectory() as folder:
        for name, values in inputs.items():
            write_arrays(Path(folder, f"{name}.in.npz"), list(values.values()))
        command = [sys.executable, "-m", "graphc.cli.validate_process", path, folder]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise ExecutionError(
                f"{path!r} was written, and cannot be run in a new process",
                details=done.stderr.strip().splitlines()[-5:],
            )
        facts = json.loads(Path(folder, "facts.json").read_text())
        outputs = {}
        for name in inputs:
            with np.load(Path(folder, f"{name}.out.npz")) as found:
                names = facts["signatures"][name]["outputs"]
                outputs[name] = {n: found[f"{i}"] for i, n in enumerate(names)}
        return outputs, facts
