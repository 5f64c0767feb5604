"""A module as an exported program, in the form that the rules read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphc.errors import ArgumentError, ModelFileError, ModelImportError
from graphc.importers.torch.dtypes import torch
from graphc.importers.torch.table import RULES
from graphc.ir.source import current_source


@dataclass(frozen=True)
class Exported:
    """An exported program.

    Attributes:
        program: the `ExportedProgram`, functional.
        name: of the module's class.
        sizes: symbol of the program -> the name that the user gave the size.
    """

    program: Any
    name: str
    sizes: Mapping[str, str]


def exported(
    model: Any,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    training: bool,
) -> Exported:
    """The program of a module, or an `ExportedProgram` in the form that the rules read.

    Raises:
        ModelImportError: torch.export cannot export the module.
        ModelFileError: it is a path.
        ArgumentError: the arguments of a module are missing.
    """
    package = torch()
    if isinstance(model, (str, os.PathLike)):
        raise ModelFileError(
            "from_torch: takes no files, because PyTorch can execute code that is in them",
            source=current_source(),
            hint="if you trust the file: gc.from_torch(torch.export.load(path))",
        )
    if isinstance(model, package.export.ExportedProgram):
        return _ready(model, "program", None)
    if not isinstance(model, package.nn.Module):
        raise ArgumentError(
            "from_torch: takes a torch.nn.Module or an ExportedProgram, got "
            f"{type(model).__name__}",
            source=current_source(),
            hint="gc.from_torch(module, (example_input,))",
        )
    if args is None and kwargs is None:
        raise ArgumentError(
            "from_torch: a module is exported for example inputs, which are missing",
            source=current_source(),
            hint="gc.from_torch(module, (example_input,))",
        )
    was_training = model.training
    model.train(training)
    try:
        program = package.export.export(
            model,
            tuple(args or ()),
            dict(kwargs or {}),
            dynamic_shapes=dynamic_shapes,
            strict=False,
        )
    except Exception as error:  # torch.export raises errors of many kinds
        first, *rest = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelImportError(
            f"from_torch: torch.export cannot export {type(model).__name__}: {first}",
            details=rest[:6],
            source=current_source(),
            hint="torch.export.export(module, args) alone gives the same error, with its advice",
        ) from error
    finally:
        model.train(was_training)
    return _ready(program, type(model).__name__, dynamic_shapes)


def _ready(program: Any, name: str, dynamic_shapes: Any) -> Exported:
    """The program without operators that change their operands; operators without a rule are
    replaced by PyTorch's decompositions, where there are any."""
    package = torch()
    functional = program.run_decompositions({})
    missing = {
        node.target
        for module in functional.graph_module.modules()
        if isinstance(module, package.fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function" and str(node.target) not in RULES
    }
    table = package.export.default_decompositions()
    known = {op: table[op] for op in missing if op in table}
    if known:
        functional = functional.run_decompositions(known)
    return Exported(functional, name, _names(functional, dynamic_shapes))


def _names(program: Any, dynamic_shapes: Any) -> dict[str, str]:
    """The symbols of the program's sizes by the names of the user's `Dim`s."""
    if dynamic_shapes is None:
        return {}
    package = torch()
    specs = [n for n in program.graph.nodes if n.op == "placeholder"]
    inputs = set(program.graph_signature.user_inputs)
    shapes = [
        n.meta["val"].shape
        for n in specs
        if n.name in inputs and hasattr(n.meta.get("val"), "shape")
    ]
    is_leaf = _is_leaf
    given = package.utils._pytree.tree_flatten(dynamic_shapes, is_leaf=is_leaf)[0]
    found: dict[str, str] = {}
    for shape, spec in zip(shapes, given, strict=False):
        pairs = spec.items() if isinstance(spec, dict) else enumerate(spec or ())
        for axis, dim in pairs:
            name = getattr(dim, "__name__", None)
            symbol = str(shape[axis])
            if name is not None and symbol.isidentifier() and str(name).isidentifier():
                found.setdefault(symbol, str(name))
    return found


def _is_leaf(value: Any) -> bool:
    """Whether it is the specification of one tensor: a dict by axis, or a tuple of dims."""
    if value is None:
        return True
    if isinstance(value, dict):
        return all(isinstance(key, int) for key in value)
    if isinstance(value, (tuple, list)):
        return all(
            v is None or isinstance(v, int) or hasattr(v, "__name__") or "Dim" in type(v).__name__
            for v in value
        )
    return False
