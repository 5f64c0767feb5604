"""The content of an artifact: versions, platforms, signatures, the forms of their programs, and
variables. Nothing in it is run."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from graphc.artifacts.entry_point import EntryPoint
from graphc.artifacts.loading import load, read
from graphc.artifacts.manifest import Entry, Manifest, Value
from graphc.artifacts.stablehlo import deserialize
from graphc.artifacts.strings import with_strings
from graphc.artifacts.ways import GRAPH, NATIVE, STABLEHLO
from graphc.cli.report import amount, print_result, table
from graphc.errors import ArtifactVersionError, DeviceError, GraphcError
from graphc.ir.types import TensorType, shown_types
from graphc.runtime.buffers.layout import public_names
from graphc.untrusted.safe_reading import UnreadableError, read_program


def show_artifact(options: argparse.Namespace) -> None:
    """Prints a summary, and with `--stablehlo` the programs.

    Raises:
        GraphcError: a part was requested that only a script has.
        ArtifactError: the file is not an artifact, or is incomplete.
    """
    for part in ("graph", "passes", "before", "after", "cost", "fetch", "feed"):
        if getattr(options, part):
            raise GraphcError(
                f"--{part} needs a script: an artifact holds programs, not the graph they are of",
                hint="give a .py file, or use --stablehlo",
            )
    manifest, members = read(options.target)
    for name in members:
        members.check(name)
    facts = _facts(options.target, manifest, {name: members.size(name) for name in members})
    texts = _text(manifest, facts)
    if options.stablehlo:
        programs = {
            name: _stablehlo(name, members[entry.stablehlo], members.digest(entry.stablehlo))
            for name, entry in manifest.signatures.items()
        }
        facts["stablehlo"] = programs
        texts = [f"// signature {name}\n{text}" for name, text in programs.items()]
    print_result(facts, texts, as_json=options.json)


def _stablehlo(name: str, data: memoryview, digest: str) -> str:
    try:
        read_program(data, digest)
        return str(deserialize(data).mlir_module())
    except UnreadableError as error:
        raise ArtifactVersionError(
            f"the StableHLO of {name!r} cannot be read here", details=[str(error)]
        ) from error


def _facts(path: str, manifest: Manifest, sizes: dict[str, int]) -> dict[str, Any]:
    ways = _ways(path, manifest)
    signatures = {
        name: {
            "inputs": _types(entry, entry.inputs),
            "outputs": _types(entry, [o.value for o in entry.outputs]),
            "updates": public_names(dict.fromkeys(entry.assigned)),
            "random": len(public_names(dict.fromkeys(entry.assigned))) < len(entry.assigned),
            "devices": entry.devices,
            "buckets": dict(entry.buckets),
            "examples": _examples(entry),
            "forms": {form: sizes[member] for form, member in _forms(entry).items()},
            **ways[name],
        }
        for name, entry in manifest.signatures.items()
    }
    rows = {row.value.name: row for row in manifest.variables}
    return {
        "file": path,
        "bytes": Path(path).stat().st_size,
        "graph": manifest.graph,
        "graphc": manifest.graphc,
        "jax": manifest.jax,
        "platforms": list(manifest.platforms),
        "signatures": signatures,
        "variables": {
            name: {"type": str(rows[name].value.type), "bytes": rows[name].bytes}
            for name in public_names(rows)
        },
    }


def _types(entry: Entry, values: Iterable[Value]) -> dict[str, str]:
    types = with_strings({value.name: value.type for value in values}, entry)
    return {name: str(type) for name, type in types.items()}


def _forms(entry: Entry) -> dict[str, str]:
    """The forms of a program in the file, and their members."""
    native = {} if entry.native is None else {NATIVE: entry.native.member}
    graph = {} if entry.graph is None else {GRAPH: entry.graph}
    return {**native, STABLEHLO: entry.stablehlo, **graph}


def _ways(path: str, manifest: Manifest) -> dict[str, dict[str, Any]]:
    """For each program, the form that `gc.load` would choose here, and why it would not choose
    earlier ones."""
    try:
        return {name: _way(point) for name, point in load(path).signatures.items()}
    except ArtifactVersionError as error:  # the file has no form for the devices of this machine
        none = {"runs_as": None, "notes": [error.what]}
        return dict.fromkeys(manifest.signatures, none)


def _way(point: EntryPoint) -> dict[str, Any]:
    try:
        way: str | None = point.way
        why = point.notes
    except (ArtifactVersionError, DeviceError) as error:
        way, why = None, [error.what]
    return {"runs_as": way, "notes": why}


def _text(manifest: Manifest, facts: dict[str, Any]) -> list[str]:
    variables = facts["variables"]
    signatures = [
        (_signature(name, entry), _effect(facts["signatures"][name]))
        for name, entry in manifest.signatures.items()
    ]
    programs = [
        (name, _program(facts["signatures"][name]), _reason(facts["signatures"][name]))
        for name in manifest.signatures
    ]
    size = amount(sum(row["bytes"] for row in variables.values()), "B")
    return [
        f"{facts['file']}: {manifest.graph}, {amount(facts['bytes'], 'B')}",
        *table(
            [
                ("written by", f"graphc {manifest.graphc}, jax {manifest.jax}"),
                ("platforms", ", ".join(manifest.platforms)),
            ]
        ),
        "signatures",
        *table(signatures),
        "programs",
        *table(programs),
        *_example_lines(facts["signatures"]),
        f"variables ({len(variables)}, {size})",
        *table([(name, row["type"]) for name, row in variables.items()]),
    ]


def _signature(name: str, entry: Entry) -> str:
    inputs = with_strings({value.name: value.type for value in entry.inputs}, entry)
    outputs = with_strings({o.value.name: o.value.type for o in entry.outputs}, entry)
    takes = _listed(shown_types(inputs))
    gives = _listed(shown_types(outputs, inputs))
    return f"{name}({takes}) -> {gives or 'nothing'}"


def _listed(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {type}" for name, type in types.items())


def _examples(entry: Entry) -> list[dict[str, str]]:
    """For each example the types of its arrays."""
    return [
        {
            value.name: str(TensorType(value.type.dtype, shape))
            for value, shape in zip(entry.inputs, shapes, strict=True)
        }
        for shapes in (entry.examples.shapes if entry.examples is not None else ())
    ]


def _example_lines(signatures: dict[str, Any]) -> list[str]:
    rows = [
        (name, _listed(example)) for name, of in signatures.items() for example in of["examples"]
    ]
    return ["examples", *table(rows)] if rows else []


def _program(facts: dict[str, Any]) -> str:
    forms = [f"{form} {amount(size, 'B')}" for form, size in facts["forms"].items()]
    count: int = facts["devices"]
    return ", ".join([*forms, *([f"for {count} devices"] if count > 1 else [])])


def _reason(facts: dict[str, Any]) -> str:
    runs = "cannot run here" if facts["runs_as"] is None else f"here: {facts['runs_as']}"
    return runs + "".join(f" ({note})" for note in facts["notes"])


def _effect(facts: dict[str, Any]) -> str:
    effects = [f"updates {len(facts['updates'])} variables"] if facts["updates"] else []
    effects += ["draws random numbers"] * facts["random"]
    effects += [
        f"buckets of {name}: {', '.join(map(str, row))}" for name, row in facts["buckets"].items()
    ]
    return ", ".join(effects)
