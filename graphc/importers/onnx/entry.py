"""`from_onnx`: an ONNX model as a layer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from graphc.artifacts.vocabulary import Vocabulary
from graphc.build.specs import TensorSpec
from graphc.errors import ModelImportError, UnknownNameError, nearest
from graphc.importers.core.model import ImportedModel, ModelSource, try_build
from graphc.importers.core.refusals import Refusal, refuse_all
from graphc.importers.core.weights import Trainable, Weight, variable_name, with_trainable
from graphc.importers.core.words import NUMBERS, WordList, Words, together
from graphc.importers.onnx.call import Call, Refused
from graphc.importers.onnx.dtypes import dtype_of
from graphc.importers.onnx.importer import UNKNOWN, Importer, is_weight
from graphc.importers.onnx.reading import File, array_of, broken, read
from graphc.importers.onnx.values import is_strings
from graphc.ir.dims import symbols_of
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.typing import ArrayTree

if TYPE_CHECKING:
    import onnx

_STRING: Final = 8  # the number of the type


def _hint(inputs: Sequence[TensorSpec] = ()) -> str:
    """What to do about an operator that needs a value. It lists the named sizes of the inputs."""
    dims = [dim for spec in inputs for dim in spec.shape if dim is not None]
    names = sorted({name for dim in dims for name in symbols_of(dim)})
    listed = f" ({', '.join(map(repr, names))})" if names else ""
    return (
        f"give named sizes{listed} or inputs their values: gc.from_onnx(path, "
        "sizes={name: size}, fixed={name: value}), or replace these parts of the model"
    )


def from_onnx(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    trainable: Trainable = False,
    sizes: Mapping[str, int | str] | None = None,
    fixed: Mapping[str, ArrayTree] | None = None,
    name: str | None = None,
) -> ImportedModel:
    """An ONNX model as a layer: all operators of its graph become nodes (extra `onnx`).

    Floating initializers, and large ones of integers, become variables under their names; others
    are constants. Named dimensions stay named. Shapes, axes and similar operands must be known when
    the model is imported, or be computed from the shapes of inputs; `fixed` gives such inputs a
    value. Operators whose inputs are all known are computed at import.

    Args:
        model: the path of a file, its bytes, or a `ModelProto`. Files with external data must be
            given by path; their data must be in the same folder.
        trainable: which floating weights `gc.minimize` updates: True, or patterns of names.
        sizes: named dimension -> its size, such as {"batch": 4}, or what is known of it, such as
            {"height": "32*h"}. Axis 1 of an input "x" is named "x_1" if the model does not name it.
        fixed: input -> its value. It is then no input of the layer.
        name: the name scope of the variables; None for none.

    Raises:
        ModelFileError: the file is not a valid model.
        ModelImportError: the model has operators that cannot be imported; it names all of them.
        UnknownNameError: `sizes` or `fixed` has a name that the model does not have.
        MissingExtraError: the package onnx is not installed.

    Source: https://onnx.ai/onnx/repo-docs/IR.html

    Examples:
        >>> from onnx import TensorProto, helper
        >>> node = helper.make_node("Relu", ["x"], ["y"])
        >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch"]) for n in "xy")
        >>> proto = helper.make_model(helper.make_graph([node], "g", [x], [y]))
        >>> run(gc.from_onnx(proto)([-1.0, 3.0]))
        Array([0., 3.], dtype=float32)
    """
    file = read(model)
    proto = file.proto.graph
    arrays = {t.name: _array(t, file) for t in proto.initializer}
    arrays |= {t.values.name: _sparse(t, file) for t in proto.sparse_initializer}
    known = {name: _known(value) for name, value in (fixed or {}).items()}
    ports = [port for port in proto.input if port.name not in arrays]
    _check_names("fixed", known, [port.name for port in ports])
    specs = [_spec(port, sizes or {}, file) for port in ports if port.name not in known]
    _check_names("sizes", sizes or {}, _dims(proto))
    held = {name: array for name, array in arrays.items() if is_weight(array)}
    constants = {name: array for name, array in arrays.items() if name not in held} | known
    inputs = tuple(specs)
    texts = [port.name for port in ports if port.type.tensor_type.elem_type == _STRING]
    words = _Found(frozenset(texts), {}, {})
    weights = with_trainable("from_onnx", {n: Weight(a) for n, a in held.items()}, trainable)

    def build(weight: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
        return _run(Importer(file, held, constants, weight), inputs, tensors, words)

    outputs = tuple(port.name for port in proto.output)
    try_build(inputs, held, build)
    source = ModelSource(
        importer="from_onnx",
        name=proto.name or file.name,
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        build=lambda layer, tensors: build(layer.weight, tensors),
        input_vocabularies=words.inputs,
        output_vocabularies=words.outputs,
    )
    return ImportedModel(source, name)


class _Found(NamedTuple):
    """The words of inputs and outputs that are strings.

    Attributes:
        given: the names of the inputs that are strings.
        inputs, outputs: the words by name, once the graph was built.
    """

    given: frozenset[str]
    inputs: dict[str, Vocabulary]
    outputs: dict[str, Vocabulary]


def compute_known(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto, fixed: Mapping[str, ArrayTree]
) -> list[Any]:
    """The results of a model all of whose inputs are known, where each can be computed at import:
    arrays, also of strings, and lists for sequences. Nothing is compiled.

    Args:
        fixed: every input -> its value.

    Raises:
        ModelFileError, ModelImportError: see `from_onnx`.
    """
    file = read(model)
    arrays = {t.name: _array(t, file) for t in file.proto.graph.initializer}
    arrays |= {t.values.name: _sparse(t, file) for t in file.proto.graph.sparse_initializer}
    known = {name: _known(value) for name, value in fixed.items()}
    with Graph():
        importer = Importer(file, {}, {**arrays, **known}, lambda name: None)
        results = importer.run({})
    refuse_all("from_onnx", importer.refusals, _hint())
    computed = [
        Refusal(f"output {i}", "is computed when the model runs")
        for i, value in enumerate(results)
        if isinstance(value, Tensor)
    ]
    refuse_all("from_onnx", computed, "import it with from_onnx, and run it")
    return results


def _run(
    importer: Importer, inputs: Sequence[TensorSpec], tensors: Sequence[Tensor], words: _Found
) -> list[Tensor]:
    given: dict[str, Any] = dict(zip([str(spec.name) for spec in inputs], tensors, strict=True))
    for name in words.given & given.keys():
        given[name] = Words(given[name], WordList(is_open=True))
    results = importer.run(given)
    refuse_all("from_onnx", importer.refusals, _hint(inputs))
    call = Call("the model", 0, results, {}, [], importer._weight, lambda graph, values: [])
    found: list[Tensor] = []
    for number, (name, value) in enumerate(zip(importer.outputs, results, strict=True)):
        is_fixed = isinstance(value, Words) and not value.words.is_open
        try:
            if is_fixed or is_strings(value):
                (value,), known = together([value], is_strings)
                words.outputs[name] = known.vocabulary()
            found.append(call.tensor(None if value is UNKNOWN else value))
        except Refused as refused:
            refuse_all(
                "from_onnx",
                [Refusal(f"output {number}", f"cannot be one: it {refused.why}")],
                _hint(inputs),
            )
    for name in words.given & given.keys():
        words.inputs[name] = given[name].words.vocabulary()
    return found


def _known(value: Any) -> Any:
    """A fixed value: an array, a list of such for a sequence, or None for an optional value."""
    if value is None:
        return None
    if isinstance(value, list) and any(isinstance(item, (np.ndarray, list)) for item in value):
        return [_known(item) for item in value]
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def _array(tensor: Any, file: File) -> Any:
    try:
        return array_of(tensor, file.folder)
    except Refused as refused:
        raise ModelImportError.here(
            f"from_onnx: the initializer {tensor.name!r} {refused.why}"
        ) from refused


def _sparse(tensor: Any, file: File) -> Any:
    values, places = _array(tensor.values, file), _array(tensor.indices, file)
    shape = tuple(tensor.dims)
    dense = np.zeros(shape, values.dtype)
    try:
        if places.ndim == 1:
            dense.reshape(-1)[places] = values
        else:
            dense[tuple(places.T)] = values
    except IndexError as error:
        raise broken(f"{tensor.values.name} has an index outside of its shape {shape}") from error
    return dense


def _spec(port: Any, sizes: Mapping[str, int | str], file: File) -> TensorSpec:
    """The type of an input."""
    kind = port.type.WhichOneof("value")
    if kind == "optional_type":
        kind = port.type.optional_type.elem_type.WhichOneof("value")
    if kind != "tensor_type":
        what = str(kind).split("_")[0]
        raise ModelImportError.here(
            f"from_onnx: the input {port.name!r} of {file.name} is a {what}, not a tensor",
            hint="gc.from_onnx(path, fixed={name: value}) gives it a value",
        )
    type = port.type.tensor_type
    try:
        dtype = dtype_of(type.elem_type)
        dtype = NUMBERS if dtype.kind == "O" else dtype
    except Refused as refused:
        raise ModelImportError.here(
            f"from_onnx: the input {port.name!r} {refused.why}"
        ) from refused
    dims = [_dim(dim, i, port.name, sizes) for i, dim in enumerate(type.shape.dim)]
    return TensorSpec(dims, dtype, port.name)


def _dim(dim: Any, axis: int, name: str, sizes: Mapping[str, int | str]) -> Any:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return dim.dim_value
    own = _own_name(name, axis)
    if dim.dim_param in sizes or own in sizes:
        return sizes.get(dim.dim_param, sizes.get(own))
    return dim.dim_param if dim.dim_param.isidentifier() else own


def _own_name(name: str, axis: int) -> str:
    """The name of a size that has none in the model."""
    return f"{variable_name(name)}_{axis}"


def _dims(proto: Any) -> list[str]:
    """The names of sizes: those in the model, and ours for sizes that have no usable name."""
    found = []
    for port in proto.input:
        for axis, dim in enumerate(port.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                found += [dim.dim_param] * bool(dim.dim_param)
                found += [_own_name(port.name, axis)] * (not dim.dim_param.isidentifier())
    return found


def _check_names(what: str, given: Mapping[str, Any], known: Sequence[Any]) -> None:
    for name in given:
        if name not in known:
            raise UnknownNameError.here(
                f"from_onnx: {what} has {name!r}, which the model does not have",
                hint=nearest(name, [str(n) for n in known]),
            )
