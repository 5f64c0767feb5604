"""Reads a manifest from an untrusted source.

Checksums detect accidental damage only. Anybody can write a manifest with correct checksums, so
this module also checks that the content is consistent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.artifacts.manifest import (
    Entry,
    Examples,
    Manifest,
    Native,
    Output,
    Value,
    VariableRow,
    VocabularyRow,
    corrupt,
)
from graphc.artifacts.vocabulary import misfit
from graphc.errors import GraphcError
from graphc.ir.dim_parser import parse_dim
from graphc.ir.dims import DimExpr
from graphc.ir.dtypes import BY_SHORT
from graphc.ir.types import TensorType
from graphc.untrusted.rules import MAX_BYTES

_MAX_RANK = 64  # the limit of NumPy
_MAX_DEVICES = 2**20
_MAX_DIM_TEXT = 1000  # far larger than any valid dim


def parse_manifest(data: Mapping[str, Any], members: Sequence[str]) -> Manifest:
    """The records in the JSON text. Unknown fields are ignored.

    Args:
        members: the names of the file's members.

    Raises:
        ArtifactCorruptError: a field is missing, has another type, or contradicts another field.
    """
    old = data.get("version") == 1
    variables = tuple(_variable(row, where, old) for row, where in _rows(data, "variables", ""))
    known = [row.value.name for row in variables]
    if len(set(known)) != len(known):
        raise corrupt("variables", "have different names")
    signatures = _field(data, "signatures", "the manifest", dict)
    entries = {
        name: _entry(entry, f"signatures.{name:.80}", known, members, old)
        for name, entry in signatures.items()
    }
    if not entries:
        raise corrupt("signatures", "hold at least one")
    platforms = _names(data, "platforms", "the manifest")
    texts = [_text(data, name, "the manifest") for name in ("graphc", "jax", "graph")]
    call = data.get("call")
    if not isinstance(call, dict | None):
        raise corrupt("call", "be an object")
    return Manifest(texts[0], texts[1], texts[2], platforms, variables, entries, call)


def _variable(row: Any, where: str, old: bool) -> VariableRow:
    found = VariableRow(_value(row, where, fixed=True), _text(row, "key", where))
    if old:
        return found
    offset = _field(row, "offset", where, int)
    if not 0 <= offset <= MAX_BYTES:
        raise corrupt(f"{where}.offset", f"be a place in the member, got {offset:.3g}")
    return VariableRow(found.value, found.key, offset, _text(row, "sha256", where))


def _entry(
    data: Any, where: str, variables: Sequence[str], members: Sequence[str], old: bool
) -> Entry:
    inputs = tuple(_value(row, place) for row, place in _rows(data, "inputs", where))
    entry = Entry(
        stablehlo=_text(data, "program" if old else "stablehlo", where),
        graph=None if old else _optional(data, "graph", where, str),
        native=None if old else _native(data, where),
        convention=None if old else _field(data, "convention", where, int),
        devices=1 if old else _field(data, "devices", where, int),
        splits=(None,) * len(inputs) if old else _splits(data, where, inputs),
        inputs=inputs,
        outputs=tuple(
            Output(_value(row, place), _field(row, "index", place, int))
            for row, place in _rows(data, "outputs", where)
        ),
        written=_names(data, "written", where),
        read=_names(data, "read", where),
        assigned=_names(data, "assigned", where),
        fetches=_field(data, "fetches", where, int),
        wide=_field(data, "wide", where, bool),
        memory_limit=_memory_limit(data, where),
        buckets=_buckets(data, where),
        examples=_examples(data, where, inputs),
        vocabularies=_vocabularies(data, where),
    )
    _check_entry(entry, where, variables, members)
    return entry


def _check_entry(
    entry: Entry, where: str, variables: Sequence[str], members: Sequence[str]
) -> None:
    native = entry.native.member if entry.native else None
    examples = entry.examples.member if entry.examples else None
    words = [row.member for row in entry.vocabularies.values()]
    for member in (entry.stablehlo, entry.graph, native, examples, *words):
        if member is not None and member not in members:
            raise corrupt(f"{where}: its parts", f"be members, got {member[:80]!r}")
    for field in ("written", "read", "assigned"):
        for name in getattr(entry, field):
            if name not in variables:
                raise corrupt(f"{where}.{field}", f"name variables, got {name[:80]!r}")
    if set(entry.written) & set(entry.read):
        raise corrupt(f"{where}.read", "share no variable with written")
    if entry.assigned[: len(entry.written)] != entry.written:
        raise corrupt(f"{where}.assigned", "begin with what is written")
    for values in (entry.inputs, [output.value for output in entry.outputs]):
        if len({value.name for value in values}) != len(values):
            raise corrupt(where, "have different names for its inputs, and for its outputs")
    if not all(0 <= output.index < entry.fetches for output in entry.outputs):
        raise corrupt(f"{where}.outputs", "have indices below the number of fetches")
    _check_vocabularies(entry, where)
    if not 1 <= entry.devices <= _MAX_DEVICES:
        raise corrupt(f"{where}.devices", "be a number of devices")


def _native(data: Any, where: str) -> Native | None:
    found = _optional(data, "native", where, dict)
    if found is None:
        return None
    environment = _field(found, "environment", f"{where}.native", dict)
    if not all(type(value) is str for value in environment.values()):
        raise corrupt(f"{where}.native.environment", "map names to texts")
    # A file of version 2 may have been written before targets were recorded.
    recorded = found.get("targets") is not None
    targets = _names(found, "targets", f"{where}.native") if recorded else None
    return Native(_text(found, "member", f"{where}.native"), environment, targets)


def _memory_limit(data: Any, where: str) -> int | None:
    if "memory_limit" not in data:  # a file of version 2 may be older than this field
        return None
    limit: int | None = _optional(data, "memory_limit", where, int)
    if limit is not None and limit < 1:
        raise corrupt(f"{where}.memory_limit", "be a number of bytes")
    return limit


def _buckets(data: Any, where: str) -> Mapping[str, tuple[int, ...]]:
    if "buckets" not in data:  # a file of version 2 may be older than this field
        return {}
    found = _field(data, "buckets", where, dict)
    for row in found.values():
        sizes = row if type(row) is list and row else [None]
        if any(not _size(size) for size in sizes) or sizes != sorted(set(sizes)):
            raise corrupt(f"{where}.buckets", "map names to increasing sizes")
    return {name: tuple(row) for name, row in found.items()}


def _examples(data: Any, where: str, inputs: Sequence[Value]) -> Examples | None:
    if "examples" not in data:  # likewise
        return None
    found = _optional(data, "examples", where, dict)
    if found is None:
        return None
    where = f"{where}.examples"
    rows = _field(found, "shapes", where, list)
    fits = all(
        type(shapes) is list
        and len(shapes) == len(inputs)
        and all(
            type(shape) is list and _fits(shape, value.type)
            for shape, value in zip(shapes, inputs, strict=True)
        )
        for shapes in rows
    )
    if not fits:
        raise corrupt(f"{where}.shapes", "give a shape of each input")
    shapes = tuple([tuple([tuple(shape) for shape in row]) for row in rows])
    return Examples(_text(found, "member", where), shapes)


def _vocabularies(data: Any, where: str) -> Mapping[str, VocabularyRow]:
    if "vocabularies" not in data:  # likewise
        return {}
    rows = _field(data, "vocabularies", where, dict)
    where = f"{where}.vocabularies"
    return {name: _vocabulary(row, f"{where}.{name:.80}") for name, row in rows.items()}


def _vocabulary(row: Any, where: str) -> VocabularyRow:
    count = _field(row, "count", where, int)
    if not 0 < count <= MAX_BYTES:
        raise corrupt(f"{where}.count", "be a number of words")
    return VocabularyRow(_text(row, "member", where), count, _optional(row, "default", where, int))


def _check_vocabularies(entry: Entry, where: str) -> None:
    inputs = {value.name: value.type for value in entry.inputs}
    outputs = {output.value.name: output.value.type for output in entry.outputs}
    for name, row in entry.vocabularies.items():
        types = [types[name] for types in (inputs, outputs) if name in types]
        if not types:
            raise corrupt(f"{where}.vocabularies", f"name inputs or outputs, got {name[:80]!r}")
        for type in types:
            problem = misfit(type, row.count, row.default, name in inputs, name in outputs)
            if problem is not None:
                raise corrupt(f"{where}.vocabularies.{name:.80}", f"fit: {problem}")


def _fits(shape: Sequence[Any], type: TensorType) -> bool:
    """Whether this is a shape of a value of the type."""
    return len(shape) == type.rank and all(
        _size(size) is not None and (isinstance(dim, DimExpr) or size == dim)
        for size, dim in zip(shape, type.shape, strict=True)
    )


def _splits(data: Any, where: str, inputs: Sequence[Value]) -> tuple[int | None, ...]:
    splits = _field(data, "splits", where, list)
    fits = len(splits) == len(inputs) and all(
        axis is None or (type(axis) is int and 0 <= axis < value.type.rank)
        for axis, value in zip(splits, inputs, strict=True)
    )
    if not fits:
        raise corrupt(f"{where}.splits", "give an axis, or null, of each input")
    return tuple(splits)


def _field(data: Any, name: str, where: str, kind: type) -> Any:
    value = data.get(name) if isinstance(data, dict) else None
    if type(value) is not kind:
        raise corrupt(f"{where}.{name}".lstrip("."), f"be of type {kind.__name__}")
    return value


def _optional(data: Any, name: str, where: str, kind: type) -> Any:
    if isinstance(data, dict) and name in data and data[name] is None:
        return None
    return _field(data, name, where, kind)


def _text(data: Any, name: str, where: str) -> str:
    return str(_field(data, name, where, str))


def _rows(data: Any, name: str, where: str) -> list[tuple[Any, str]]:
    rows = _field(data, name, where, list)
    return [(row, f"{where}.{name}[{i}]".lstrip(".")) for i, row in enumerate(rows)]


def _names(data: Any, name: str, where: str) -> tuple[str, ...]:
    names = _field(data, name, where, list)
    if not all(type(item) is str for item in names) or len(set(names)) != len(names):
        raise corrupt(f"{where}.{name}", "be a list of different names")
    return tuple(names)


def _value(row: Any, where: str, fixed: bool = False) -> Value:
    name, dtype = _text(row, "name", where), _text(row, "dtype", where)
    if dtype not in BY_SHORT:
        raise corrupt(f"{where}.dtype", f"be a dtype of graphc, got {dtype[:80]!r}")
    read: Callable[[Any], Any] = _size if fixed else _dim
    shape = [read(dim) for dim in _field(row, "shape", where, list)[: _MAX_RANK + 1]]
    if None in shape or len(shape) > _MAX_RANK:
        raise corrupt(f"{where}.shape", f"be a list of sizes, got {str(row['shape'])[:80]}")
    type = TensorType(BY_SHORT[dtype], tuple(shape))
    if not fits_memory(type):
        raise corrupt(f"{where}.shape", f"be of an array that fits into memory, got {type}")
    return Value(name, type)


def fits_memory(type: TensorType) -> bool:
    """Whether an array of this type could fit into any memory, for some values of its open
    sizes."""
    sizes = [max(dim, 1) for dim in type.shape if isinstance(dim, int)]
    return math.prod(sizes) * type.dtype.itemsize <= MAX_BYTES


def _size(dim: Any) -> int | None:
    return dim if type(dim) is int and 0 <= dim <= MAX_BYTES else None


def _dim(dim: Any) -> Any:
    if type(dim) is not str:
        return _size(dim)
    if len(dim) > _MAX_DIM_TEXT or "(" in dim.replace("floordiv(", ""):
        return None  # dims print as sums of products; products of sums can explode
    try:
        parsed = parse_dim(dim)
    except (GraphcError, RecursionError, ValueError):
        return None
    return parsed if isinstance(parsed, DimExpr) else _size(parsed)
