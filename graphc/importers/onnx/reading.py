"""Reads and checks models: files, bytes, external data, attributes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphc.errors import ModelFileError
from graphc.importers.onnx.call import Refused
from graphc.importers.onnx.dtypes import STRING, dtype_of
from graphc.ir.extras import importing
from graphc.ir.mapped import LARGE_ARRAY, LARGE_FILE, array_in, map_file

_DEEPEST: Final = 50  # subgraphs inside each other


def onnx() -> Any:
    """The package onnx.

    Raises:
        MissingExtraError: it is not installed.
    """
    with importing("from_onnx: the package onnx is not installed", "onnx"):
        import onnx
    return onnx


@dataclass(frozen=True)
class File:
    """A model and where it comes from.

    Attributes:
        proto: the `ModelProto`.
        name: of the file, for errors.
        folder: for external data; None if the model is not from a file.
    """

    proto: Any
    name: str
    folder: Path | None


def broken(what: str, hint: str = "export the model again") -> ModelFileError:
    """The error for a file that is not a valid model."""
    return ModelFileError.here(f"from_onnx: {what}", hint=hint)


def read(model: Any) -> File:
    """The model in a file, in bytes, or as a `ModelProto`.

    Raises:
        ModelFileError: it is not a model.
    """
    package = onnx()
    if isinstance(model, package.ModelProto):
        return _checked(File(model, "model", None))
    name, folder = "model", None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        name, folder = path.name, path.parent
        try:
            data = path.read_bytes()
        except OSError as error:
            raise broken(f"{path} cannot be read: {error.strerror}", "check the path") from error
    elif isinstance(model, bytes):
        data = model
    else:
        raise broken(
            f"takes a path, bytes or a ModelProto, got {type(model).__name__}",
            'gc.from_onnx("model.onnx")',
        )
    proto = package.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:  # protobuf raises errors of several kinds
        raise broken(f"{name} is not an ONNX file, or is truncated") from error
    return _checked(File(proto, name, folder))


def _checked(file: File) -> File:
    proto = file.proto
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise broken(f"{file.name} holds no graph")
    for graph in _graphs(proto.graph, 0):
        for node in graph.node:
            if not node.op_type:
                raise broken(f"{file.name} has a node without an operator")
        if not all(isinstance(name, str) for name in _names(graph)):
            raise broken(f"{file.name} has a name that is not UTF-8")
    if not proto.opset_import:
        raise broken(f"{file.name} does not say which versions of the operators it uses")
    return file


def _names(graph: Any) -> Iterator[object]:
    """All names of a graph. Protobuf gives one that is not UTF-8 as bytes."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attr.name for attr in node.attribute)
    for port in (*graph.input, *graph.output):
        yield port.name
        yield from (dim.dim_param for dim in port.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)


def _graphs(graph: Any, depth: int) -> Iterator[Any]:
    if depth > _DEEPEST:
        raise broken(f"its subgraphs are more than {_DEEPEST} deep")
    yield graph
    for node in graph.node:
        for attr in node.attribute:
            for inner in (*([attr.g] if attr.HasField("g") else []), *attr.graphs):
                yield from _graphs(inner, depth + 1)


def array_of(tensor: Any, folder: Path | None) -> np.ndarray[Any, Any]:
    """The value of a `TensorProto`.

    Raises:
        ModelFileError: its size does not fit its data, or its file is outside the model's folder.
        Refused: its element type is not supported.
    """
    from onnx import numpy_helper

    name = tensor.name or "a tensor"
    dtype = dtype_of(tensor.data_type)
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape) or len(shape) > 64:
        raise broken(f"{name} has the shape {shape}")
    count = 1
    for dim in shape:
        count *= dim
    if tensor.data_location == tensor.EXTERNAL:
        return _external(tensor, dtype, shape, count, folder)
    stored = max(
        len(tensor.raw_data) * 2,  # two 4-bit numbers are one byte
        *(len(getattr(tensor, f)) * 2 for f in _FIELDS),
    )
    if count > stored:
        raise broken(f"{name} has the shape {shape}, and data for at most {stored} elements")
    try:
        found: np.ndarray = numpy_helper.to_array(tensor)
    except Exception as error:  # of many kinds, for data that does not fit
        raise broken(f"{name}: its data does not fit its shape {shape}") from error
    if tensor.data_type == STRING:
        texts = [s.decode() if isinstance(s, bytes) else s for s in found.reshape(-1)]
        return np.array(texts, object).reshape(shape)
    return found if found.dtype == dtype else found.astype(dtype)


_FIELDS: Final = (
    "float_data",
    "int32_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "string_data",
)


def _external(
    tensor: Any, dtype: Any, shape: tuple[int, ...], count: int, folder: Path | None
) -> np.ndarray[Any, Any]:
    """The value of a tensor in a file beside the model."""
    name = tensor.name or "a tensor"
    facts = {entry.key: entry.value for entry in tensor.external_data}
    if folder is None:
        raise broken(
            f"{name} is in a file beside the model, and the model is not from a file",
            "pass the path of the model",
        )
    root = folder.resolve()
    path = (root / facts.get("location", "")).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        raise broken(f"{name}: its file {facts.get('location')!r} is not in the model's folder")
    try:
        offset, size = int(facts.get("offset", 0)), count * dtype.itemsize
    except ValueError as error:
        raise broken(f"{name}: its position {facts.get('offset')!r} is not a number") from error
    if offset < 0 or offset + size > path.stat().st_size:
        raise broken(f"{name}: {path.name} is too short for its shape {shape}")
    if path.stat().st_size >= LARGE_FILE and size >= LARGE_ARRAY:
        return array_in(map_file(path), offset, shape, dtype)
    return np.fromfile(path, dtype, count, offset=offset).reshape(shape)


def attributes(node: Any, folder: Path | None) -> dict[str, Any]:
    """The attributes of a node as Python values.

    Raises:
        ModelFileError: an attribute is not valid.
        Refused: an attribute has a type that is not supported.
    """
    return {attr.name: _attribute(attr, folder) for attr in node.attribute}


def _attribute(attr: Any, folder: Path | None) -> Any:
    kinds = attr.AttributeType
    match attr.type:
        case kinds.FLOAT:
            return attr.f
        case kinds.INT:
            return attr.i
        case kinds.STRING:
            return _text(attr.s)
        case kinds.TENSOR:
            return array_of(attr.t, folder)
        case kinds.GRAPH:
            return attr.g
        case kinds.FLOATS:
            return list(attr.floats)
        case kinds.INTS:
            return list(attr.ints)
        case kinds.STRINGS:
            return [_text(s) for s in attr.strings]
        case kinds.TENSORS:
            return [array_of(t, folder) for t in attr.tensors]
        case kinds.TYPE_PROTO:
            return attr.tp
    raise Refused(f"has the attribute {attr.name!r} of a type that is not supported")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise broken("an attribute is not valid text") from error
