"""Which key of a checkpoint belongs to which variable of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphc.errors import ModelImportError
from graphc.importers.core.weights import Weight
from graphc.importers.tensorflow.evaluation import called_functions
from graphc.importers.tensorflow.frames import behind
from graphc.importers.tensorflow.graph import TFGraph, TFNode
from graphc.train.tensorflow.checkpoint import Bundle
from graphc.train.tensorflow.tensors import DTypeNumber, broken

VARIABLES = frozenset(("VariableV2", "Variable", "VarHandleOp"))
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_ASSIGNS = frozenset(("Assign", "AssignVariableOp"))


def restored_keys(graph: TFGraph, start: str | None) -> dict[str, str]:
    """The keys of the checkpoint by the node of the variable, as the graph's own restoring assigns
    them.

    Args:
        start: the node that restores all; None for all restoring in the graph.
    """
    found: dict[str, str] = {}
    if start is not None and start not in graph.nodes:
        return found
    nodes = graph.ancestors([start]) if start is not None else graph.nodes
    for node in nodes.values():
        if node.op in _ASSIGNS and len(node.inputs) == 2:
            _note(found, graph, node, {})
        for body in called_functions(graph, node) if node.op.endswith("PartitionedCall") else ():
            arguments = {
                name: behind(graph, edge).node
                for name, edge in zip(body.parameters, node.inputs, strict=False)
            }
            for inner in body.nodes.values():
                if inner.op in _ASSIGNS and len(inner.inputs) == 2:
                    _note(found, body, inner, arguments)
    return found


def _note(
    found: dict[str, str], graph: TFGraph, node: TFNode, arguments: Mapping[str, str]
) -> None:
    variable = behind(graph, node.inputs[0]).node
    variable = arguments.get(variable, variable)
    edge = behind(graph, node.inputs[1], "Reshape")
    value = graph.nodes.get(edge.node)
    if value is None or value.op != "RestoreV2" or len(value.inputs) < 2:
        return
    names = graph.nodes.get(value.inputs[1].node)
    keys = None if names is None else names.attr("value")
    if isinstance(keys, np.ndarray) and edge.index < keys.size and keys.dtype.kind == "O":
        found[variable] = keys.reshape(-1)[edge.index].decode("utf-8", "replace")


def variable_weights(
    importer: str,
    nodes: Iterable[TFNode],
    checkpoint: Any,
    keys: Mapping[str, str],
    trainable: Mapping[str, bool],
) -> tuple[dict[str, Weight], dict[str, str]]:
    """The weights by name, and their names by the node of the variable.

    Args:
        nodes: those that are needed; the variables among them are read.
        checkpoint: a `Bundle`, a mapping of arrays, or None.
        keys: the keys of the checkpoint by node, as far as the graph says it.
        trainable: by key or name, as far as the file says it.

    Raises:
        ModelImportError: a variable has no value.
    """
    weights: dict[str, Weight] = {}
    names: dict[str, str] = {}
    used: dict[str, str] = {}
    missing: list[str] = []
    by_name = checkpoint.names() if isinstance(checkpoint, Bundle) else {}
    full_names = {key: name for name, key in by_name.items()}
    known = () if checkpoint is None else checkpoint
    for node in nodes:
        if node.op not in VARIABLES:
            continue
        label = _label(node)
        names_of_it = (keys.get(node.name), label, node.name, by_name.get(label))
        key = next((k for k in names_of_it if k is not None and k in known), None)
        if key is None:
            missing.append(f"{label}  ({node.op})")
            continue
        if key not in used:  # several nodes may be handles of one variable
            name = full_names.get(key, label)
            used[key] = name if name not in weights else key.removesuffix(_SUFFIX)
            is_trained = trainable.get(key, trainable.get(label, trainable.get(node.name, False)))
            weights[used[key]] = Weight(_value(node, checkpoint, key), is_trained)
        names[node.name] = used[key]
    if missing:
        raise ModelImportError.here(
            f"{importer}: {len(missing)} variables have no value",
            details=missing[:20],
            hint='give the checkpoint that has them: checkpoint=PREFIX, without ".index"',
        )
    return weights, names


def _label(node: TFNode) -> str:
    """The name that a variable's node shares with others, or its own."""
    shared = node.attr("shared_name")
    return shared.decode("utf-8", "replace") if isinstance(shared, bytes) and shared else node.name


def _value(node: TFNode, checkpoint: Any, key: str) -> Any:
    """The value of a variable, of the dtype of its node.

    Raises:
        ModelFileError: it has another shape, or is of strings.
    """
    if isinstance(checkpoint, Bundle):
        array = checkpoint.array(key, copy=False)
    else:
        dtype = node.attr("dtype")
        known = isinstance(dtype, DTypeNumber)
        array = np.asarray(checkpoint[key], dtype.dtype if known else None)
    shape = node.attr("shape")
    if array.dtype.kind == "O":
        raise broken(f"the variable {key!r} holds strings")
    if isinstance(shape, tuple) and (
        len(shape) != array.ndim
        or any(s is not None and s != d for s, d in zip(shape, array.shape, strict=True))
    ):
        raise broken(f"the variable {key!r} is {array.shape} in the checkpoint, not {shape}")
    return array
