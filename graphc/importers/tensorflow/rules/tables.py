"""Lookup tables with constant keys, also of strings that are known only in a run; functions of
strings that are known at import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.core.words import WordList, Words, looked_up
from graphc.importers.tensorflow.evaluation import called_functions
from graphc.importers.tensorflow.graph import Edge, TFNode
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.table_files import asset_at, read_table
from graphc.importers.tensorflow.values import Table, Value
from graphc.ir.node import Tensor

FAMILY = Family()


@FAMILY.rule("HashTableV2", "HashTable", kinds="")
def hash_table(call: Call) -> Value:
    tables = call.scope.build.tables_found
    name = call.text("shared_name") or call.node.name
    if name not in tables:
        tables[name] = Table(name, call.dtype("key_dtype"), call.dtype("value_dtype"), [])
        for found in _initial(call):
            tables[name].content.append(found)
    return tables[name]


_FILES = ("InitializeTableFromTextFileV2", "InitializeTableFromTextFile")
_FILLS = ("InitializeTableV2", "InitializeTable", "LookupTableImportV2", "LookupTableImport")


def _initial(call: Call) -> Iterator[tuple[Any, Any]]:
    """The constant keys and values that initialisers of the table give it, or the file that they
    read."""
    graph = call.scope.graph
    for node in graph.consumers.get(call.node.name, ()):
        yield from _from_file(call, node)
        edges: Sequence[Edge] = node.inputs[1:3] if node.op in _FILLS else ()
        for body in called_functions(graph, node):
            arguments = dict(zip(body.parameters, node.inputs, strict=False))
            fills = [n for n in body.nodes.values() if n.op in _FILLS and len(n.inputs) == 3]
            if fills and arguments.get(fills[0].inputs[0].node) == Edge(call.node.name, 0):
                edges = [arguments[e.node] for e in fills[0].inputs[1:] if e.node in arguments]
        nodes = [graph.node(edge.node) for edge in edges]
        if len(nodes) == 2 and all(n.op == "Const" for n in nodes):
            yield nodes[0].attr("value"), nodes[1].attr("value")


def _from_file(call: Call, node: TFNode) -> Iterator[tuple[Any, Any]]:
    """What a text file among the assets fills the table with."""
    graph = call.scope.graph
    known: list[tuple[TFNode, Edge]] = []
    if node.op in _FILES and len(node.inputs) == 2:
        known.append((node, node.inputs[1]))
    for body in called_functions(graph, node):
        arguments = dict(zip(body.parameters, node.inputs, strict=False))
        for fill in body.nodes.values():
            if fill.op in _FILES and len(fill.inputs) == 2:
                table, file = (arguments.get(edge.node) for edge in fill.inputs)
                if table == Edge(call.node.name, 0) and file is not None:
                    known.append((fill, file))
    for fill, edge in known:
        asset = asset_at(graph, edge, call.scope.build.assets)
        if asset is not None:
            yield read_table(asset, fill, call.dtype("key_dtype"), call.dtype("value_dtype"))


@FAMILY.rule(
    "InitializeTableV2", "InitializeTable", "LookupTableImportV2", "LookupTableImport", kinds="vss"
)
def fill(call: Call, table: Value, keys: Any, values: Any) -> list[Value]:
    if isinstance(table, Table) and not table.content:
        table.content.append((keys, values))
    return []


@FAMILY.rule("InitializeTableFromTextFileV2", "InitializeTableFromTextFile", kinds="vv")
def fill_from_file(call: Call, table: Value, file: Any) -> list[Value]:
    return []  # `hash_table` has read it


@FAMILY.rule("LookupTableFindV2", "LookupTableFind", kinds="vvs")
def find(call: Call, table: Value, keys: Value, default: Any) -> Value:
    known, values = _content(call, table)
    if isinstance(keys, Words) or (values.dtype.kind == "O" and not isinstance(keys, np.ndarray)):
        return _find_words(call, keys, known, values, default)
    if isinstance(keys, np.ndarray):
        found = {key: value for key, value in zip(known.tolist(), values.tolist(), strict=True)}
        flat = [found.get(key, default.reshape(()).item()) for key in keys.reshape(-1).tolist()]
        result = np.empty(len(flat), values.dtype)
        result[:] = flat
        return result.reshape(keys.shape)
    return _search(call.tensor(keys), known, values, default)


def _find_words(call: Call, keys: Value, known: Any, values: Any, default: Any) -> Value:
    """A lookup of strings that are known only in a run, or with strings as the values."""
    words = WordList(is_open=False)
    if values.dtype.kind == "O":
        values, default = words.numbers_of(values), words.numbers_of(default)
    default = default.reshape(()).item()
    if isinstance(keys, Words):
        found = looked_up(keys, known, values, default)
    else:
        found = _search(call.tensor(keys), known, values, np.asarray(default, values.dtype))
    return Words(found, words) if words.numbers else found


def _search(x: Tensor, known: Any, values: Any, default: Any) -> Tensor:
    """The values of a table whose keys are numbers."""
    order = np.argsort(known)
    sorted_keys = ops.constant(known[order])
    place = ops.minimum(ops.searchsorted(sorted_keys, x), max(len(known) - 1, 0))
    hit = ops.equal(ops.take(sorted_keys, place), x)
    return ops.where(hit, ops.take(ops.constant(values[order]), place), ops.constant(default))


@FAMILY.rule("StringToHashBucketFast", kinds="v")
def bucket(call: Call, x: Value) -> Value:
    """The one bucket of a `StaticVocabularyTable` for words that it does not have."""
    if call.attr("num_buckets", 0) != 1 or not isinstance(x, Words):
        call.refuse("hashes strings into several buckets")
    return ops.cast(ops.zeros_like(x.ids), np.int64)


@FAMILY.rule("LookupTableSizeV2", "LookupTableSize", kinds="v")
def size(call: Call, table: Value) -> Value:
    return np.array(len(_content(call, table)[0]), np.int64)


def _content(call: Call, table: Value) -> tuple[Any, Any]:
    if not isinstance(table, Table) or not table.content:
        call.refuse("takes a table whose content is not constant")
    return table.content[0]


@FAMILY.rule("StringJoin", kinds="s*")
def join(call: Call, *parts: Any) -> Value:
    separator = call.attr("separator", b"")
    wide = np.broadcast_arrays(*parts)
    flat = [separator.join(row) for row in zip(*(w.reshape(-1) for w in wide), strict=True)]
    return _strings(flat, wide[0].shape)


def _strings(flat: list[bytes], shape: tuple[int, ...]) -> Any:
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(shape)


@FAMILY.rule("AsString", "StringToNumber", "DecodeRaw", kinds="s")
def of_strings(call: Call, x: Any) -> Value:
    if call.node.op == "AsString":
        return _strings([str(v).encode() for v in x.reshape(-1).tolist()], x.shape)
    if call.node.op == "StringToNumber":
        numbers = [float(v) for v in x.reshape(-1)]
        return np.array(numbers, call.dtype("out_type", "float32")).reshape(x.shape)
    dtype = call.dtype("out_type")
    stored = dtype.newbyteorder("<" if call.attr("little_endian", True) else ">")
    rows = [np.frombuffer(v, stored) for v in x.reshape(-1)]
    return np.array(rows, dtype).reshape(*x.shape, -1)
