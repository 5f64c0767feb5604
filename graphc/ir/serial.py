"""Programs and graphs as versioned JSON and raw bytes, for artifacts and caches.

A manifest is plain JSON data. Arrays of more than 1 KiB are stored outside it as bytes, with dtype,
shape and checksum in the manifest (the NumPy interface of safetensors lacks the narrow dtypes).
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from graphc.errors import SerialError
from graphc.ir.catalogue import Catalogue
from graphc.ir.dims import Dim, DimExpr
from graphc.ir.dtypes import SHORT, Array, DType
from graphc.ir.graph import Graph
from graphc.ir.initial import initializer_fields
from graphc.ir.late import written
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.serial_read import FORMAT, VERSION, Reader
from graphc.ir.serial_read_graph import GraphReader
from graphc.ir.types import TensorType
from graphc.ir.values import bytes_of
from graphc.ir.variable import Variable

Manifest = dict[str, Any]
Arrays = dict[str, Array]

_INLINE = 1024  # arrays of at most this many bytes are in the manifest itself
_MANIFEST = "manifest"  # its name among the arrays of a file


def dump_program(program: Program) -> tuple[Manifest, Arrays]:
    """A program as a manifest of JSON data, and its large arrays as bytes by name.

    Raises:
        SerialError: an attribute has a value that cannot be serialised.
    """
    dumper = _Dumper()
    return dumper.result("program", dumper.program(program))


def load_program(
    manifest: Mapping[str, Any], arrays: Mapping[str, Array], catalogue: Catalogue
) -> Program:
    """The program that `dump_program` dumped. Nothing in the manifest is trusted.

    Raises:
        SerialError: the manifest is malformed or of a newer version, has an operator that
            `catalogue` lacks, or is not a valid program.
    """
    return Reader(manifest, arrays, catalogue).read_program()


def dump_graph(graph: Graph) -> tuple[Manifest, Arrays]:
    """A root graph in the same form: variables, their initial values, nodes, collections, seed.

    Raises:
        SerialError: the graph is a body, or holds a function or an object that cannot be
            serialised (an initial value that is a bare function, say).
    """
    if graph.parent is not None:
        raise SerialError(
            f"graph {graph.name!r} is the body of a node of {graph.parent.name!r}",
            hint="dump the root graph, which holds it",
        )
    dumper = _Dumper()
    return dumper.result("graph", dumper.graph(graph))


def load_graph(
    manifest: Mapping[str, Any],
    arrays: Mapping[str, Array],
    catalogue: Catalogue,
    initializers: Mapping[str, type],
) -> Graph:
    """The graph that `dump_graph` dumped. Nothing in the manifest is trusted.

    Args:
        initializers: the dataclasses that initial values may be, by name.

    Raises:
        SerialError: as for `load_program`, or an initializer is not among them.
    """
    return GraphReader(manifest, arrays, catalogue, initializers).read_graph()


def to_bytes(manifest: Manifest, arrays: Arrays) -> bytes:
    """Both in one safetensors file."""
    text = json.dumps(manifest, allow_nan=False, separators=(",", ":")).encode("ascii")
    return safetensors.numpy.save({**arrays, _MANIFEST: np.frombuffer(text, np.uint8)})


def from_bytes(data: bytes) -> tuple[Manifest, Arrays]:
    """The manifest and the arrays from a file of `to_bytes`.

    Raises:
        SerialError: the data are not such a file.
    """
    try:
        arrays = safetensors.numpy.load(data)
        manifest = json.loads(arrays.pop(_MANIFEST).tobytes())
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise SerialError(
            "the data are not serialised IR of graphc",
            details=[f"{type(error).__name__}: {error}"],
        ) from error
    if not isinstance(manifest, dict):
        raise SerialError("the manifest is not a JSON object")
    return manifest, arrays


class _Dumper:
    """One dump, with the tables that its parts share."""

    def __init__(self) -> None:
        self._types: dict[TensorType, int] = {}
        self._arrays: Arrays = {}
        self._table: dict[str, Any] = {}
        self._seen: dict[int, tuple[str, Array]] = {}  # by id; the array is kept alive

    def result(self, kind: str, content: Any) -> tuple[Manifest, Arrays]:
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "kind": kind,
            "types": [str(type) for type in self._types],
            "arrays": self._table,
            kind: content,
        }
        return manifest, self._arrays

    def program(self, program: Program) -> Manifest:
        numbers: dict[Tensor, int] = {}
        inputs = []
        for port in program.inputs:
            numbers[port.tensor] = len(numbers)
            inputs.append([port.name, port.kind, self._type(port.tensor.type)])
        nodes = self._nodes(program.nodes, numbers)
        shards = {name: self._value(spec, name) for name, spec in program.shards.items()}
        return {
            "name": program.name,
            "inputs": inputs,
            "nodes": nodes,
            "outputs": [[p.name, p.kind, _number(p.tensor, numbers)] for p in program.outputs],
            "equalities": _equalities(program.equalities),
            "batch_axes": dict(program.batch_axes),
            **({"shards": shards} if shards else {}),
        }

    def graph(self, graph: Graph) -> Manifest:
        numbers: dict[Tensor, int] = {}
        nodes = self._nodes(written(graph.nodes), numbers)
        return {
            "name": graph.name,
            "seed": graph.seed,
            "draws": graph.draws,
            "variables": [self._variable(v, numbers) for v in graph.variables.values()],
            "equalities": _equalities(graph.constraints.equalities()),
            "nodes": nodes,
            "collections": {
                name: [_item(item, name, numbers) for item in items]
                for name, items in graph.collections().items()
            },
        }

    def _nodes(self, nodes: Iterable[Node], numbers: dict[Tensor, int]) -> list[Manifest]:
        dumped = []
        for node in nodes:
            record: Manifest = {
                "op": node.op.name,
                "in": [_number(tensor, numbers) for tensor in node.inputs],
                "out": [self._type(tensor.type) for tensor in node.outputs],
                "attrs": {  # with the defaults, because they may change in a later graphc
                    name: self._value(value, f"{node.op.name} {node.name!r}, {name}")
                    for name, value in node.attrs.items()
                },
                "regions": [self.program(region) for region in node.regions],
                "name": node.name,
                "source": str(node.source or ""),  # without the folders of the writer's machine
                "device": node.device,
                "after": list(node.control_inputs),
            }
            dumped.append({key: value for key, value in record.items() if value})
            for tensor in node.outputs:
                numbers[tensor] = len(numbers)
        return dumped

    def _type(self, type: TensorType) -> int:
        return self._types.setdefault(type, len(self._types))

    def _variable(self, variable: Variable, numbers: Mapping[Tensor, int]) -> Manifest:
        record: Manifest = {
            "name": variable.name,
            "type": self._type(variable.type),
            "initial": self._initial(variable, numbers),
            "trainable": variable.trainable,
            "collections": list(variable.collections),
            "device": variable.device,
        }
        if variable.shard is not None:
            record["shard"] = self._value(variable.shard, variable.name)
        if variable.source is not None:
            record["source"] = str(variable.source)
        return record

    def _initial(self, variable: Variable, numbers: Mapping[Tensor, int]) -> Manifest:
        where = f"variable {variable.name!r}"
        initial = variable.initial
        if isinstance(initial, Tensor):
            return {"tensor": _number(initial, numbers)}
        if isinstance(initial, np.ndarray):
            return {"value": self._value(initial, where)}
        given = initializer_fields(initial)
        if given is None:
            raise SerialError(
                f"{where}: its initial value is a function, which cannot be serialised",
                source=variable.source,
                hint="use an array, or an initializer record such as GlorotUniform(scale=1.0)",
            )
        name, values = given
        fields = {key: self._value(value, f"{where}, {key}") for key, value in values.items()}
        return {"initializer": name, "fields": fields}

    def _value(self, value: Any, where: str) -> Any:
        """A value as JSON. A value that JSON lacks becomes an object whose only key is its kind."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is complex:
            return {"complex": [self._value(x, where) for x in (value.real, value.imag)]}
        if isinstance(value, DimExpr):
            return {"dim": str(value)}
        if isinstance(value, np.dtype):
            return {"dtype": _short(value, where)}
        if type(value) is tuple:
            return [self._value(item, where) for item in value]
        if isinstance(value, (np.ndarray, np.generic)):
            return {"array": self._array(np.asarray(value), where)}
        if isinstance(value, Mapping):
            return {"attrs": {str(k): self._value(v, where) for k, v in value.items()}}
        raise SerialError(
            f"{where}: a value of type {type(value).__name__} cannot be serialised: {value!r:.80}",
            hint="leave out what calls back to Python" if callable(value) else None,
        )

    def _array(self, value: Array, where: str) -> str | Manifest:
        """The name of a large array, or a small array itself."""
        record: Manifest = {"dtype": _short(value.dtype, where), "shape": list(value.shape)}
        if value.nbytes <= _INLINE:
            return {**record, "data": base64.b64encode(bytes_of(value)).decode("ascii")}
        found = self._seen.get(id(value))
        if found is not None:
            return found[0]
        name = f"a{len(self._arrays)}"
        data = bytes_of(value)
        self._seen[id(value)] = (name, value)
        self._arrays[name] = np.frombuffer(data, np.uint8)
        self._table[name] = {**record, "sha256": hashlib.sha256(data).hexdigest()}
        return name


def _number(tensor: Tensor, numbers: Mapping[Tensor, int]) -> int:
    number = numbers.get(tensor)
    if number is None:
        raise SerialError(f"tensor {tensor.name!r} is used and not defined before")
    return number


def _equalities(equalities: Iterable[tuple[Dim, Dim]]) -> list[list[str]]:
    return [[str(a), str(b)] for a, b in equalities]


def _short(dtype: DType, where: str) -> str:
    short = SHORT.get(dtype)
    if short is None:
        raise SerialError(f"{where}: dtype {dtype} is not one of graphc's")
    return short


def _item(item: Any, collection: str, numbers: Mapping[Tensor, int]) -> list[Any]:
    """A member of a collection."""
    if isinstance(item, Tensor) and item in numbers:
        return ["tensor", numbers[item]]
    if isinstance(item, Variable):
        return ["variable", item.name]
    if isinstance(item, Node):
        return ["node", item.name]
    raise SerialError(
        f"collection {collection!r} holds {item!r:.80}, which cannot be serialised",
        hint="collect tensors, nodes and variables of the graph",
    )
