"""The values of a module in PyTorch, by the names of the imported nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.importers.core.model_graph import ModelGraph
from graphc.importers.torch.dtypes import array_of, torch
from graphc.importers.torch.exporting import Exporting, exported_program
from graphc.ir.dtypes import Array


def recorded(module: Any, model: ModelGraph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The values that PyTorch computes for each node of an exported program.

    Args:
        module: a module, or the `ExportedProgram` that was imported.
        model: the graph of the imported model.
        inputs: by the names of the model's inputs.

    Raises:
        ModelImportError: torch.export cannot export the module.
    """
    package = torch()
    given = [package.as_tensor(np.array(inputs[name])) for name in model.inputs]
    program, _ = exported_program(module, Exporting(given))
    signature, rest = program.graph_signature, iter(given)
    held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    constants = dict(signature.inputs_to_lifted_tensor_constants)
    found: dict[str, Array] = {}

    interpreter: Any = package.fx.Interpreter

    class Recording(interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            tensor = model.origins.get(node.name)
            if tensor is not None and isinstance(result, package.Tensor):
                found[tensor.name] = array_of(result.detach()).astype(tensor.type.dtype)
            return result

    def argument(name: str, node: Any) -> Any:
        if name in held:
            return program.state_dict.get(held[name], program.constants.get(held[name]))
        if name in constants:
            return program.constants[constants[name]]
        return next(rest) if hasattr(node.meta.get("val"), "dtype") else node.meta.get("val")

    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    with package.no_grad():
        Recording(program.graph_module).run(*[argument(n.name, n) for n in placeholders])
    return found
