"""The log of placements: the devices there are, and where each node and variable is."""

from __future__ import annotations

from collections.abc import Iterator

from graphc.devices.discovery import available, name_of
from graphc.devices.machine import Machine
from graphc.devices.placer import MARKS, Row, full_name
from graphc.devices.topology import devices_by_name
from graphc.runtime.pipeline.compilation import Compilation


class PlacementLog:
    """Prints to standard output: first the devices, then a line for each node and variable when a
    program with it is compiled or found in the cache; each line once.

    Args:
        machine: the one that programs are compiled for, where that is not this one.
    """

    def __init__(self, machine: Machine | None = None) -> None:
        self._seen: dict[str, None] = {}
        print("\n".join(device_lines(machine)), flush=True)

    def add(self, compilation: Compilation) -> None:
        """What is not printed yet of a program that was made."""
        new = [line for line in placement_lines(compilation) if line not in self._seen]
        self._seen.update(dict.fromkeys(new))
        if new:
            print("\n".join(new), flush=True)


def device_lines(machine: Machine | None = None) -> list[str]:
    """The devices of this process, or of a machine, by their full names, with what they are."""
    known = available() if machine is None else devices_by_name(machine)
    rows = [f"{full_name(name)} -> {d.device_kind}, id {d.id}" for name, d in known.items()]
    return ["Devices:", *rows]


def placement_lines(compilation: Compilation) -> Iterator[str]:
    """`name: (Operator) device`, several devices where each has a copy; and the notes."""
    for row in placement_rows(compilation):
        places = ", ".join(map(full_name, row.devices))
        yield f"{row.name}: ({row.op}) {places}"
    for note in compilation.notes:
        yield f"note: {note}"


def placement_rows(compilation: Compilation) -> list[Row]:
    """Variables, what is fed, then nodes in program order, with their devices."""
    if compilation.placement is not None:
        return compilation.placement.rows()
    names = tuple(map(name_of, compilation.devices))
    program = compilation.prepared.functional
    ports = dict.fromkeys(p.name for p in (*program.ports("state"), *program.new_state()))
    rows = [Row(name, "Variable", names) for name in ports if not name.startswith("__")]
    rows += [Row(port.name, "Placeholder", names) for port in program.ports("feed")]
    nodes = [node for node in program.nodes if node.name and node.op not in MARKS]
    return rows + [Row(node.name, node.op.name, names) for node in nodes]
