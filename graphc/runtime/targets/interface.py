"""`Interface`: everything that is needed to run a compiled program, as plain data.

An interface, the compiled program and the devices make an `Executor`. The graph and the program are
not needed, so the interface can be read from a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphc.errors import GraphError
from graphc.ir.dtypes import DType
from graphc.ir.sharding import Spec
from graphc.ir.types import TensorType, parse_type
from graphc.runtime.buffers.layout import Buffer

SINGLE, REPLICATED, PARTITIONED = "single", "replicated", "partitioned"
SHARDED = "sharded"


@dataclass(frozen=True)
class Home:
    """Where a buffer of state resides among the devices of a program.

    Attributes:
        device: the number of the device that has the buffer; None if all devices have it or a piece
            of it.
        spec: for each axis of the buffer, the mesh axes that it is split along. Axes beyond the end
            of `spec` are not split.
    """

    device: int | None = None
    spec: Spec = ()

    def to_json(self) -> dict[str, Any]:
        """The home as plain values."""
        return {"device": self.device, "spec": self.spec}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Home:
        """The home that `to_json` wrote."""
        return Home(data["device"], _spec(data["spec"]))


def _spec(data: Sequence[Any]) -> Spec:
    """A spec read from JSON, which has lists in place of tuples."""
    return tuple([tuple(entry) if isinstance(entry, list) else entry for entry in data])


@dataclass(frozen=True)
class Value:
    """A feed or a fetched value.

    Attributes:
        name: the user's name of the feed, for errors; the name of a fetch, for print-outs.
        type: dtype and global shape.
        axis: the axis of the rows, which is split over the replicas, or over a mesh as `spec` says;
            None if each replica has the whole value.
        spec: for each axis, the mesh axes that it is split along, if the value is on a mesh.
        device: the number of the device that uses it first, if the nodes are on several devices.
    """

    name: str
    type: TensorType
    axis: int | None = None
    spec: Spec = ()
    device: int = 0

    def to_json(self) -> dict[str, Any]:
        """The value as plain values."""
        return {**vars(self), "type": str(self.type)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Value:
        """The value that `to_json` wrote."""
        type, spec = parse_type(data["type"]), _spec(data["spec"])
        return Value(data["name"], type, data["axis"], spec, data["device"])


@dataclass(frozen=True)
class Interface:
    """The arguments and results of a compiled program, in its own order. The arguments are the
    state that it writes, the state that it only reads, and the feeds. The results are the state
    that it assigns and the fetched values, or a token if nothing is fetched.

    Attributes:
        name: the name of the program.
        kind: "single": on one device; "replicated": one replica on each of several devices;
            "partitioned": each of several devices has its own nodes; "sharded": one program over a
            mesh of devices.
        replicas: the number of devices that it runs on.
        wide: whether it has 64-bit values, so that JAX must enable them.
        donate: whether the buffers in `written` are donated.
        written: buffers of state that it takes and assigns.
        read: buffers that it only takes.
        assigned: buffers that it returns; those of `written` come first, in the same order.
        feeds, fetches: the values that the caller passes and receives.
        nodes: the number of its nodes, for print-outs.
        notes: the parts of the request that could not be followed, one line each.
        checks: if numerics are checked, the table of the nodes that the last fetched value refers
            to (see `passes.check_numerics`); otherwise None.
        homes: the home of each of `buffers`, in their order. If it is empty, each buffer is on the
            one device, or whole on each of several devices.
        mesh: the axes of the mesh with their sizes; empty without a mesh.
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
        """All buffers of state that it uses, each once."""
        return tuple(dict.fromkeys((*self.written, *self.read, *self.assigned)))

    @property
    def argument_dtypes(self) -> list[DType]:
        """The dtypes of all arguments, in order."""
        state = [buffer.type.dtype for buffer in (*self.written, *self.read)]
        return state + [feed.type.dtype for feed in self.feeds]

    @property
    def consumes(self) -> bool:
        """Whether a run consumes the state that it is given."""
        return self.donate and bool(self.written)

    @property
    def arguments(self) -> int:
        """The number of arrays that the compiled program takes."""
        return len(self.written) + len(self.read) + len(self.feeds)

    @property
    def results(self) -> int:
        """The number of arrays that the compiled program returns."""
        return len(self.assigned) + (len(self.fetches) or 1)

    def to_json(self) -> dict[str, Any]:
        """The interface as plain values, which `from_json` reads."""
        records = ("written", "read", "assigned", "feeds", "fetches", "homes")
        listed = {name: [each.to_json() for each in getattr(self, name)] for name in records}
        return {**vars(self), **listed}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Interface:
        """The interface that `to_json` wrote.

        Raises:
            GraphError: `to_json` did not write this data.
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
            raise GraphError(f"this is not the interface of a program: {error}") from error
