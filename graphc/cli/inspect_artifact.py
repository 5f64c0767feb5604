"""What is in an artifact: versions, platforms, signatures, variables; nothing of it is run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from graphc.artifacts.entry_point import deserialize
from graphc.artifacts.loading import read
from graphc.artifacts.manifest import Entry, Manifest
from graphc.cli.report import amount, print_json, table
from graphc.errors import GraphcError
from graphc.runtime.state import public_names


def show_artifact(options: argparse.Namespace) -> None:
    """Prints a summary, and with `--stablehlo` the programs.

    Raises:
        GraphcError: what only a script has was asked for.
        ArtifactError: no artifact, or not a whole one.
    """
    for part in ("graph", "passes", "cost", "fetch", "feed"):
        if getattr(options, part):
            raise GraphcError(
                f"--{part} needs a script: an artifact holds StableHLO, not the graph",
                mend="give a .py file, or use --stablehlo",
            )
    manifest, members = read(options.target)
    facts = _facts(options.target, manifest, {n: len(data) for n, data in members.items()})
    texts = _text(manifest, facts)
    if options.stablehlo:
        programs = {
            name: str(deserialize(name, members[entry.program], manifest.jax).mlir_module())
            for name, entry in manifest.signatures.items()
        }
        facts["stablehlo"] = programs
        texts = [f"// signature {name}\n{text}" for name, text in programs.items()]
    if options.json:
        print_json(facts)
    else:
        print("\n".join(texts))


def _facts(path: str, manifest: Manifest, sizes: dict[str, int]) -> dict[str, Any]:
    signatures = {
        name: {
            "inputs": {value.name: str(value.type) for value in entry.inputs},
            "outputs": {o.value.name: str(o.value.type) for o in entry.outputs},
            "updates": public_names(dict.fromkeys(entry.assigned)),
            "random": len(public_names(dict.fromkeys(entry.assigned))) < len(entry.assigned),
            "bytes": sizes[entry.program],
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


def _text(manifest: Manifest, facts: dict[str, Any]) -> list[str]:
    variables = facts["variables"]
    signatures = [
        (_signature(name, entry), _effect(facts["signatures"][name]))
        for name, entry in manifest.signatures.items()
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
        f"variables ({len(variables)}, {size})",
        *table([(name, row["type"]) for name, row in variables.items()]),
    ]


def _signature(name: str, entry: Entry) -> str:
    takes = ", ".join(map(str, entry.inputs))
    gives = ", ".join(str(output.value) for output in entry.outputs)
    return f"{name}({takes}) -> {gives or 'nothing'}"


def _effect(facts: dict[str, Any]) -> str:
    effects = [f"updates {len(facts['updates'])} variables"] if facts["updates"] else []
    return ", ".join(effects + ["draws random numbers"] * facts["random"])
