"""The placer: which device a program runs on, given those that its nodes ask for."""

from __future__ import annotations

from typing import NamedTuple

import jax

from graphc.devices.discovery import find_devices, name_of, no_such_device
from graphc.errors import DeviceError
from graphc.ir.node import Node
from graphc.ir.program import Program


class Placement(NamedTuple):
    """Where a program runs, and what of the requests could not be followed."""

    device: jax.Device
    notes: list[str]


def place(program: Program, *, soft: bool = True) -> Placement:
    """The one device for the whole program.

    It is a device that every request in the program allows, JAX's default one if that is among
    them. A request for a device that is not there, or requests for different ones, are
    overridden with a note.

    Args:
        soft: whether requests may be overridden at all.

    Raises:
        DeviceError: a name does not parse; or a request must be overridden and `soft` is False.
    """
    default = jax.local_devices()[0]
    requests: dict[str, Node] = {}
    for node in program.walk():
        if node.device:
            requests.setdefault(node.device, node)
    if not requests:
        return Placement(default, [])
    notes = []
    allowed: list[jax.Device] | None = None
    for name, node in requests.items():
        matches = find_devices(name)
        if matches:
            allowed = [d for d in matches if allowed is None or d in allowed]
        elif soft:
            notes.append(f"no device {name} for {_described(node)}: it runs on another")
        else:
            error = no_such_device(name, f" for {_described(node)}")
            error.source = node.source
            raise error
    if allowed is not None and not allowed:
        asked = ", ".join(requests)
        if not soft:
            raise DeviceError(
                f"{program.name}: its nodes ask for different devices: {asked}",
                source=next(iter(requests.values())).source,
                mend="name one device for the whole program",
            )
        notes.append(f"nodes ask for different devices ({asked}): all run on {name_of(default)}")
    if not allowed or default in allowed:
        return Placement(default, notes)
    return Placement(allowed[0], notes)


def _described(node: Node) -> str:
    where = f" at {node.source}" if node.source is not None else ""
    name = f" {node.name!r}" if node.name else ""
    return f"{node.op.name}{name}{where}"
