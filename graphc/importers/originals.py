"""Runs a model file in the framework that it comes from, where that is installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from graphc.artifacts.vocabulary import Vocabulary
from graphc.errors import MissingExtraError
from graphc.importers.core.model import ImportedModel
from graphc.importers.files import GRAPHDEF, ONNX, SAVED_MODEL, STABLEHLO, TFLITE, Format
from graphc.ir.dtypes import Array
from graphc.runtime.session import Session

Original = Callable[[Mapping[str, Array]], "list[Array]"]
"""(inputs by name) -> the outputs, in the order of the imported model's."""


def original_of(
    path: str | os.PathLike[str], kind: Format, model: ImportedModel, sizes: Mapping[str, int]
) -> tuple[str, Original]:
    """What runs the file, and a function that does.

    Raises:
        MissingExtraError: nothing that runs such files is installed.
    """
    makers: Mapping[Format, Callable[[str, ImportedModel], tuple[str, Original]]] = {
        ONNX: _onnx,
        SAVED_MODEL: _saved_model,
        GRAPHDEF: _graph,
        TFLITE: _tflite,
    }
    if kind == STABLEHLO:
        return _stablehlo(os.fspath(path), sizes)
    if kind not in makers:
        raise MissingExtraError(
            f"--validate does not run {kind.name} files", hint="import it without --validate"
        )
    name, run = makers[kind](os.fspath(path), model)
    return name, _with_strings(model, run)


def _with_strings(model: ImportedModel, run: Original) -> Original:
    """The same function, with numbers in place of strings, as the imported model has them."""
    words, texts = model.input_vocabularies, model.output_vocabularies
    if not words and not texts:
        return run

    def on_numbers(inputs: Mapping[str, Array]) -> list[Array]:
        given = {n: _text(words[n], v) if n in words else v for n, v in inputs.items()}
        outputs = zip(model.outputs, run(given), strict=True)
        return [texts[name].ids(value) if name in texts else value for name, value in outputs]

    return on_numbers


def _text(words: Vocabulary, ids: Array) -> Array:
    """Words as str objects, which all frameworks take."""
    found = words.strings(ids)
    flat = [word.decode("utf-8", "replace") for word in found.reshape(-1).tolist()]
    return np.array(flat, object).reshape(found.shape)


def _onnx(path: str, model: ImportedModel) -> tuple[str, Original]:
    names = list(model.outputs)
    try:
        import onnxruntime
    except ImportError:
        pass
    else:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        version = f"onnxruntime {onnxruntime.__version__}"
        return version, lambda inputs: list(session.run(names, dict(inputs)))
    try:
        import onnx
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        raise _nothing("ONNX", "onnxruntime") from None
    evaluator = ReferenceEvaluator(path)
    return f"onnx {onnx.__version__}", lambda inputs: list(evaluator.run(names, dict(inputs)))


def _saved_model(path: str, model: ImportedModel) -> tuple[str, Original]:
    try:
        import tensorflow as tf
    except ImportError:
        raise _nothing("SavedModel", "tensorflow-cpu") from None
    loaded = tf.saved_model.load(path)
    function = loaded.signatures["serving_default"]

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        results = function(**{name: tf.constant(value) for name, value in inputs.items()})
        return [results[name].numpy() for name in model.outputs]

    return f"tensorflow {tf.__version__}", run


def _graph(path: str, model: ImportedModel) -> tuple[str, Original]:
    try:
        import tensorflow as tf
    except ImportError:
        raise _nothing("graphs", "tensorflow-cpu") from None
    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(Path(path).read_bytes())
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(definition, name="")

    def tensor(name: str) -> str:
        return name if ":" in name else f"{name}:0"

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        with tf.compat.v1.Session(graph=graph) as session:
            feeds = {tensor(name): value for name, value in inputs.items()}
            return list(session.run([tensor(name) for name in model.outputs], feeds))

    return f"tensorflow {tf.__version__}", run


def _tflite(path: str, model: ImportedModel) -> tuple[str, Original]:
    try:
        from ai_edge_litert.interpreter import Interpreter

        version = "LiteRT"
    except ImportError:
        try:
            import tensorflow as tf
        except ImportError:
            raise _nothing("TensorFlow Lite", "ai-edge-litert") from None
        Interpreter, version = tf.lite.Interpreter, f"tensorflow {tf.__version__}"
    interpreter = Interpreter(path)
    details = interpreter.get_input_details()

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        for detail, value in zip(details, inputs.values(), strict=True):
            interpreter.resize_tensor_input(detail["index"], value.shape)
        interpreter.allocate_tensors()
        for detail, value in zip(details, inputs.values(), strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]

    return version, run


def _stablehlo(path: str, sizes: Mapping[str, int]) -> tuple[str, Original]:
    from graphc.importers.stablehlo.model import from_stablehlo

    whole = from_stablehlo(path, sizes=sizes, opaque=True).to_graph()
    session = Session(whole.graph)

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        feeds = dict(zip(whole.inputs.values(), inputs.values(), strict=True))
        return [np.asarray(v) for v in session.run(list(whole.outputs.values()), feeds)]

    return f"XLA, jax {jax.__version__}", run


def _nothing(files: str, package: str) -> MissingExtraError:
    return MissingExtraError(
        f"--validate runs {files} files in their own framework, which is not installed",
        hint=f"pip install {package}",
    )


def random_inputs(model: ImportedModel, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Random inputs: floats around 0; words; integers of 8 bits, which are quantised values or
    pixels; 0 for other integers, which may be indices.

    Args:
        sizes: of named sizes; 4 for others.
    """
    rng = np.random.default_rng(0)
    found = {name: _random(rng, spec, sizes) for name, spec in model.inputs.items()}
    for name, words in model.input_vocabularies.items():
        found[name] = rng.integers(0, len(words), found[name].shape).astype(found[name].dtype)
    return found


def _random(rng: np.random.Generator, spec: Any, sizes: Mapping[str, int]) -> Array:
    shape: Sequence[int] = [d if isinstance(d, int) else sizes.get(str(d), 4) for d in spec.shape]
    dtype = np.dtype(spec.dtype)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    if dtype.kind in "iub":
        return np.zeros(shape, dtype)
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return rng.normal(size=shape).astype(dtype)
