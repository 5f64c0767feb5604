"""`graphc devices`: the devices of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax

from graphc.cli.report import amount, print_result, table
from graphc.devices.attached import attached_machine
from graphc.devices.discovery import available
from graphc.errors import GraphcError


def run(options: argparse.Namespace) -> None:
    """Lists the devices, JAX's default device first; or describes the GPUs among them."""
    if options.describe is not None:
        _describe(options.describe, options.json)
        return
    rows = [_facts(name, device) for name, device in available().items()]
    lines = table([(row["name"], row["kind"], _memory(row)) for row in rows])
    print_result({"jax": jax.__version__, "devices": rows}, lines, as_json=options.json)


def _describe(path: str, as_json: bool) -> None:
    """Writes a file that `gc.devices.Machine` reads."""
    machine = attached_machine()
    try:
        Path(path).write_text(machine.to_toml(), encoding="utf-8")
    except OSError as error:
        raise GraphcError(f"cannot write {path!r}: {error.strerror}") from error
    facts = {"file": path, "machine": str(machine)}
    print_result(facts, [f"{path}: {machine}"], as_json=as_json)


def _facts(name: str, device: jax.Device) -> dict[str, Any]:
    memory = (device.memory_stats() or {}).get("bytes_limit")
    return {
        "name": name,
        "platform": device.platform,
        "kind": device.device_kind,
        "memory_bytes": memory,
    }


def _memory(row: dict[str, Any]) -> str:
    return "" if row["memory_bytes"] is None else amount(row["memory_bytes"], "B")
