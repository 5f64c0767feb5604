"""`from_graphdef`: a frozen graph."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from graphc.errors import ArgumentError, ModelFileError
from graphc.importers.core.model import ImportedModel
from graphc.importers.core.weights import Trainable
from graphc.importers.tensorflow.choosing import (
    Checkpoint,
    Outputs,
    Specs,
    chosen_inputs,
    chosen_outputs,
)
from graphc.importers.tensorflow.graph import TFGraph, read_graph
from graphc.importers.tensorflow.importing import Imported, take_constants
from graphc.importers.tensorflow.restoring import restored_keys
from graphc.importers.tensorflow.rules.table import output_index
from graphc.ir.mapped import MappedFile
from graphc.train.tensorflow.checkpoint import open_checkpoint
from graphc.train.tensorflow.schema import parse_either, parse_file


class Message(Protocol):
    """A message of protocol buffers, such as TensorFlow's GraphDef."""

    def SerializeToString(self) -> bytes:
        """Its bytes."""


def from_graphdef(
    graph: str | os.PathLike[str] | bytes | Message,
    outputs: Outputs = None,
    inputs: Specs = None,
    *,
    checkpoint: Checkpoint = None,
    trainable: Trainable = False,
    name: str | None = None,
) -> ImportedModel:
    """A graph of TensorFlow as a layer. TensorFlow is not needed.

    The floating constants of the graph with at least one axis become variables with the names of
    their nodes; all others stay constants. Queues, readers and iterators are cut off: their
    results become inputs.

    Args:
        graph: a file (".pb", or ".pbtxt" in text form), its bytes, or a GraphDef.
        outputs: the names of the results ("softmax", "split:1"), or a dict of names of your choice
            and TensorFlow's; by default the results that no other node takes.
        inputs: the names of the inputs, or a dict of names and `gc.TensorSpec`s for those whose
            shape is not in the graph. What the outputs need besides becomes inputs, too. An unknown
            leading size is "batch".
        checkpoint: the values of the graph's variables, if it is not frozen: the prefix of a
            checkpoint (see `gc.train.read_tf_checkpoint`), or a dict of arrays by name.
        trainable: which weights `gc.minimize` updates: True, False, or patterns of names.
        name: the name scope of the variables.

    Returns:
        A layer; see `gc.ImportedModel`.

    Raises:
        ModelFileError: the file is truncated, altered, or no GraphDef.
        ModelImportError: the graph has operators that cannot be imported; the error names all.
        UnknownNameError: the graph has no such node.
        ArgumentError: the shape or dtype of an input is not in the graph.
        MissingExtraError: protobuf is not installed.

    Examples:
        >>> text = '''node { name: "x" op: "Placeholder" attr { key: "dtype" value {
        ...   type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: -1 } } } } }
        ...   node { name: "y" op: "Square" input: "x" }'''
        >>> model = gc.from_graphdef(text.encode(), outputs="y")
        >>> run(model([1.0, 2.0, 3.0]))
        Array([1., 4., 9.], dtype=float32)
    """
    label, read = read_graph_file("from_graphdef", graph)
    wanted = chosen_outputs("from_graphdef", read, outputs)
    found = chosen_inputs("from_graphdef", read, wanted.values(), inputs)
    imported = Imported("from_graphdef", label, read, wanted, found)
    values = None if checkpoint is None else open_checkpoint(checkpoint)
    imported.take_variables(values, restored_keys(read, None), {})
    take_constants(imported)
    return imported.model(trainable, name)


def read_graph_file(importer: str, source: Any) -> tuple[str, TFGraph]:
    """The name and the graph of a file, of bytes or of a message."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return path.stem, _graph_of(*read_message(importer, "GraphDef", path), path.name)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "graph", _graph_in(bytes(source))
    if hasattr(source, "SerializeToString"):
        return "graph", _graph_in(source.SerializeToString())
    raise ArgumentError.here(
        f"{importer}: a graph is a path, bytes or a GraphDef, got {type(source).__name__}",
        hint='pass the path of the file: gc.from_graphdef("frozen.pb")',
    )


def _graph_in(data: bytes) -> TFGraph:
    return _graph_of(parse_either("GraphDef", data, "the GraphDef"), None, "the GraphDef")


def _graph_of(proto: Any, file: MappedFile | None, what: str) -> TFGraph:
    if not len(proto.node):
        raise ModelFileError.here(
            f"{what} has no nodes: it is not a GraphDef",
            hint="a SavedModel is a folder: gc.from_saved_model(folder); a .meta file is for "
            "gc.from_meta_graph",
        )
    return read_graph(proto, output_index, file)


def read_message(importer: str, kind: str, path: Path) -> tuple[Any, MappedFile | None]:
    """The message in a file; see `schema.parse_file`.

    Raises:
        ModelFileError: the file cannot be read, or is not such a message.
    """
    try:
        return parse_file(kind, path)
    except OSError as error:
        raise _unreadable(importer, path, error) from None


def read_file(importer: str, path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        ModelFileError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(importer, path, error) from None


def _unreadable(importer: str, path: Path, error: OSError) -> ModelFileError:
    return ModelFileError.here(
        f"{importer}: {path.name} cannot be read: {error.strerror or error}", hint="check the path"
    )
