"""Which tensors of a graph are the inputs and outputs of the model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from graphc.build.specs import TensorSpec
from graphc.errors import ArgumentError, ModelImportError
from graphc.importers.core.words import NUMBERS
from graphc.importers.tensorflow.evaluation import effects_of
from graphc.importers.tensorflow.graph import Edge, TFGraph, TFNode
from graphc.importers.tensorflow.rules.table import CUT, TABLES
from graphc.train.tensorflow.tensors import DTypeNumber

Specs: TypeAlias = Mapping[str, TensorSpec | None] | Iterable[str] | None
"""The names of inputs, with specs where the graph does not say the shape."""
Outputs: TypeAlias = str | Iterable[str] | Mapping[str, str] | None
"""The names of outputs; with a dict, by names of the user's choice."""
Checkpoint: TypeAlias = str | os.PathLike[str] | Mapping[str, ArrayLike] | None
"""The prefix of a checkpoint, or arrays by name."""


def chosen_outputs(importer: str, graph: TFGraph, outputs: Any) -> dict[str, Edge]:
    """The outputs by name: those that the user names, or all nodes that no other one takes.

    Raises:
        UnknownNameError: the graph has no such node.
        ModelImportError: the graph has no outputs.
    """
    if isinstance(outputs, str):
        outputs = [outputs]
    if isinstance(outputs, Mapping):
        return {str(k): graph.edge(str(v), importer) for k, v in outputs.items()}
    if outputs is not None:
        return {str(name): graph.edge(str(name), importer) for name in outputs}
    taken = {e.node for n in graph.nodes.values() for e in n.inputs}
    taken |= {c for n in graph.nodes.values() for c in n.controls}
    ends = [n.name for n in graph.nodes.values() if n.name not in taken and n.op not in _NO_RESULT]
    if not ends:
        raise ModelImportError.here(
            f"{importer}: the graph has no node whose result is an output",
            hint='name them: outputs=["softmax"]',
        )
    return {name: Edge(name, 0) for name in ends}


_NO_RESULT = frozenset(("NoOp", "Assert", "Const", "Placeholder", "SaveV2", "MergeV2Checkpoints"))


def chosen_inputs(
    importer: str, graph: TFGraph, outputs: Iterable[Edge], inputs: Specs
) -> dict[str, tuple[Edge, TensorSpec]]:
    """The inputs by name: those that the user names, and all others that the outputs need.

    Raises:
        UnknownNameError: the graph has no such node.
        ArgumentError: the shape or dtype of an input is not in the graph.
    """
    if isinstance(inputs, str):
        inputs = [inputs]
    given = dict(inputs) if isinstance(inputs, Mapping) else dict.fromkeys(inputs or ())
    found: dict[str, tuple[Edge, TensorSpec]] = {}
    for text, spec in given.items():
        edge = graph.edge(str(text), importer)
        found[str(text)] = (edge, _spec_of(importer, graph, edge, spec))
    cut = {edge for edge, _ in found.values()}
    own: dict[str, tuple[Edge, TensorSpec]] = {}
    for node in _reached(graph, outputs, cut):
        if node.op not in CUT:
            continue
        for index in _used_results(graph, node):
            edge = Edge(node.name, index)
            if edge not in cut:
                label = node.name if node.op.startswith("Placeholder") else str(edge)
                own[label] = (edge, _spec_of(importer, graph, edge, None))
    return found | _with_batch(own)


def _with_batch(inputs: dict[str, tuple[Edge, TensorSpec]]) -> dict[str, tuple[Edge, TensorSpec]]:
    """The inputs, where the unknown leading size is "batch" if only one has such a size."""
    free = [label for label, (_, spec) in inputs.items() if spec.shape[:1] == (None,)]
    if len(free) == 1:
        edge, spec = inputs[free[0]]
        named = TensorSpec(("batch", *spec.shape[1:]), spec.dtype, spec.name)
        inputs = {**inputs, free[0]: (edge, named)}
    return inputs


def _reached(graph: TFGraph, outputs: Iterable[Edge], cut: set[Edge]) -> list[TFNode]:
    """The nodes behind the outputs up to inputs, in the order of the file."""
    effects = effects_of(graph, TABLES.writes)
    seen: set[str] = set()
    stack = [edge for edge in outputs if edge not in cut]
    while stack:
        edge = stack.pop()
        if edge.node in seen:
            continue
        seen.add(edge.node)
        node = graph.node(edge.node)
        if node.op not in CUT:
            stack.extend(e for e in node.inputs if e not in cut)
            stack.extend(Edge(name, 0) for name in node.controls if name in effects)
    return [node for node in graph.nodes.values() if node.name in seen]


def _used_results(graph: TFGraph, node: TFNode) -> list[int]:
    used = {
        e.index for n in graph.consumers.get(node.name, ()) for e in n.inputs if e.node == node.name
    }
    return sorted(used) or [0]


def _spec_of(importer: str, graph: TFGraph, edge: Edge, given: Any) -> TensorSpec:
    if given is not None:
        spec = TensorSpec.of(given)
        return TensorSpec(spec.shape, spec.dtype, edge.node)
    node = graph.node(edge.node)
    dtype, shape = _dtype_of(node, edge.index), _shape_of(node, edge.index)
    strings = dtype is not None and dtype.kind == "O"
    if takes_strings(node) and shape is not None:
        return TensorSpec(shape, NUMBERS, edge.node)
    if dtype is None or strings or shape is None:
        parsed = strings and not takes_strings(node)
        missing = "takes strings" if parsed else "does not say its shape and dtype"
        wanted = NUMBERS.name if strings else "float32"
        raise ArgumentError.here(
            f"{importer}: the input {str(edge)!r} ({node.op}) {missing}",
            hint="choose inputs behind the parsing of strings: inputs=[...]"
            if parsed
            else f'inputs={{"{edge.node}": gc.TensorSpec((None, 3), "{wanted}")}}',
        )
    return TensorSpec(shape, dtype, edge.node)


def takes_strings(node: TFNode) -> bool:
    """Whether a node is an input of strings: then the input of the model are the numbers of
    words."""
    dtype = _dtype_of(node, 0)
    return node.op.startswith("Placeholder") and dtype is not None and dtype.kind == "O"


def _dtype_of(node: TFNode, index: int) -> np.dtype[Any] | None:
    for name in ("dtype", "T", "output_types", "component_types", "Tout"):
        value = node.attr(name)
        if isinstance(value, list) and index < len(value):
            value = value[index]
        if isinstance(value, DTypeNumber):
            return value.dtype
    return np.dtype(object) if node.op in CUT and not node.op.startswith("Placeholder") else None


def _shape_of(node: TFNode, index: int) -> tuple[int | None, ...] | None:
    for name in ("shape", "output_shapes", "_output_shapes", "shapes"):
        value = node.attr(name)
        if isinstance(value, list):
            value = value[index] if index < len(value) else None
        if isinstance(value, tuple) and (value or node.op.startswith(("Placeholder", "Iterator"))):
            return value
    return None
