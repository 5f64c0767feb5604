"""`from_saved_model` and `from_meta_graph`: graphs with signatures and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphc.build.specs import TensorSpec
from graphc.errors import ModelFileError, UnknownNameError, nearest
from graphc.importers.core.model import ImportedModel
from graphc.importers.core.weights import Trainable
from graphc.importers.core.words import NUMBERS
from graphc.importers.tensorflow.choosing import (
    Checkpoint,
    Outputs,
    Specs,
    chosen_inputs,
    chosen_outputs,
)
from graphc.importers.tensorflow.frozen import read_message
from graphc.importers.tensorflow.graph import Edge, TFGraph, read_graph
from graphc.importers.tensorflow.importing import Imported, take_constants
from graphc.importers.tensorflow.restoring import restored_keys
from graphc.importers.tensorflow.rules.table import CUT, output_index
from graphc.importers.tensorflow.table_files import assets_of
from graphc.ir.mapped import MappedFile
from graphc.train.tensorflow.checkpoint import Bundle, open_checkpoint
from graphc.train.tensorflow.schema import parse
from graphc.train.tensorflow.tensors import broken, dtype_of, shape_of


def from_saved_model(
    folder: str | os.PathLike[str],
    signature: str = "serving_default",
    *,
    tags: Iterable[str] = ("serve",),
    sizes: Mapping[str, int] | None = None,
    trainable: Trainable | None = None,
    name: str | None = None,
) -> ImportedModel:
    """A signature of a SavedModel (of TensorFlow 1 or 2, Keras, `jax2tf` or `gc.to_saved_model`) as
    a layer. TensorFlow is not needed.

    Args:
        folder: the folder with "saved_model.pb" and, if the model has variables, "variables/".
        signature: the name of the signature, whose inputs and outputs are the layer's.
        tags: of the graph in the file.
        sizes: {"batch": 8} gives the first axis of inputs this size, if it is open in the file.
            Models of JAX need it: their programs are for known sizes.
        trainable: which weights `gc.minimize` updates: True, False, or patterns of names; None:
            those that are trainable in TensorFlow.
        name: the name scope of the variables.

    Returns:
        A layer; see `gc.ImportedModel`. Its variables have TensorFlow's names, such as
        "dense/kernel". Assignments that a run of the signature makes are made here, too, and are in
        the collection "updates".

    Raises:
        ModelFileError: a file is missing, truncated or altered.
        ModelImportError: the graph has operators that cannot be imported; the error names all.
        UnknownNameError: there is no such signature, size, or graph with these tags.
        MissingExtraError: protobuf or google-crc32c is not installed.

    Examples:
        >>> gc.from_saved_model("no_model")
        Traceback (most recent call last):
        ...
        graphc.errors.ModelFileError: from_saved_model: saved_model.pb cannot be read: ...
    """
    path, given = Path(folder), {} if sizes is None else dict(sizes)
    for size in given:
        if size != "batch":
            raise UnknownNameError.here(
                f"from_saved_model: there is no size {size!r}",
                hint='the only one is that of the first axis: sizes={"batch": 8}',
            )
    meta, content = _meta_graph(path, set(tags))
    if signature not in meta.signature_def:
        raise UnknownNameError.here(
            f"from_saved_model: there is no signature {signature!r}",
            hint=nearest(signature, list(meta.signature_def)),
        )
    chosen = meta.signature_def[signature]
    graph = read_graph(meta.graph_def, output_index, content)
    outputs = {key: _edge(graph, info) for key, info in sorted(chosen.outputs.items())}
    inputs = {
        key: (_edge(graph, info), _spec(key, info, given.get("batch", "batch")))
        for key, info in sorted(chosen.inputs.items())
    }
    prefix = path / "variables" / "variables"
    has_variables = prefix.with_name("variables.index").exists()
    bundle = Bundle(prefix) if has_variables else None
    imported = Imported("from_saved_model", path.name, graph, outputs, inputs)
    imported.assets = assets_of(meta, path)
    return _with_values(imported, meta, bundle).model(trainable, name)


def from_meta_graph(
    path: str | os.PathLike[str],
    checkpoint: Checkpoint = None,
    outputs: Outputs = None,
    inputs: Specs = None,
    *,
    trainable: Trainable | None = None,
    name: str | None = None,
) -> ImportedModel:
    """A graph of TensorFlow 1 with a checkpoint, as `tf.train.Saver` writes them, as a layer.

    Args:
        path: of the file ".meta" (or its text form, ".pbtxt").
        checkpoint: the prefix of the checkpoint, by default `path` without ".meta"; or a dict of
            arrays by name.
        outputs, inputs: as of `gc.from_graphdef`.
        trainable: as of `gc.from_saved_model`; None: the collection "trainable_variables".
        name: the name scope of the variables.

    Returns:
        A layer; see `gc.ImportedModel`. The nodes of the collection "update_ops", such as the
        moving averages of batch normalisation, are in the collection "updates" if the outputs need
        what they update.

    Raises:
        ModelFileError: a file is missing, truncated or altered.
        ModelImportError: the graph has operators that cannot be imported; the error names all.
        UnknownNameError: the graph has no such node.
        MissingExtraError: protobuf or google-crc32c is not installed.

    Examples:
        >>> gc.from_meta_graph("model.ckpt.meta")
        Traceback (most recent call last):
        ...
        graphc.errors.ModelFileError: from_meta_graph: model.ckpt.meta cannot be read: ...
    """
    file = Path(path)
    meta, content = read_message("from_meta_graph", "MetaGraphDef", file)
    graph = read_graph(meta.graph_def, output_index, content)
    if not graph.nodes:
        raise ModelFileError.here(
            f"{file.name} has no nodes: it is not a MetaGraphDef",
            hint="a GraphDef is for gc.from_graphdef(path, checkpoint=...)",
        )
    wanted = chosen_outputs("from_meta_graph", graph, outputs)
    found = chosen_inputs("from_meta_graph", graph, wanted.values(), inputs)
    if checkpoint is None:
        prefix = file.with_suffix("") if file.suffix == ".meta" else file
        exists = prefix.with_name(prefix.name + ".index").exists()
        values = open_checkpoint(prefix) if exists else None
    else:
        values = open_checkpoint(checkpoint)
    imported = Imported("from_meta_graph", file.stem, graph, wanted, found)
    imported.updates = _update_nodes(meta, imported)
    return _with_values(imported, meta, values).model(trainable, name)


def _with_values(imported: Imported, meta: Any, values: Any) -> Imported:
    keys = restored_keys(imported.graph, _node(meta.saver_def.restore_op_name))
    keys = keys or restored_keys(imported.graph, None)
    imported.take_variables(values, keys, _trainable(meta))
    take_constants(imported)
    return imported


def _node(name: str) -> str | None:
    return name.partition(":")[0] or None


def _meta_graph(path: Path, tags: set[str]) -> tuple[Any, MappedFile | None]:
    binary = path / "saved_model.pb"
    text = path / "saved_model.pbtxt"
    file = text if text.exists() and not binary.exists() else binary
    model, content = read_message("from_saved_model", "SavedModel", file)
    if not len(model.meta_graphs):
        raise broken("saved_model.pb has no graph: it is no SavedModel")
    for meta in model.meta_graphs:
        if set(meta.meta_info_def.tags) == tags:
            return meta, content
    known = [sorted(meta.meta_info_def.tags) for meta in model.meta_graphs]
    raise UnknownNameError.here(
        f"from_saved_model: there is no graph with the tags {sorted(tags)}",
        hint=f"the file has {', '.join(map(str, known[:5]))}: tags={known[0]}",
    )


def _edge(graph: TFGraph, info: Any) -> Edge:
    if not info.name:
        raise broken("the signature has a value that is not one tensor")
    node, _, index = info.name.partition(":")
    graph.node(node)
    if not (index or "0").isdigit():
        raise broken(f"the signature names {info.name!r}, which is not a tensor")
    return Edge(node, int(index or 0))


def _spec(key: str, info: Any, batch: int | str) -> TensorSpec:
    dtype, shape = dtype_of(info.dtype, f"the input {key!r}"), shape_of(info.tensor_shape)
    if shape is None:
        raise UnknownNameError.here(
            f"from_saved_model: the input {key!r} of the signature has an unknown number of axes",
            hint="choose another signature, or read its graph with gc.from_graphdef and give the "
            "shape",
        )
    dtype = NUMBERS if dtype.kind == "O" else dtype
    sizes: Sequence[Any] = [
        batch if i == 0 and size is None else size for i, size in enumerate(shape)
    ]
    return TensorSpec(tuple(sizes), dtype, key)


def _trainable(meta: Any) -> dict[str, bool]:
    """Which variables are trainable, by key of the checkpoint or by name."""
    found: dict[str, bool] = {}
    collections = meta.collection_def
    trained = "trainable_variables" in collections
    for data in collections["trainable_variables"].bytes_list.value if trained else ():
        definition = parse("VariableDef", data, "an entry of 'trainable_variables'")
        found[definition.variable_name.partition(":")[0]] = True
    objects = meta.object_graph_def.nodes
    for path, number in _paths(objects).items():
        if objects[number].HasField("variable"):
            variable = objects[number].variable
            found[f"{path}/.ATTRIBUTES/VARIABLE_VALUE"] = variable.trainable
    return found


def _paths(objects: Any) -> dict[str, int]:
    """The paths of objects from the root, breadth first as TensorFlow forms keys."""
    found: dict[str, int] = {}
    seen = {0}
    open_paths = [("", 0)]
    for path, number in open_paths:
        if number >= len(objects):
            continue
        for child in objects[number].children:
            if child.node_id not in seen and 0 <= child.node_id < len(objects):
                seen.add(child.node_id)
                local = child.local_name.replace(".", "..").replace("/", ".S")
                longer = f"{path}/{local}" if path else local
                found[longer] = child.node_id
                open_paths.append((longer, child.node_id))
    return found


def _update_nodes(meta: Any, imported: Imported) -> tuple[str, ...]:
    """The nodes of "update_ops" that need no other inputs than the outputs do."""
    if "update_ops" not in meta.collection_def:
        return ()
    graph = imported.graph
    own = {node.name for node in imported.reachable()}
    cut = {edge.node for edge, _ in imported.inputs.values()}
    names = []
    for text in meta.collection_def["update_ops"].node_list.value:
        name = text.partition(":")[0]
        if name not in graph.nodes:
            raise broken(f"the collection 'update_ops' names {name!r}, which the graph lacks")
        needs = graph.ancestors([name], controls=False)
        fed = [n for n in needs.values() if n.op in CUT and n.name not in cut]
        if not fed and own & needs.keys():
            names.append(name)
    return tuple(names)
