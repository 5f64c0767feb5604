"""Runs an exported file in the framework that it is for, where that is installed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from graphc.errors import MissingExtraError, ModelExportError
from graphc.ir.dtypes import Array
from graphc.ir.source import current_source

Peer = Callable[[Mapping[str, Array]], dict[str, Array]]
"""(inputs by name) -> outputs by name."""


def onnx_peer(path: str | os.PathLike[str]) -> tuple[str, Peer]:
    """onnxruntime, or onnx's reference where onnxruntime is not installed.

    Returns:
        What runs the file, and a function that does.

    Raises:
        MissingExtraError: nothing that runs such files is installed. So for the other functions.
    """
    try:
        import onnxruntime
    except ImportError:
        pass
    else:
        session = onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])
        names = [port.name for port in session.get_outputs()]
        return f"onnxruntime {onnxruntime.__version__}", lambda inputs: dict(
            zip(names, session.run(names, dict(inputs)), strict=True)
        )
    try:
        import onnx
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        raise _missing("onnxruntime") from None
    evaluator = ReferenceEvaluator(os.fspath(path))
    return f"onnx {onnx.__version__}", lambda inputs: dict(
        zip(evaluator.output_names, evaluator.run(None, dict(inputs)), strict=True)
    )


def saved_model_peer(path: str | os.PathLike[str], name: str) -> tuple[str, Peer]:
    """TensorFlow.

    Args:
        name: of the signature in the model.
    """
    try:
        import tensorflow as tf
    except ImportError:
        raise _missing("tensorflow-cpu") from None
    function = tf.saved_model.load(os.fspath(path)).signatures[name]

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        found = function(**{key: tf.constant(value) for key, value in inputs.items()})
        return {key: value.numpy() for key, value in found.items()}

    return f"tensorflow {tf.__version__}", run


def iree_peer(path: str | os.PathLike[str], outputs: Sequence[str]) -> tuple[str, Peer]:
    """IREE's runtime, for a module of this machine.

    Args:
        outputs: the names of the results, in their order.
    """
    try:
        from iree import runtime
    except ImportError:
        raise _missing("iree-base-runtime") from None
    module = runtime.load_vm_flatbuffer_file(os.fspath(path), driver="local-task")
    version = getattr(runtime, "version", None)

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        found = module["main"](*inputs.values())
        found = found if isinstance(found, (tuple, list)) else [found]
        return {n: np.asarray(value) for n, value in zip(outputs, found, strict=True)}

    return f"IREE {getattr(version, 'VERSION', '')}".strip(), run


def stablehlo_peer(
    path: str | os.PathLike[str], variables: Mapping[str, Array]
) -> tuple[str, Peer]:
    """JAX, which compiles the module as it is.

    Args:
        variables: the values of the variables, which the module takes.

    Raises:
        ModelExportError: the module has open sizes.
    """
    import jax

    from graphc.importers.stablehlo.model import from_stablehlo
    from graphc.runtime.session import Session

    text = Path(path).read_text()
    if "tensor<?" in text or "x?x" in text:
        raise ModelExportError(
            "the module has open sizes, and runs with fixed ones alone",
            source=current_source(),
            hint="--size NAME=N fixes one",
        )
    rows = [json.loads(f"[{line.partition(': ')[2]}]") for line in text.splitlines()[:2]]
    arguments, results = rows
    made = from_stablehlo(text, opaque=True).to_graph()
    session = Session(made.graph)
    fetches = dict(zip(results, made.outputs.values(), strict=True))

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        values = {**variables, **inputs}
        ports = zip(made.inputs.values(), arguments, strict=True)
        found = session.run(fetches, {port: values[name] for port, name in ports})
        each = {key: np.asarray(value) for key, value in found.items()}
        return {name: value for key, value in each.items() for name in key.split(" = ")}

    return f"jax {jax.__version__}", run


def safetensors_peer(path: str | os.PathLike[str]) -> tuple[str, Peer]:
    """The values in the file: nothing is run."""
    import safetensors
    from safetensors.numpy import load_file

    return f"safetensors {safetensors.__version__}", lambda inputs: load_file(path)


def _missing(package: str) -> MissingExtraError:
    return MissingExtraError(
        f"the file cannot be run, because {package} is not installed",
        source=current_source(),
        hint=f"pip install {package}, or leave --validate out",
    )
