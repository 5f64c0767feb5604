"""`graphc import`: a model of another framework as an artifact."""

from __future__ import annotations

import argparse
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.artifacts.vocabulary import STRING
from graphc.cli.report import check_writable, table
from graphc.cli.timing import latency, timed
from graphc.cli.validate import compare_arrays, error_table, print_compared
from graphc.errors import GraphcError
from graphc.importers.artifacts import PREDICT, save_model
from graphc.importers.core.model import ImportedModel
from graphc.importers.core.model_graph import ModelGraph
from graphc.importers.files import Format, format_of, import_model
from graphc.importers.originals import original_of, random_inputs
from graphc.ir.node import Tensor
from graphc.runtime.session import Session


def run(options: argparse.Namespace) -> None:
    """Imports, saves, and validates if requested.

    Raises:
        SystemExit: code 1, if the results differ from those of the other framework.
    """
    if options.tolerance is not None and not options.validate:
        raise GraphcError("--tolerance is for --validate", hint="add --validate")
    target = options.output or f"{Path(options.file).resolve().stem}.gcx"
    check_writable(target)
    kind = format_of(options.file)
    model = import_model(options.file, **_options(options))
    made = save_model(model, target, options.platforms)
    facts = _facts(made, kind, target)
    if options.validate:
        facts["validation"] = _validated(model, made, kind, options)
    print_compared("import", options.file, facts, _text(facts), options.json)


def _options(options: argparse.Namespace) -> dict[str, Any]:
    """The options of the importer that were given."""
    given: dict[str, Any] = {"sizes": dict(options.size)}
    if options.trainable is not None:
        words = {"all": True, "none": False}
        given["trainable"] = words.get(options.trainable, options.trainable.split(","))
    if options.results:
        given["outputs"] = options.results
    if options.signature is not None:
        given["signature"] = options.signature
    return given


def _facts(made: ModelGraph, kind: Format, target: str) -> dict[str, Any]:
    variables = made.graph.variables.values()
    return {
        "artifact": target,
        "format": kind.name,
        "nodes": len(made.graph.nodes),
        "inputs": _types(made.inputs, made.input_vocabularies),
        "outputs": _types(made.outputs, made.output_vocabularies),
        "variables": len(variables),
        "trainable": sum(v.trainable for v in variables),
        "bytes": Path(target).stat().st_size,
        "signature": PREDICT,
    }


def _types(tensors: Mapping[str, Tensor], strings: Container[str]) -> dict[str, str]:
    """The types in the artifact."""
    types = {
        name: tensor.type._replace(dtype=STRING) if name in strings else tensor.type
        for name, tensor in tensors.items()
    }
    return {name: str(type) for name, type in types.items()}


def _validated(
    model: ImportedModel, made: ModelGraph, kind: Format, options: argparse.Namespace
) -> dict[str, Any]:
    """Both sides run on the same inputs: errors and latencies."""
    sizes = dict(options.size)
    inputs = random_inputs(model, sizes)
    against, original = original_of(options.file, kind, model, sizes)
    wanted = original(inputs)
    session = Session(made.graph)
    fetches = list(made.outputs.values())
    feeds = dict(zip(made.inputs.values(), inputs.values(), strict=True))
    got = [np.asarray(value) for value in session.run(fetches, feeds)]
    return {
        "against": against,
        "inputs": {name: f"{value.dtype}{list(value.shape)}" for name, value in inputs.items()},
        "outputs": {
            name: compare_arrays(np.asarray(a), b, options.tolerance)
            for name, a, b in zip(made.outputs, wanted, got, strict=True)
        },
        "latency_ms": {
            "original": latency(timed(lambda: original(inputs))),
            "graphc": latency(timed(lambda: session.run(fetches, feeds))),
        },
    }


def _text(facts: dict[str, Any]) -> list[str]:
    lines = [
        f"saved {facts['artifact']}: {facts['format']}, {facts['nodes']} nodes, "
        f"{facts['variables']} variables ({facts['trainable']} trainable)",
        *table([*(("input", *row) for row in facts["inputs"].items())]),
        *table([*(("output", *row) for row in facts["outputs"].items())]),
    ]
    found = facts.get("validation")
    if found is not None:
        ms = found["latency_ms"]
        lines.append(
            f"against {found['against']}: p50 {ms['original']['p50']:.3g} ms there, "
            f"{ms['graphc']['p50']:.3g} ms here"
        )
        lines += error_table(found["outputs"])
    return lines
