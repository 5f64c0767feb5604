"""`to_saved_model`: one signature as a SavedModel of TensorFlow."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from jax.extend import mlir
from jax.extend.mlir import ir

from graphc.artifacts.exporting import Exported, export
from graphc.artifacts.manifest import Value
from graphc.artifacts.signature import Signature
from graphc.artifacts.stablehlo import deserialize
from graphc.config import CompileOptions
from graphc.errors import AttributeValueError, ModelExportError
from graphc.exporters.core.files import write
from graphc.exporters.core.inference import check_effects, check_signature
from graphc.ir.names import Names
from graphc.ir.source import current_source
from graphc.runtime.session import Session
from graphc.train.tensorflow.schema import messages
from graphc.train.tensorflow.tensors import DTYPES

_STABLEHLO: Final = "1.13.0"  # the newest version that TensorFlow 2.21 reads
_LARGEST: Final = 1_900_000_000  # bytes: protobuf cannot hold more than 2 GiB
_PRODUCER: Final = 1882  # the version of graphs that TensorFlow 2.15 and later write
_TENSORFLOW: Final = "2.15.0"  # the oldest version that reads it
_FILE: Final = "saved_model.pb"
_QUANTISED: Final = (11, 12, 13, 15, 16)
_NUMBERS: Final = {dtype: n for n, dtype in DTYPES.items() if n not in _QUANTISED}


def to_saved_model(
    session: Session,
    path: str | os.PathLike[str],
    signature: Signature,
    *,
    signature_name: str = "serving_default",
    platforms: Sequence[str] = ("cpu",),
) -> None:
    """Writes a signature as a SavedModel, with the values of its variables (extra `tensorflow`).

    TensorFlow 2.15 and later load it, and so does TensorFlow Serving. Neither is needed here. The
    program is one operator, `XlaCallModule`, with StableHLO; variables are constants under their
    names. Open sizes stay open. Models are for inference: a signature with updates is refused, and
    so are random numbers.

    Args:
        path: a folder, which is made. An earlier model of this function in it is replaced.
        signature: the inputs and outputs.
        signature_name: the name of the signature in the model.
        platforms: where it runs: "cpu", "cuda", "tpu".

    Raises:
        ModelExportError: TensorFlow cannot express it, it is larger than 1.9 GB, or the file cannot
            be written.
        ArtifactError: JAX cannot export the program.
        FeedError, FetchError, UnknownNameError: the signature does not fit the graph.
        MissingExtraError: protobuf is not installed.

    Examples:
        >>> import os, tempfile
        >>> x = gc.placeholder(("batch", 2), name="x")
        >>> signature = gc.Signature({"x": x}, {"double": x * 2})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model")
        ...     gc.to_saved_model(gc.Session(graph), path, signature)
        ...     os.listdir(path)
        ['saved_model.pb']
    """
    check_signature("to_saved_model", "the SavedModels that it writes", signature)
    _check_names(signature_name, platforms)
    folder = _folder(path)
    made = export(session, "main", signature, platforms, False, None, CompileOptions())
    entry = made.entry
    check_effects("to_saved_model", (*entry.read, *entry.written), entry.assigned)
    read = [name for name in (*entry.written, *entry.read) if name not in made.values]
    arrays = {**made.values, **session.values(read)}
    data = _model(made, arrays, signature_name).SerializeToString()
    if len(data) > _LARGEST:
        raise ModelExportError(
            f"to_saved_model: the model has {len(data)} bytes, and the format holds at most 2 GiB",
            source=current_source(),
            hint="gc.save writes models of any size",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelExportError(
            f"cannot make the folder {str(folder)!r}: {error.strerror}", source=current_source()
        ) from error
    write(folder / _FILE, data)


def _check_names(signature_name: object, platforms: object) -> None:
    if not isinstance(signature_name, str) or not signature_name:
        raise AttributeValueError(
            f"to_saved_model: signature_name must be a string, got {signature_name!r}",
            source=current_source(),
            hint='signature_name="serving_default"',
        )
    known = ("cpu", "cuda", "tpu")
    if (
        isinstance(platforms, str)
        or not isinstance(platforms, Sequence)
        or not platforms
        or any(each not in known for each in platforms)
    ):
        raise AttributeValueError(
            f"to_saved_model: platforms must be among {', '.join(known)}, got {platforms!r}",
            source=current_source(),
            hint='platforms=["cpu", "cuda"]',
        )


def _folder(path: str | os.PathLike[str]) -> Path:
    """The folder, if nothing else than an earlier model is in it."""
    folder = Path(path)
    others = [p.name for p in folder.iterdir() if p.name != _FILE] if folder.is_dir() else []
    if others or (folder.exists() and not folder.is_dir()):
        what = f"holds {others[0]!r}" if others else "is a file"
        raise ModelExportError(
            f"to_saved_model: {str(folder)!r} {what}",
            source=current_source(),
            hint="give a new folder, so that models do not mix",
        )
    return folder


def _model(made: Exported, arrays: dict[str, np.ndarray[Any, Any]], signature_name: str) -> Any:
    """The SavedModel message."""
    proto = messages()
    entry = made.entry
    exported = deserialize(made.members[entry.stablehlo])
    graph = proto.GraphDef()
    graph.versions.producer, graph.versions.min_consumer = _PRODUCER, 12
    names = Names()
    fed = [_placeholder(graph, names, value) for value in entry.inputs]
    state = (*entry.written, *entry.read)
    held = [_constant(graph, names, name, arrays[name]) for name in state]
    types = [*(arrays[name].dtype for name in state), *(v.type.dtype for v in entry.inputs)]
    call = _call(graph, names, exported, [*held, *fed], types)
    info = proto.MetaGraphDef()
    info.meta_info_def.tags.append("serve")
    info.meta_info_def.tensorflow_version = _TENSORFLOW
    signature = info.signature_def[signature_name]
    signature.method_name = "tensorflow/serving/predict"
    for value, name in zip(entry.inputs, fed, strict=True):
        _describe(signature.inputs[value.name], value, f"{name}:0")
    for output in entry.outputs:
        name = names.unique(_valid(output.value.name))
        place = len(entry.assigned) + output.index
        node = graph.node.add(name=name, op="Identity", input=[f"{call}:{place}"])
        node.attr["T"].type = _number_of(output.value.type.dtype)
        _describe(signature.outputs[output.value.name], output.value, f"{name}:0")
    info.graph_def.CopyFrom(graph)
    return proto.SavedModel(saved_model_schema_version=1, meta_graphs=[info])


def _number_of(dtype: np.dtype[Any]) -> int:
    """TensorFlow's number of a dtype.

    Raises:
        ModelExportError: it has none.
    """
    found = _NUMBERS.get(dtype)
    if found is None:
        raise ModelExportError(
            f"to_saved_model: TensorFlow has no dtype {dtype.name}",
            source=current_source(),
            hint="gc.cast inputs and outputs to another dtype",
        )
    return found


def _valid(name: str) -> str:
    """A name as TensorFlow's graphs allow them."""
    name = re.sub(r"[^A-Za-z0-9_.\\/>-]", "_", name)
    return name if re.match(r"[A-Za-z0-9.]", name) else f"n{name}"


def _placeholder(graph: Any, names: Names, value: Value) -> str:
    name = names.unique(_valid(value.name))
    node = graph.node.add(name=name, op="Placeholder")
    node.attr["dtype"].type = _number_of(value.type.dtype)
    _set_shape(node.attr["shape"].shape, value.type.shape)
    return name


def _constant(graph: Any, names: Names, name: str, array: np.ndarray[Any, Any]) -> str:
    name = names.unique(_valid(name))
    node = graph.node.add(name=name, op="Const")
    number = _number_of(array.dtype)
    node.attr["dtype"].type = number
    tensor = node.attr["value"].tensor
    tensor.dtype = number
    _set_shape(tensor.tensor_shape, array.shape)
    tensor.tensor_content = np.ascontiguousarray(array).tobytes()
    return name


def _set_shape(shape: Any, dims: Sequence[Any]) -> None:
    shape.SetInParent()  # a scalar, not an unknown shape
    for dim in dims:
        shape.dim.add(size=dim if isinstance(dim, int) else -1)


def _describe(info: Any, value: Value, tensor: str) -> None:
    info.name = tensor
    info.dtype = _number_of(value.type.dtype)
    _set_shape(info.tensor_shape, value.type.shape)


def _call(
    graph: Any, names: Names, exported: Any, operands: Sequence[str], types: Sequence[Any]
) -> str:
    """Adds the operator that calls the program."""
    with ir.Context():
        module = mlir.deserialize_portable_artifact(exported.mlir_module_serialized)
        code = mlir.serialize_portable_artifact(module, _STABLEHLO)
    name = names.unique("XlaCallModule")
    node = graph.node.add(name=name, op="XlaCallModule", input=list(operands))
    node.attr["version"].i = exported.calling_convention_version
    node.attr["module"].s = code
    node.attr["Tin"].list.type.extend(map(_number_of, types))
    node.attr["Tin"].list.SetInParent()
    results = node.attr["Sout"].list
    node.attr["Tout"].list.SetInParent()
    for aval in exported.out_avals:
        node.attr["Tout"].list.type.append(_number_of(aval.dtype))
        _set_shape(results.shape.add(), aval.shape)
    node.attr["platforms"].list.s.extend(each.upper().encode() for each in exported.platforms)
    for key in ("dim_args_spec", "disabled_checks"):
        node.attr[key].list.SetInParent()
    node.attr["function_list"].list.SetInParent()
    node.attr["has_token_input_output"].b = False
    return name
