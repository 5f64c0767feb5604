"""What an artifact says of itself: typed records, written as JSON and read back distrustfully.

The checksums find accidents. That a manifest makes sense is checked here all the same, since
anybody may write one whose checksums fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from graphc.errors import ArtifactCorruptError, GraphcError
from graphc.ir.dims import DimExpr, parse_dim
from graphc.ir.dtypes import BY_SHORT, short_name
from graphc.ir.types import TensorType

_MAX_SIZE = 2**63 - 1
_MAX_DIM_TEXT = 1000  # far beyond any dim that is meant; products of long sums take time


def corrupt(where: str, must: str) -> ArtifactCorruptError:
    """The error for a part of an artifact that is not as it must be."""
    return ArtifactCorruptError(
        f"the artifact does not make sense: {where} must {must}", mend="save it again"
    )


@dataclass(frozen=True)
class Value:
    """A named value and its type; sizes that are open stand by name."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    def to_json(self) -> dict[str, Any]:
        shape = [dim if isinstance(dim, int) else str(dim) for dim in self.type.shape]
        return {"name": self.name, "dtype": short_name(self.type.dtype), "shape": shape}


@dataclass(frozen=True)
class VariableRow:
    """A variable, and the name of its bytes among the weights."""

    value: Value
    key: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim for dim in self.value.type.shape if isinstance(dim, int))  # all are

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.value.type.dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        return {**self.value.to_json(), "key": self.key}


@dataclass(frozen=True)
class Output:
    """A result, and its place among the fetches of the program."""

    value: Value
    index: int

    def to_json(self) -> dict[str, Any]:
        return {**self.value.to_json(), "index": self.index}


@dataclass(frozen=True)
class Entry:
    """One entry point.

    Attributes:
        program: the member that holds its StableHLO. It takes the variables `written` (donated)
            and `read`, then `inputs`; it gives the new values of `assigned`, those of `written`
            first, then its fetches.
        fetches: how many there are.
        wide: whether it holds 64-bit values, so that JAX must be told.
    """

    program: str
    inputs: tuple[Value, ...]
    outputs: tuple[Output, ...]
    written: tuple[str, ...]
    read: tuple[str, ...]
    assigned: tuple[str, ...]
    fetches: int
    wide: bool

    def to_json(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        rows = {
            "inputs": [value.to_json() for value in self.inputs],
            "outputs": [output.to_json() for output in self.outputs],
        }
        return plain | rows


@dataclass(frozen=True)
class Manifest:
    """Everything an artifact says of itself.

    Attributes:
        graphc, jax: the versions that wrote it.
        graph: the name of the graph.
        platforms: those its programs were lowered for.
        variables: what its entry points read or assign, hidden state included.
        signatures: the entry points by name.
    """

    graphc: str
    jax: str
    graph: str
    platforms: tuple[str, ...]
    variables: tuple[VariableRow, ...]
    signatures: Mapping[str, Entry]

    def to_json(self) -> dict[str, Any]:
        return {
            "graphc": self.graphc,
            "jax": self.jax,
            "graph": self.graph,
            "platforms": list(self.platforms),
            "variables": [row.to_json() for row in self.variables],
            "signatures": {name: entry.to_json() for name, entry in self.signatures.items()},
        }


def parse_manifest(data: Mapping[str, Any], members: Sequence[str]) -> Manifest:
    """The records that JSON says; fields that are not known are passed over.

    Args:
        members: the names of the file's members.

    Raises:
        ArtifactCorruptError: a field is missing, of another type, or does not fit another.
    """
    variables = tuple(
        VariableRow(_value(row, where, fixed=True), _text(row, "key", where))
        for row, where in _rows(data, "variables", "variables")
    )
    known = [row.value.name for row in variables]
    if len(set(known)) != len(known):
        raise corrupt("variables", "have different names")
    signatures = _field(data, "signatures", "the manifest", dict)
    entries = {
        name: _entry(entry, f"signatures.{name}", known, members)
        for name, entry in signatures.items()
    }
    if not entries:
        raise corrupt("signatures", "hold one at least")
    platforms = _names(data, "platforms", "the manifest")
    texts = [_text(data, name, "the manifest") for name in ("graphc", "jax", "graph")]
    return Manifest(texts[0], texts[1], texts[2], platforms, variables, entries)


def _entry(data: Any, where: str, variables: Sequence[str], members: Sequence[str]) -> Entry:
    entry = Entry(
        program=_text(data, "program", where),
        inputs=tuple(_value(row, place) for row, place in _rows(data, "inputs", where)),
        outputs=tuple(
            Output(_value(row, place), _field(row, "index", place, int))
            for row, place in _rows(data, "outputs", where)
        ),
        written=_names(data, "written", where),
        read=_names(data, "read", where),
        assigned=_names(data, "assigned", where),
        fetches=_field(data, "fetches", where, int),
        wide=_field(data, "wide", where, bool),
    )
    if entry.program not in members:
        raise corrupt(f"{where}.program", f"name a member, got {entry.program!r}")
    for field in ("written", "read", "assigned"):
        for name in getattr(entry, field):
            if name not in variables:
                raise corrupt(f"{where}.{field}", f"name variables, got {name!r}")
    if set(entry.written) & set(entry.read):
        raise corrupt(f"{where}.read", "share no variable with written")
    if entry.assigned[: len(entry.written)] != entry.written:
        raise corrupt(f"{where}.assigned", "begin with what is written")
    for values in (entry.inputs, [output.value for output in entry.outputs]):
        if len({value.name for value in values}) != len(values):
            raise corrupt(where, "have different names for its inputs, and for its outputs")
    if not all(0 <= output.index < entry.fetches for output in entry.outputs):
        raise corrupt(f"{where}.outputs", f"have an index below {entry.fetches}")
    return entry


def _field(data: Any, name: str, where: str, kind: type) -> Any:
    value = data.get(name) if isinstance(data, dict) else None
    if type(value) is not kind:
        raise corrupt(f"{where}.{name}", f"be of type {kind.__name__}")
    return value


def _text(data: Any, name: str, where: str) -> str:
    return str(_field(data, name, where, str))


def _rows(data: Any, name: str, where: str) -> list[tuple[Any, str]]:
    rows = _field(data, name, where, list)
    return [(row, f"{where}.{name}[{i}]") for i, row in enumerate(rows)]


def _names(data: Any, name: str, where: str) -> tuple[str, ...]:
    names = _field(data, name, where, list)
    if not all(type(item) is str for item in names) or len(set(names)) != len(names):
        raise corrupt(f"{where}.{name}", "be a list of different names")
    return tuple(names)


def _value(row: Any, where: str, fixed: bool = False) -> Value:
    name, dtype = _text(row, "name", where), _text(row, "dtype", where)
    if dtype not in BY_SHORT:
        raise corrupt(f"{where}.dtype", f"be a dtype of graphc, got {dtype!r}")
    read: Callable[[Any], Any] = _size if fixed else _dim
    shape = [read(dim) for dim in _field(row, "shape", where, list)]
    if None in shape:
        raise corrupt(f"{where}.shape", f"be a list of sizes, got {str(row['shape'])[:80]}")
    if fixed and math.prod(max(dim, 1) for dim in shape) > _MAX_SIZE // 16:
        raise corrupt(f"{where}.shape", f"be of an array that fits into memory, got {shape}")
    return Value(name, TensorType(BY_SHORT[dtype], tuple(shape)))


def _size(dim: Any) -> int | None:
    return dim if type(dim) is int and 0 <= dim <= _MAX_SIZE else None


def _dim(dim: Any) -> Any:
    if type(dim) is not str:
        return _size(dim)
    try:
        parsed = parse_dim(dim[:_MAX_DIM_TEXT])
    except (GraphcError, RecursionError, ValueError):
        return None
    return parsed if isinstance(parsed, DimExpr) else _size(parsed)
