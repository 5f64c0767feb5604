"""Vocabularies in text files: the assets of a SavedModel that fill lookup tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphc.errors import ModelFileError
from graphc.importers.tensorflow.graph import Edge, TFGraph
from graphc.ir.dtypes import Array, DType
from graphc.train.tensorflow.tensors import broken

_WHOLE_LINE: Final = -2
_LINE_NUMBER: Final = -1
_LONGEST: Final = 16  # nodes between an asset and the table that it fills


def assets_of(meta: Any, folder: Path) -> dict[str, Path]:
    """The files of a SavedModel by the node that has their name.

    Raises:
        ModelFileError: one is not in the folder of assets.
    """
    found = {}
    for asset in meta.asset_file_def:
        file = folder / "assets" / asset.filename
        if Path(asset.filename).name != asset.filename:
            raise broken(f"the asset {asset.filename!r} is outside the folder of the model")
        found[asset.tensor_info.name.partition(":")[0]] = file
    return found


def asset_at(graph: TFGraph, edge: Edge, assets: Mapping[str, Path]) -> Path | None:
    """The file whose name an edge has, in the main graph; None if there is none."""
    for _ in range(_LONGEST):
        if edge.node in assets:
            return assets[edge.node]
        node = graph.nodes.get(edge.node)
        if node is None:
            return None
        inputs = list(node.inputs)
        if node.op == "VarHandleOp":
            users = graph.consumers.get(node.name, ())
            written = [n.inputs for n in users if n.op == "AssignVariableOp" and len(n.inputs) == 2]
            inputs = list(written[0][1:]) if written else []
        elif node.op not in ("Identity", "ReadVariableOp"):
            return None
        if not inputs:
            return None
        edge = inputs[0]
    return None


def read_table(file: Path, fill: Any, key_dtype: DType, value_dtype: DType) -> tuple[Array, Array]:
    """The keys and values of a table that a text file has.

    Args:
        fill: the node that fills it.

    Raises:
        ModelFileError: the file is missing, or has no such columns.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ModelFileError(
            f"the asset {file.name!r} cannot be read: {error.strerror or error}",
            hint="copy the folder of the model with all its files",
        ) from None
    lines = data.split(b"\n")[int(fill.attr("offset", 0)) :]
    lines = lines[:-1] if lines and not lines[-1] else lines
    count = int(fill.attr("vocab_size", -1))
    lines = lines if count < 0 else lines[:count]
    delimiter = fill.attr("delimiter", b"\t")
    keys = _column(file, lines, int(fill.attr("key_index", _WHOLE_LINE)), delimiter, key_dtype)
    values = _column(
        file, lines, int(fill.attr("value_index", _LINE_NUMBER)), delimiter, value_dtype
    )
    return keys, values


def _column(file: Path, lines: list[bytes], index: int, delimiter: bytes, dtype: DType) -> Array:
    if index == _LINE_NUMBER:
        return np.arange(len(lines)).astype(dtype)
    if index != _WHOLE_LINE:
        rows = [line.split(delimiter) for line in lines]
        short = next((i for i, row in enumerate(rows) if len(row) <= index), None)
        if short is not None:
            raise broken(f"line {short + 1} of the asset {file.name!r} has no column {index}")
        lines = [row[index] for row in rows]
    found = np.empty(len(lines), object)
    found[:] = lines
    if dtype.kind == "O":
        return found
    try:
        return found.astype(dtype)
    except ValueError as error:
        raise broken(
            f"the asset {file.name!r} has a value that is no {dtype.name}: {error}"
        ) from None
