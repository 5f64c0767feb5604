"""A compiler frontend for model graphs: define or import a graph, train it, ship it, serve it.

This module contains only names. Each is imported from the module that defines it when it is first
used, so `import graphc` loads nothing, and no part of graphc imports this module. The public
operators are those that their families list in `__all__` (see graphc/ops/__init__.py); the other
names are in the table below.
"""

from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from graphc._version import __version__ as __version__

if TYPE_CHECKING:  # for editors and type checkers: the names of the table, and the operators
    from graphc import cluster as cluster
    from graphc import data as data
    from graphc import devices as devices
    from graphc import errors as errors
    from graphc import metrics as metrics
    from graphc import nn as nn
    from graphc import passes as passes
    from graphc import serving as serving
    from graphc import sklearn as sklearn
    from graphc import train as train
    from graphc import typing as typing
    from graphc.artifacts import Limits as Limits
    from graphc.artifacts import Signature as Signature
    from graphc.artifacts import Vocabulary as Vocabulary
    from graphc.artifacts import load as load
    from graphc.artifacts import save as save
    from graphc.autodiff import gradients as gradients
    from graphc.autodiff import hessian as hessian
    from graphc.autodiff import jacobian as jacobian
    from graphc.build import Graph as Graph
    from graphc.build import TensorSpec as TensorSpec
    from graphc.build import add_to_collection as add_to_collection
    from graphc.build import assign as assign
    from graphc.build import control_dependencies as control_dependencies
    from graphc.build import device as device
    from graphc.build import name_scope as name_scope
    from graphc.build import placeholder as placeholder
    from graphc.build import trace as trace
    from graphc.build import trainable_variables as trainable_variables
    from graphc.build import variable as variable
    from graphc.build import variables as variables
    from graphc.checkpoints.weight_files.gguf import read_gguf as read_gguf
    from graphc.checkpoints.weight_files.safetensors import read_safetensors as read_safetensors
    from graphc.config import CompileOptions as CompileOptions
    from graphc.data import Bucketing as Bucketing
    from graphc.divergence.comparing import compare as compare
    from graphc.divergence.records import Record as Record
    from graphc.divergence.result import Comparison as Comparison
    from graphc.divergence.runs import Run as Run
    from graphc.exporters.iree import to_iree as to_iree
    from graphc.exporters.onnx.entry import to_onnx as to_onnx
    from graphc.exporters.safetensors import to_safetensors as to_safetensors
    from graphc.exporters.saved_model.entry import to_saved_model as to_saved_model
    from graphc.exporters.stablehlo import to_stablehlo as to_stablehlo
    from graphc.importers.core.model import ImportedModel as ImportedModel
    from graphc.importers.core.model_graph import ModelGraph as ModelGraph
    from graphc.importers.files import import_model as import_model
    from graphc.importers.onnx import from_onnx as from_onnx
    from graphc.importers.recorded import original_values as original_values
    from graphc.importers.stablehlo.model import from_stablehlo as from_stablehlo
    from graphc.importers.tensorflow.frozen import from_graphdef as from_graphdef
    from graphc.importers.tensorflow.saved_model import from_meta_graph as from_meta_graph
    from graphc.importers.tensorflow.saved_model import from_saved_model as from_saved_model
    from graphc.importers.tflite.entry import from_tflite as from_tflite
    from graphc.importers.torch import from_torch as from_torch
    from graphc.ir import Node as Node
    from graphc.ir import Program as Program
    from graphc.ir import Tensor as Tensor
    from graphc.ir import Variable as Variable
    from graphc.jaxpr import from_jax as from_jax
    from graphc.jaxpr import register_op as register_op
    from graphc.jitted import JittedFunction as JittedFunction
    from graphc.jitted import PackedTree as PackedTree
    from graphc.jitted import SavedFunction as SavedFunction
    from graphc.jitted import jit as jit
    from graphc.jitted import load_function as load_function
    from graphc.jitted import unpack as unpack
    from graphc.lowering.vectorize import vmap as vmap
    from graphc.ops import *
    from graphc.ops import fft as fft
    from graphc.ops import linalg as linalg
    from graphc.ops import random as random
    from graphc.optim import minimize as minimize
    from graphc.reports.graph_report import report as report
    from graphc.reports.profile import Profile as Profile
    from graphc.reports.profiling import profile as profile
    from graphc.reports.profiling import profile_call as profile_call
    from graphc.reports.session_methods import Session as Session
    from graphc.runtime.freezing.freezing import freeze as freeze
    from graphc.runtime.state.state import State as State
    from graphc.runtime.step.compiler import compile as compile
    from graphc.runtime.step.compiler import compile_async as compile_async
    from graphc.runtime.step.executable import Executable as Executable
    from graphc.runtime.step.function import to_jax as to_jax
    from graphc.runtime.tuning.tuning import tune as tune

# The public names that are not operators, by the submodule that defines them; "." for names that
# are submodules themselves.
_NAMES: Final[dict[str, str]] = {
    ".": "cluster data devices errors metrics nn passes serving sklearn train typing",
    "artifacts": "Limits Signature Vocabulary load save",
    "autodiff": "gradients hessian jacobian",
    "build": (
        "Graph TensorSpec add_to_collection assign control_dependencies device name_scope "
        "placeholder trace trainable_variables variable variables"
    ),
    "checkpoints.weight_files.gguf": "read_gguf",
    "checkpoints.weight_files.safetensors": "read_safetensors",
    "config": "CompileOptions",
    "data": "Bucketing",
    "divergence.comparing": "compare",
    "divergence.records": "Record",
    "divergence.result": "Comparison",
    "divergence.runs": "Run",
    "exporters.iree": "to_iree",
    "exporters.onnx.entry": "to_onnx",
    "exporters.safetensors": "to_safetensors",
    "exporters.saved_model.entry": "to_saved_model",
    "exporters.stablehlo": "to_stablehlo",
    "importers.core.model": "ImportedModel",
    "importers.core.model_graph": "ModelGraph",
    "importers.files": "import_model",
    "importers.recorded": "original_values",
    "importers.stablehlo.model": "from_stablehlo",
    "importers.tensorflow.frozen": "from_graphdef",
    "importers.tensorflow.saved_model": "from_meta_graph from_saved_model",
    "importers.onnx": "from_onnx",
    "importers.tflite.entry": "from_tflite",
    "importers.torch": "from_torch",
    "ir": "Node Program Tensor Variable",
    "jaxpr": "from_jax register_op",
    "jitted": "JittedFunction PackedTree SavedFunction jit load_function unpack",
    "ops": "fft linalg random",
    "lowering.vectorize": "vmap",
    "optim": "minimize",
    "reports.graph_report": "report",
    "reports.profile": "Profile",
    "reports.profiling": "profile profile_call",
    "reports.session_methods": "Session",
    "runtime.freezing.freezing": "freeze",
    "runtime.state.state": "State",
    "runtime.step.compiler": "compile compile_async",
    "runtime.step.executable": "Executable",
    "runtime.step.function": "to_jax",
    "runtime.tuning.tuning": "tune",
}
# Classes of records. Their constructors get the error messages that explain wrong arguments.
_EXPLAINED: Final = (
    *("Bucketing", "CompileOptions", "Graph", "Limits", "Signature", "TensorSpec", "Vocabulary"),
)
_HOMES: Final = {name: home for home, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # hidden from type checkers, which would otherwise accept any name

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return __dir__()
        home = _HOMES.get(name)
        if home == ".":
            return import_module(f"{__name__}.{name}")
        if home is None and _is_operator(name):
            home = "ops"
        if home is None:
            if _is_private(name) and name != "optim":  # which people look for
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
            from graphc.ir.name_errors import no_function

            raise no_function(__name__, name, __dir__())
        module = import_module(f"{__name__}.{home}")
        value = getattr(module, name)
        if type(value) is FunctionType and not hasattr(value, "is_explained"):
            from graphc.ir.calls import explained

            value = explained(value)
            setattr(module, name, value)
        if name in _EXPLAINED and not hasattr(value.__init__, "is_explained"):
            from graphc.ir.calls import explained

            value.__init__ = explained(value.__init__)
        globals()[name] = value  # the next use does not call __getattr__
        return value

    def _is_private(name: str) -> bool:
        from importlib.util import find_spec

        # `from graphc import config` also looks up the name, and must not import the operators.
        return name.startswith("_") or find_spec(f"{__name__}.{name}") is not None

    def _is_operator(name: str) -> bool:
        return not _is_private(name) and name in import_module(f"{__name__}.ops").__all__

    def __dir__() -> list[str]:
        return sorted(["__version__", *_HOMES, *import_module(f"{__name__}.ops").__all__])
