"""The placement log: the known devices, and the device of each node and variable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphc.devices.discovery import available, name_of
from graphc.devices.machine import Machine
from graphc.devices.placed_nodes import MARKS
from graphc.devices.placer import Row, full_name
from graphc.devices.topology import devices_by_name
from graphc.runtime.pipeline.compilation import Compilation


class PlacementLog:
    """Prints to standard output. The devices come first. When a program is compiled or found in
    the cache, a line is printed for each of its nodes and variables. Each line is printed once.

    Args:
        machine: the machine that programs are compiled for, if it is not this one.
    """

    def __init__(self, machine: Machine | None = None) -> None:
        self._seen: dict[str, None] = {}
        print("\n".join(device_lines(machine)), flush=True)

    def add(self, compilation: Compilation) -> None:
        """Prints the lines of a program that are not printed yet."""
        new = [line for line in placement_lines(compilation) if line not in self._seen]
        self._seen.update(dict.fromkeys(new))
        if new:
            print("\n".join(new), flush=True)


def device_lines(machine: Machine | None = None) -> list[str]:
    """The devices of this process, or of a machine: their full names, kinds and ids."""
    known = available() if machine is None else devices_by_name(machine)
    rows = [f"{full_name(name)} -> {d.device_kind}, id {d.id}" for name, d in known.items()]
    return ["Devices:", *rows]


def placement_lines(compilation: Compilation) -> Iterator[str]:
    """Lines `name: (Operator) device`, then the notes. There are several devices in a line if each
    has a copy."""
    return lines_of(placement_rows(compilation), compilation.notes)


def lines_of(rows: Iterable[Row], notes: Iterable[str]) -> Iterator[str]:
    """The lines of rows and notes."""
    for row in rows:
        places = ", ".join(map(full_name, row.devices))
        yield f"{row.name}: ({row.op}) {places}"
    for note in notes:
        yield f"note: {note}"


def placement_rows(compilation: Compilation) -> list[Row]:
    """Variables, feeds, and nodes in program order, with their devices."""
    if compilation.placement is not None:
        return compilation.placement.rows()
    names = tuple(map(name_of, compilation.devices))
    program = compilation.prepared.functional
    ports = dict.fromkeys(p.name for p in (*program.ports("state"), *program.new_state()))
    rows = [Row(name, "Variable", names) for name in ports if not name.startswith("__")]
    rows += [Row(port.name, "Placeholder", names) for port in program.ports("feed")]
    nodes = [node for node in program.nodes if node.name and node.op not in MARKS]
    return rows + [Row(node.name, node.op.name, names) for node in nodes]
