"""The values that a model has in its own framework, by the names of the imported nodes.

`gc.compare` compares them with the imported model: it names the first node that parts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import MissingExtraError, ModelImportError
from graphc.importers.core.model_graph import ModelGraph
from graphc.importers.files import ONNX, format_of
from graphc.importers.torch.recording import recorded
from graphc.ir.dtypes import Array
from graphc.ir.node import Node, Tensor

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module


def original_values(
    original: str | os.PathLike[str] | Module | ExportedProgram,
    model: ModelGraph,
    inputs: Mapping[str, Array],
) -> dict[str, Array]:
    """The values of a model in its own framework, by the names of tensors of `model`, for
    `gc.compare(model, values, inputs)`. ONNX files are run by onnxruntime, without optimisation;
    modules by PyTorch, in evaluation mode.

    Args:
        original: an ONNX file, or what `gc.from_torch` has imported.
        model: the graph of the imported model.
        inputs: by the names of the model's inputs.

    Raises:
        ModelImportError: this is not supported for the format.
        MissingExtraError: onnx or onnxruntime is not installed.

    Examples:
        >>> import onnx, tempfile
        >>> from onnx import helper, TensorProto
        >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
        >>> graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
        >>> proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        >>> proto.ir_version, folder = 8, tempfile.TemporaryDirectory()
        >>> onnx.save(proto, f"{folder.name}/exp.onnx")
        >>> made = gc.from_onnx(f"{folder.name}/exp.onnx").to_graph()
        >>> values = gc.original_values(f"{folder.name}/exp.onnx", made, {"x": np.float32([0, 1])})
        >>> gc.compare(made, values, {"x": np.float32([0, 1])}).ok
        True
        >>> folder.cleanup()
    """
    if not isinstance(original, (str, os.PathLike)):
        return recorded(original, model, inputs)
    path = original
    if format_of(path) != ONNX:
        raise ModelImportError.here(
            "original_values: values are recorded for ONNX files and modules of PyTorch only",
            hint="pass a dict of values by the names of nodes to gc.compare",
        )
    made_at = _last_nodes(model, Path(path).name)
    proto, session = _with_all_values(path)
    names = {name: i for i, node in enumerate(proto.graph.node, 1) for name in node.output if name}
    wanted = [name for name, line in names.items() if line in made_at]
    found: dict[str, Array] = {}
    for name, value in zip(wanted, session.run(wanted, dict(inputs)), strict=True):
        number = list(proto.graph.node[names[name] - 1].output).index(name)
        tensor = _matching(made_at[names[name]], number, np.asarray(value))
        if tensor is not None:
            found[tensor.name] = np.asarray(value)
    return found


def _last_nodes(model: ModelGraph, file: str) -> dict[int, Node]:
    """Number of a node of the file -> the last node made of it, which has its result."""
    found = {}
    for node in model.graph.nodes:
        if node.source is not None and Path(node.source.file).name == file:
            found[node.source.line] = node
    return found


def _matching(node: Node, number: int, value: Array) -> Tensor | None:
    if number >= len(node.outputs):
        return None
    tensor = node.outputs[number]
    sizes = zip(tensor.type.shape, value.shape, strict=False)
    same = tensor.type.dtype == value.dtype and len(tensor.type.shape) == value.ndim
    return tensor if same and all(isinstance(a, int) <= (a == b) for a, b in sizes) else None


def _with_all_values(path: str | os.PathLike[str]) -> tuple[Any, Any]:
    """The model, and a session of onnxruntime whose outputs are all of its values."""
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise MissingExtraError(
            "values of ONNX files are recorded with onnx and onnxruntime",
            hint="pip install onnx onnxruntime",
        ) from None
    proto = onnx.load(os.fspath(path))
    known = {output.name for output in proto.graph.output}
    for node in proto.graph.node:
        for name in node.output:
            if name and name not in known:
                proto.graph.output.append(onnx.ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return proto, session
