"""`graphc devices`: the devices of this machine."""

from __future__ import annotations

import argparse
from typing import Any

import jax

from graphc.cli.report import amount, print_json, table
from graphc.devices.discovery import available


def run(options: argparse.Namespace) -> None:
    """Lists them, JAX's default one first."""
    rows = [_facts(name, device) for name, device in available().items()]
    if options.json:
        print_json({"jax": jax.__version__, "devices": rows})
        return
    print("\n".join(table([(row["name"], row["kind"], _memory(row)) for row in rows])))


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
