"""The graph of a SavedModel: one node that calls the program, and those that give it values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from jax.extend import mlir
from jax.extend.mlir import ir

from graphc.artifacts.exporting import Exported
from graphc.artifacts.manifest import Value
from graphc.artifacts.stablehlo import deserialize
from graphc.errors import ModelExportError
from graphc.ir.dtypes import Array
from graphc.ir.names import Names
from graphc.train.tensorflow.schema import messages
from graphc.train.tensorflow.tensors import DTYPES

_STABLEHLO: Final = "1.13.0"  # the newest version that TensorFlow 2.21 reads
_PRODUCER: Final = 1882  # the version of graphs that TensorFlow 2.15 and later write
_TENSORFLOW: Final = "2.15.0"  # the oldest version that reads it
_QUANTISED: Final = (11, 12, 13, 15, 16)
_NUMBERS: Final = {dtype: n for n, dtype in DTYPES.items() if n not in _QUANTISED}
_STRING: Final = 7
_SCOPE: Final = "graphc_save"
SAVED_UNDER: Final = f"{_SCOPE}/filename:0"
"""The tensor by which a model with variables is known to be of this exporter."""


def model_of(
    made: Exported, arrays: Mapping[str, Array], signature_name: str, variables: bool
) -> Any:
    """The SavedModel message."""
    proto = messages()
    entry = made.entry
    exported = deserialize(made.members[entry.stablehlo])
    model = proto.SavedModel(saved_model_schema_version=1)
    info = model.meta_graphs.add()
    graph = info.graph_def
    graph.versions.producer, graph.versions.min_consumer = _PRODUCER, 12
    names = Names()
    for name in ("default", "names", "slices", "filename", "save", "restore", "done", "all"):
        names.reserve(f"{_SCOPE}/{name}")
    fed = [_placeholder(graph, names, value) for value in entry.inputs]
    state = (*entry.written, *entry.read)
    hold = _variable if variables else _constant
    held = [hold(graph, names, name, arrays[name]) for name in state]
    types = [*(arrays[name].dtype for name in state), *(v.type.dtype for v in entry.inputs)]
    call = _call(graph, names, exported, [*held, *fed], types)
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
        node.attr["T"].type = number_of(output.value.type.dtype)
        _describe(signature.outputs[output.value.name], output.value, f"{name}:0")
    if variables:
        _add_saver(info, names, state)
    return model


def number_of(dtype: np.dtype[Any]) -> int:
    """TensorFlow's number of a dtype.

    Raises:
        ModelExportError: it has none.
    """
    found = _NUMBERS.get(dtype)
    if found is None:
        raise ModelExportError.here(
            f"to_saved_model: TensorFlow has no dtype {dtype.name}",
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
    node.attr["dtype"].type = number_of(value.type.dtype)
    _set_shape(node.attr["shape"].shape, value.type.shape)
    return name


def _constant(graph: Any, names: Names, name: str, array: Array) -> str:
    name = names.unique(_valid(name))
    node = graph.node.add(name=name, op="Const")
    number = number_of(array.dtype)
    node.attr["dtype"].type = number
    tensor = node.attr["value"].tensor
    tensor.dtype = number
    _set_shape(tensor.tensor_shape, array.shape)
    tensor.tensor_content = np.ascontiguousarray(array).tobytes()
    return name


def _variable(graph: Any, names: Names, name: str, array: Array) -> str:
    """A variable and the reading of it. `_add_saver` gives it its value."""
    number, handle = number_of(array.dtype), names.unique(_valid(name))
    node = graph.node.add(name=handle, op="VarHandleOp")
    node.attr["dtype"].type = number
    node.attr["shared_name"].s = handle.encode()
    node.attr["container"].s = b""
    _set_shape(node.attr["shape"].shape, array.shape)
    read = graph.node.add(name=names.unique(f"{handle}/Read"), op="ReadVariableOp", input=[handle])
    read.attr["dtype"].type = number
    return str(read.name)


def _add_saver(info: Any, names: Names, keys: Sequence[str]) -> None:
    """Adds the list of the variables, and what TensorFlow runs to restore and to save them.

    Args:
        keys: of the variables in their file, in the order of the nodes.
    """
    graph, saver = info.graph_def, info.saver_def
    handles = [node for node in graph.node if node.op == "VarHandleOp"]
    reads = [node.name for node in graph.node if node.op == "ReadVariableOp"]
    types = [node.attr["dtype"].type for node in handles]
    default = _strings(graph, f"{_SCOPE}/default", b"model")
    wanted = _strings(graph, f"{_SCOPE}/names", [key.encode() for key in keys])
    slices = _strings(graph, f"{_SCOPE}/slices", [b""] * len(keys))
    file = SAVED_UNDER.partition(":")[0]
    given = graph.node.add(name=file, op="PlaceholderWithDefault", input=[default])
    given.attr["dtype"].type = _STRING
    _set_shape(given.attr["shape"].shape, ())
    save = graph.node.add(name=f"{_SCOPE}/save", op="SaveV2", input=[file, wanted, slices, *reads])
    restored = f"{_SCOPE}/restore"
    restore = graph.node.add(name=restored, op="RestoreV2", input=[file, wanted, slices])
    for node in (save, restore):
        node.attr["dtypes"].list.type.extend(types)
    done = graph.node.add(name=f"{_SCOPE}/done", op="Identity", input=[file, f"^{save.name}"])
    done.attr["T"].type = _STRING
    everything = graph.node.add(name=f"{_SCOPE}/all", op="NoOp")
    for i, handle in enumerate(handles):
        node = graph.node.add(name=names.unique(f"{_SCOPE}/assign"), op="AssignVariableOp")
        node.input.extend([handle.name, f"{restored}:{i}"])
        node.attr["dtype"].type = types[i]
        everything.input.append(f"^{node.name}")
        definition = messages().VariableDef(
            variable_name=f"{handle.name}:0",
            initializer_name=node.name,
            initial_value_name=f"{restored}:{i}",
            snapshot_name=f"{reads[i]}:0",
            is_resource=True,
        )
        listed = info.collection_def["variables"].bytes_list
        listed.value.append(definition.SerializeToString())
    saver.filename_tensor_name, saver.save_tensor_name = SAVED_UNDER, f"{done.name}:0"
    saver.restore_op_name, saver.version = everything.name, 2


def _strings(graph: Any, name: str, value: bytes | Sequence[bytes]) -> str:
    """A constant: a string, or a vector of strings."""
    values, shape = ([value], ()) if isinstance(value, bytes) else (value, (len(value),))
    node = graph.node.add(name=name, op="Const")
    node.attr["dtype"].type = node.attr["value"].tensor.dtype = _STRING
    _set_shape(node.attr["value"].tensor.tensor_shape, shape)
    node.attr["value"].tensor.string_val.extend(values)
    return name


def _set_shape(shape: Any, dims: Sequence[Any]) -> None:
    shape.SetInParent()  # a scalar, not an unknown shape
    for dim in dims:
        shape.dim.add(size=dim if isinstance(dim, int) else -1)


def _describe(info: Any, value: Value, tensor: str) -> None:
    info.name = tensor
    info.dtype = number_of(value.type.dtype)
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
    node.attr["Tin"].list.type.extend(map(number_of, types))
    node.attr["Tin"].list.SetInParent()
    results = node.attr["Sout"].list
    node.attr["Tout"].list.SetInParent()
    for aval in exported.out_avals:
        node.attr["Tout"].list.type.append(number_of(aval.dtype))
        _set_shape(results.shape.add(), aval.shape)
    node.attr["platforms"].list.s.extend(each.upper().encode() for each in exported.platforms)
    for key in ("dim_args_spec", "disabled_checks"):
        node.attr[key].list.SetInParent()
    node.attr["function_list"].list.SetInParent()
    node.attr["has_token_input_output"].b = False
    return name
