"""`from_tflite`: a file of TensorFlow Lite as a layer."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from graphc.build.specs import TensorSpec
from graphc.errors import ModelFileError, ModelImportError, UnknownNameError, nearest
from graphc.importers.core.model import ImportedModel
from graphc.importers.core.weights import Trainable, Weight
from graphc.importers.tensorflow.frozen import read_file
from graphc.importers.tensorflow.graph import Edge
from graphc.importers.tensorflow.importing import Imported
from graphc.importers.tflite.flatbuffer import broken
from graphc.importers.tflite.operators import MOVES, OPERATORS
from graphc.importers.tflite.reading import LiteModel, Subgraph
from graphc.importers.tflite.rules import LITE_TABLES, WITH_WEIGHT
from graphc.importers.tflite.translation import Subgraphs

_HINT = "convert the model again without these operators, or import the SavedModel it was made of"
_DEFAULT = "serving_default"
_NOT_NUMBERS = (5, 13, 14)  # strings, resources, variants


def from_tflite(
    path: str | os.PathLike[str],
    signature: str | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    trainable: Trainable = False,
    name: str | None = None,
) -> ImportedModel:
    """A model of TensorFlow Lite (LiteRT) as a layer. Neither TensorFlow nor LiteRT is needed.

    Floating constants with at least one axis are weights, by the names of their tensors. Quantised
    constants that an operator computes with, and those in float16, are float32 weights, with the
    real values. Quantised inputs and outputs stay integers: operators compute with the real values,
    and round to the scales of their results. The states of recurrent layers are zeros at the begin
    of each call.

    Args:
        path: the file, ".tflite".
        signature: the name of a signature, whose inputs and outputs are the layer's. By default
            "serving_default", or the only one; the names of tensors if the file has none.
        sizes: the values of named sizes, which are those that the file leaves open: "batch" of the
            first axes of all inputs, "tokens_1" of axis 1 of the input "tokens".
        trainable: which weights `gc.minimize` updates: True, False, or patterns of names.
        name: the name scope of the variables.

    Returns:
        A layer; see `gc.ImportedModel`. Assignments of the model's variables are in the collection
        "updates".

    Raises:
        ModelFileError: the file is missing, truncated, altered, or no model of TensorFlow Lite.
        ModelImportError: the model has operators that cannot be imported, such as custom ones; the
            error names all.
        UnknownNameError: there is no such signature or size.

    Examples:
        >>> gc.from_tflite("no_model.tflite")
        Traceback (most recent call last):
        ...
        graphc.errors.ModelFileError: from_tflite: no_model.tflite cannot be read: ...
    """
    file = Path(path)
    data = read_file("from_tflite", file)
    try:
        return _imported(LiteModel(data), file.stem, signature, sizes).model(trainable, name)
    except ModelFileError as error:
        error.details = (*error.details, f"in {file}")
        raise


def _imported(
    model: LiteModel, name: str, signature: str | None, sizes: Mapping[str, int] | None
) -> Imported:
    """A signature of a model, with its inputs, outputs, updates and weights."""
    index, inputs, outputs = _chosen(model, signature)
    subgraph = model.subgraph(index)
    library = Subgraphs(model, OPERATORS, MOVES)
    graph = library.graph(index)
    parameters = dict(zip(subgraph.inputs, graph.parameters, strict=True))
    specs = _specs(subgraph, inputs, parameters, dict(sizes or {}))
    places = dict(zip(subgraph.outputs, graph.results, strict=True))
    if any(number not in places for number in outputs.values()):
        raise broken("the signature names a tensor that is not an output")
    wanted = {label: places[number] for label, number in outputs.items()}
    imported = Imported("from_tflite", name, graph, wanted, specs)
    imported.tables, imported.hint = LITE_TABLES, _HINT
    imported.updates = graph.control_results
    used = {node.attr("name") for node in imported.reachable() if node.op in WITH_WEIGHT}
    imported.weights = {k: Weight(array) for k, array in library.weights.items() if k in used}
    return imported


def _specs(
    subgraph: Subgraph,
    inputs: Mapping[str, int],
    parameters: Mapping[int, str],
    given: Mapping[str, int],
) -> dict[str, tuple[Edge, TensorSpec]]:
    """The inputs with their types.

    Args:
        inputs: the tensor of each input.
        parameters: the node of each tensor that is a parameter of the graph.
        given: values of open sizes.
    """
    specs: dict[str, tuple[Edge, TensorSpec]] = {}
    open_sizes: set[str] = set()
    for label, number in inputs.items():
        if number not in parameters:
            raise broken(f"the signature names {label[:100]!r}, which is not an input")
        tensor = subgraph.tensors[number]
        if tensor.kind in _NOT_NUMBERS:
            raise ModelImportError.here(
                f"from_tflite: the input {label!r} is not a tensor of numbers",
                hint="cut the model behind it before it is converted",
            )
        names = _size_names(label, len(tensor.shape), open_sizes)
        shape: list[int | str] = []
        for size, own in zip(tensor.shape, names, strict=True):
            shape.append(size if size >= 0 else given.get(own, own))
            open_sizes |= {own} if size < 0 else set()
        specs[label] = (Edge(parameters[number], 0), TensorSpec(shape, tensor.dtype.dtype, label))
    for name in given:
        if name not in open_sizes:
            raise UnknownNameError.here(
                f"from_tflite: there is no size {name!r}",
                hint=nearest(name, sorted(open_sizes), "the inputs"),
            )
    return specs


def _chosen(model: LiteModel, name: str | None) -> tuple[int, dict[str, int], dict[str, int]]:
    """The subgraph of a signature, and the numbers of its inputs and outputs by name, in the order
    of the subgraph."""
    signatures = model.signatures
    if name is None and signatures:
        name = _DEFAULT if _DEFAULT in signatures or len(signatures) > 1 else next(iter(signatures))
    if name is None:
        graph = model.subgraph(0)
        return 0, _by_name(graph, graph.inputs), _by_name(graph, graph.outputs)
    if name not in signatures:
        raise UnknownNameError.here(
            f"from_tflite: there is no signature {name!r}",
            hint=nearest(name, signatures, "the file"),
        )
    found = signatures[name]
    graph = model.subgraph(found.subgraph)
    inputs = _ordered(found.inputs, graph.inputs)
    unnamed = [number for number in graph.inputs if number not in inputs.values()]
    return found.subgraph, inputs | _by_name(graph, unnamed), _ordered(found.outputs, graph.outputs)


def _size_names(label: str, rank: int, taken: set[str]) -> list[str]:
    """The names of the sizes of an input, if they are open."""
    base = re.sub(r"\W", "_", label, flags=re.ASCII)
    base = base if base[:1].isalpha() else f"input_{base}"
    while any(name.startswith(f"{base}_") for name in taken):
        base += "_"
    return ["batch", *(f"{base}_{axis}" for axis in range(1, rank))][:rank]


def _by_name(graph: Subgraph, numbers: list[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number in numbers:
        label = graph.tensors[number].name or f"tensor_{number}"
        found[label if label not in found else f"{label}_{number}"] = number
    return found


def _ordered(names: dict[str, int], order: list[int]) -> dict[str, int]:
    rank = {number: i for i, number in enumerate(order)}
    return dict(sorted(names.items(), key=lambda item: rank.get(item[1], len(rank))))
