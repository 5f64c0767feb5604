"""`gc.import_model`: a file of another framework as a layer, whatever the framework is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from graphc.errors import AttributeValueError, ModelFileError
from graphc.importers.core.model import ImportedModel
from graphc.importers.core.weights import Trainable

_BYTECODE = b"ML\xefR"
_LITE = b"TFL3"
_START = 1 << 12  # bytes that are looked at


class Format(NamedTuple):
    """A format of models.

    Attributes:
        name: as people call it.
        module, function: the importer.
        options: the options of `import_model` that it takes.
    """

    name: str
    module: str
    function: str
    options: frozenset[str]


def _format(name: str, module: str, function: str, options: str) -> Format:
    return Format(name, f"graphc.importers.{module}", function, frozenset(options.split()))


ONNX: Final = _format("ONNX", "onnx.entry", "from_onnx", "trainable sizes name")
GRAPHDEF: Final = _format(
    "GraphDef", "tensorflow.frozen", "from_graphdef", "trainable name outputs"
)
META_GRAPH: Final = _format(
    "MetaGraph", "tensorflow.saved_model", "from_meta_graph", "trainable name outputs"
)
SAVED_MODEL: Final = _format(
    "SavedModel", "tensorflow.saved_model", "from_saved_model", "trainable sizes name signature"
)
STABLEHLO: Final = _format("StableHLO", "stablehlo.model", "from_stablehlo", "trainable sizes name")
TFLITE: Final = _format(
    "TensorFlow Lite", "tflite.entry", "from_tflite", "trainable sizes name signature"
)
TORCH: Final = _format("torch.export", "torch.entry", "from_torch", "trainable name")

_SUFFIXES: Final[Mapping[str, Format]] = {
    ".jax": STABLEHLO,
    ".meta": META_GRAPH,
    ".mlir": STABLEHLO,
    ".mlirbc": STABLEHLO,
    ".onnx": ONNX,
    ".pb": GRAPHDEF,
    ".pbtxt": GRAPHDEF,
    ".pt2": TORCH,
    ".stablehlo": STABLEHLO,
    ".tflite": TFLITE,
}
_OF_TORCH: Final = (
    "is of torch.save, which PyTorch executes code from when it loads it",
    "save the program of the module: torch.export.save(program, 'model.pt2')",
)
_OTHERS: Final[Mapping[str, tuple[str, str]]] = {
    ".gguf": ("has weights, and no model", "gc.read_gguf(path) reads them"),
    ".gcx": ("is an artifact of graphc", "gc.load(path) loads it"),
    ".keras": ("is of Keras", "model.export(folder) writes a SavedModel, which is imported"),
    ".h5": ("is of Keras", "model.export(folder) writes a SavedModel, which is imported"),
    ".pt": _OF_TORCH,
    ".pth": _OF_TORCH,
    ".safetensors": ("has weights, and no model", "gc.read_safetensors(path) reads them"),
}


def import_model(
    path: str | os.PathLike[str],
    *,
    trainable: Trainable | None = None,
    sizes: Mapping[str, int] | None = None,
    name: str | None = None,
    outputs: Sequence[str] | None = None,
    signature: str | None = None,
) -> ImportedModel:
    """A model of another framework as a layer. The importer is chosen by the file.

    | file | importer |
    |---|---|
    | .onnx | `gc.from_onnx` |
    | .pb, .pbtxt | `gc.from_graphdef` |
    | .meta | `gc.from_meta_graph` |
    | a folder with saved_model.pb | `gc.from_saved_model` |
    | .mlir, .mlirbc, .stablehlo, .jax | `gc.from_stablehlo` |
    | .pt2 | `gc.from_torch` |
    | .tflite | `gc.from_tflite` |

    Args:
        path: a file, or the folder of a SavedModel.
        trainable: which weights `gc.minimize` updates; None for the default of the importer.
        sizes: named size -> its value, such as {"batch": 4}.
        name: the name scope of the variables.
        outputs: the names of the results of a GraphDef or MetaGraph.
        signature: the name of the signature of a SavedModel or a model of TensorFlow Lite.

    Raises:
        ModelFileError: there is no such file, or it is of no format that is imported.
        AttributeValueError: the importer has no such option.
        ModelImportError, MissingExtraError: see the importer.

    Examples:
        >>> import jax, pathlib, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> exported = jax.export.export(jax.jit(jax.numpy.sin))(jax.ShapeDtypeStruct((2,), "f4"))
        >>> path = pathlib.Path(folder.name, "sin.mlir")
        >>> size = path.write_text(exported.mlir_module())
        >>> gc.import_model(path).outputs
        ('output_0',)
        >>> folder.cleanup()
    """
    found = format_of(path)
    options = {
        "trainable": trainable,
        "sizes": sizes or None,
        "name": name,
        "outputs": outputs,
        "signature": signature,
    }
    given = {key: value for key, value in options.items() if value is not None}
    wrong = [key for key in given if key not in found.options]
    if wrong:
        raise AttributeValueError.here(
            f"import_model: {found.function} has no option {wrong[0]!r}",
            hint=f"it has {', '.join(sorted(found.options))}",
        )
    importer: Callable[..., ImportedModel] = getattr(import_module(found.module), found.function)
    return importer(path, **given)


def format_of(path: str | os.PathLike[str]) -> Format:
    """The format of a file or folder, by its suffix, or else by its contents.

    Raises:
        ModelFileError: it does not exist, or is of no format that is imported.
    """
    file = Path(path)
    if file.is_dir():
        if any((file / f"saved_model.{end}").is_file() for end in ("pb", "pbtxt")):
            return SAVED_MODEL
        raise _refused(file, "is a folder without saved_model.pb", "give the file of the model")
    try:
        with file.open("rb") as opened:
            start = opened.read(_START)
    except OSError as error:
        raise _refused(file, f"cannot be read: {error.strerror}", "check the path") from None
    suffix = file.suffix.lower()
    if suffix in _OTHERS:
        raise _refused(file, *_OTHERS[suffix])
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if start[4:8] == _LITE:
        return TFLITE
    if start.startswith(_BYTECODE) or b"stablehlo" in start or b"func.func" in start:
        return STABLEHLO
    raise _refused(
        file,
        "is of no format that is known",
        f"files that are imported end in {', '.join(sorted(_SUFFIXES))}",
    )


def is_model_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is one that `import_model` imports, by its name."""
    file = Path(path)
    if file.is_dir():
        return any((file / f"saved_model.{end}").is_file() for end in ("pb", "pbtxt"))
    return file.suffix.lower() in _SUFFIXES


def _refused(file: Path, why: str, hint: str) -> ModelFileError:
    return ModelFileError.here(f"import: {str(file)!r} {why}", hint=hint)
