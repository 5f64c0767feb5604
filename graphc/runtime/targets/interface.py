"""`Interface`: everything that running a compiled program needs to know of it, as plain data.

With the compiled program and the devices it makes an `Executor`; nothing of the graph or of the
program is needed for that, so it can be read from a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphc.errors import GraphError
from graphc.ir.sharding import Spec
from graphc.ir.types import TensorType, parse_type
from graphc.runtime.buffers.layout import Buffer

SINGLE, REPLICATED, PARTITIONED = "single", "replicated", "partitioned"
SHARDED = "sharded"


@dataclass(frozen=True)
class Home:
    """Where a buffer of state lies, of the devices that a program runs on.

    Attributes:
        device: the number of the one that has it; None: all have it, or a piece of it.
        spec: what each of its axes is cut along, of the axes of the devices' mesh; shorter than
            its rank: the rest is whole.
    """

    device: int | None = None
    spec: Spec = ()

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"device": self.device, "spec": self.spec}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Home:
        """The home that `to_json` wrote."""
        return Home(data["device"], _spec(data["spec"]))


def _spec(data: Sequence[Any]) -> Spec:
    """What JSON made lists of."""
    return tuple([tuple(entry) if isinstance(entry, list) else entry for entry in data])


@dataclass(frozen=True)
class Value:
    """A feed or a fetched value.

    Attributes:
        name: of the feed as users know it, for errors; of a fetch, for print-outs.
        type: dtype and global shape.
        axis: what the replicas share it along; None where each has the whole.
        spec: what its axes are cut along, where it lies on a mesh.
        device: the number of the device that takes it first, where each has nodes of its own.
    """

    name: str
    type: TensorType
    axis: int | None = None
    spec: Spec = ()
    device: int = 0

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "type": str(self.type),
            "axis": self.axis,
            "spec": self.spec,
            "device": self.device,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Value:
        """The value that `to_json` wrote."""
        type, spec = parse_type(data["type"]), _spec(data["spec"])
        return Value(data["name"], type, data["axis"], spec, data["device"])


@dataclass(frozen=True)
class Interface:
    """What a compiled program takes and gives, in its own order: the state that it writes, the
    state it reads, feeds; and the state it assigns, the fetched values, a token if there are none.

    Attributes:
        name: of the program.
        kind: "single": on one device; "replicated": one replica on each of several;
            "partitioned": each of several has nodes of its own; "sharded": one program over a
            mesh of them.
        replicas: how many devices it runs on.
        wide: whether it holds 64-bit values, so that JAX must be told.
        donate: whether the buffers in `written` are given away.
        written: buffers of state that it takes and assigns.
        read: buffers that it takes only.
        assigned: buffers that it gives: those of `written` first, in the same order.
        feeds, fetches: the values from and for the caller.
        nodes: how many nodes it has, for print-outs.
        notes: what could not be done as asked, one line each.
        checks: what stands at the places of which the last fetched value speaks, where numerics
            are checked (see `passes.check_numerics`); None where they are not.
        homes: where each of `buffers` lies, in their order; none given: on the one device, or
            whole on each of several.
        mesh: the axes of the mesh with their sizes; none elsewhere.
    """

    name: str
    kind: str
    replicas: int
    wide: bool
    donate: bool
    written: tuple[Buffer, ...]
    read: tuple[Buffer, ...]
    assigned: tuple[Buffer, ...]
    feeds: tuple[Value, ...]
    fetches: tuple[Value, ...]
    nodes: int = 0
    notes: tuple[str, ...] = ()
    checks: Mapping[str, Any] | None = None
    homes: tuple[Home, ...] = ()
    mesh: tuple[tuple[str, int], ...] = ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers of state that it touches, each once."""
        return tuple(dict.fromkeys((*self.written, *self.read, *self.assigned)))

    @property
    def consumes(self) -> bool:
        """Whether a run takes away the state it is given."""
        return self.donate and bool(self.written)

    @property
    def arguments(self) -> int:
        """How many arrays the compiled program takes."""
        return len(self.written) + len(self.read) + len(self.feeds)

    @property
    def results(self) -> int:
        """How many it gives."""
        return len(self.assigned) + (len(self.fetches) or 1)

    def to_json(self) -> dict[str, Any]:
        """As plain values, which `from_json` reads back."""
        return {
            "name": self.name,
            "kind": self.kind,
            "replicas": self.replicas,
            "wide": self.wide,
            "donate": self.donate,
            "written": [buffer.to_json() for buffer in self.written],
            "read": [buffer.to_json() for buffer in self.read],
            "assigned": [buffer.to_json() for buffer in self.assigned],
            "feeds": [value.to_json() for value in self.feeds],
            "fetches": [value.to_json() for value in self.fetches],
            "nodes": self.nodes,
            "notes": list(self.notes),
            "checks": self.checks,
            "homes": [home.to_json() for home in self.homes],
            "mesh": self.mesh,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Interface:
        """The interface that `to_json` wrote.

        Raises:
            GraphError: it did not write this.
        """
        try:
            buffers: dict[str, Any] = {
                row: tuple(Buffer.from_json(buffer) for buffer in data[row])
                for row in ("written", "read", "assigned")
            }
            values: dict[str, Any] = {
                row: tuple(Value.from_json(value) for value in data[row])
                for row in ("feeds", "fetches")
            }
            plain = {
                name: data[name] for name in ("name", "kind", "replicas", "wide", "donate", "nodes")
            }
            notes, checks = tuple(data["notes"]), data.get("checks")
            homes = tuple(Home.from_json(home) for home in data["homes"])
            more: dict[str, Any] = {"notes": notes, "checks": checks, "homes": homes}
            mesh = tuple([(str(name), int(size)) for name, size in data["mesh"]])
            return Interface(**plain, **buffers, **values, **more, mesh=mesh)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise GraphError(f"this is no interface of a program: {error}") from error
