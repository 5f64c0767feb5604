"""A module as an exported program, in the form that the rules read."""

from __future__ import annotations

import inspect
import operator
import os
from collections import OrderedDict, namedtuple
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from graphc.errors import ArgumentError, ModelImportError
from graphc.importers.torch.archive.mutations import NORMS
from graphc.importers.torch.archive.reading import read_archive
from graphc.importers.torch.dtypes import array_of, torch
from graphc.importers.torch.exported import MUTATIONS, Exported, Result, Stored
from graphc.importers.torch.regions import with_marks
from graphc.importers.torch.size_names import size_names
from graphc.importers.torch.table import RULES


class Exporting(NamedTuple):
    """How a module is exported: the arguments of `gc.from_torch`."""

    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    training: bool = False


def exported(model: Any, how: Exporting) -> Exported:
    """The program of a module, of an `ExportedProgram`, or in a file.

    Raises:
        ModelImportError: torch.export cannot export the module.
        ModelFileError: it is a path of a file that cannot be read.
        ArgumentError: the arguments of a module are missing.
    """
    if isinstance(model, (str, os.PathLike)):
        if any(how):
            raise ArgumentError.here(
                "from_torch: args, kwargs, dynamic_shapes and training are for modules: the "
                "program in a file is exported already",
                hint="pass the path, and trainable= or name=",
            )
        return read_archive(model)
    program, name = exported_program(model, how)
    signature = program.graph_signature
    spec = program.call_spec.out_spec
    results = [
        Result(s.kind.name, s.target if s.kind.name in MUTATIONS else "")
        for s in signature.output_specs
    ]
    return Exported(
        module=program.graph_module,
        name=name,
        sizes=_named_sizes(program, model, how),
        held={**signature.inputs_to_parameters, **signature.inputs_to_buffers},
        constants=dict(signature.inputs_to_lifted_tensor_constants),
        tensors=lambda name: _stored(program, name),
        results=results,
        nest=lambda values: _plain(torch().utils._pytree.tree_unflatten(values, spec)),
    )


def _named_sizes(program: Any, model: Any, how: Exporting) -> dict[str, str]:
    """The sizes of the program by the names in `dynamic_shapes`. A program that was exported
    before has its own symbols, and names are read as those of its example inputs."""
    shapes = how.dynamic_shapes
    if shapes is None:
        return {}
    if not isinstance(model, torch().nn.Module):
        args, kwargs = program.example_inputs or ((), {})
        names = program.module_call_graph[0].signature.forward_arg_names or []
        parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
        return size_names(program, inspect.Signature(parameters), args, kwargs, shapes)
    given = tuple(how.args or ()), dict(how.kwargs or {})
    if hasattr(shapes, "dynamic_shapes"):  # a ShapesCollection
        shapes = shapes.dynamic_shapes(model, *given)
    return size_names(program, inspect.signature(model.forward), *given, shapes)


def _plain(nest: Any) -> Any:
    """A nest with named tuples in place of PyTorch's own, such as what `torch.max` returns."""
    cls: Any = type(nest)
    if cls in (dict, OrderedDict):
        return cls((key, _plain(value)) for key, value in nest.items())
    if cls in (list, tuple):
        return cls(map(_plain, nest))
    if cls.__module__ != "torch.return_types":
        return nest
    return namedtuple(cls.__name__.rpartition(".")[2], cls.__match_args__)(*nest)


def _stored(program: Any, name: str) -> Stored:
    tensor = program.state_dict.get(name, program.constants.get(name))
    key: Any = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    trainable = tensor.is_floating_point() and tensor.requires_grad
    return Stored(
        key if tensor.numel() else name, trainable, tensor.nbytes, lambda: array_of(tensor)
    )


def exported_program(model: Any, how: Exporting) -> tuple[Any, str]:
    """The `ExportedProgram` of a module, or of one, functional, and a name for it.

    Raises:
        ModelImportError, ArgumentError: see `exported`.
    """
    package = torch()
    if isinstance(model, package.export.ExportedProgram):
        return _ready(with_marks(model, is_own=False)), "program"
    if not isinstance(model, package.nn.Module):
        raise ArgumentError.here(
            "from_torch: takes a torch.nn.Module or an ExportedProgram, got "
            f"{type(model).__name__}",
            hint="gc.from_torch(module, (example_input,))",
        )
    if how.args is None and how.kwargs is None:
        raise ArgumentError.here(
            "from_torch: a module is exported for example inputs, which are missing",
            hint="gc.from_torch(module, (example_input,))",
        )
    was_training = model.training
    model.train(how.training)
    try:
        program = package.export.export(
            model,
            tuple(how.args or ()),
            dict(how.kwargs or {}),
            dynamic_shapes=how.dynamic_shapes,
            strict=False,
        )
    except Exception as error:  # torch.export raises errors of many kinds
        raise _failed(
            f"torch.export cannot export {type(model).__name__}",
            error,
            hint="torch.export.export(module, args) alone gives the same error, with its advice",
        ) from error
    finally:
        model.train(was_training)
    graph = program.graph_module.graph
    _restore_users(graph)
    graph.eliminate_dead_code(_has_effect)
    return _ready(with_marks(program, is_own=True)), type(model).__name__


def _restore_users(graph: Any) -> None:
    """Enters each node among the users of its operands.

    Where torch.export replaces a region of `no_grad` or `autocast` by its operators, it forgets
    users of the operands outside of it.
    """
    for node in graph.nodes:
        for operand in node.all_input_nodes:
            operand.users.setdefault(node)


def _ready(program: Any) -> Any:
    """The program without operators that change their operands; operators without a rule are
    replaced by PyTorch's decompositions, where there are any."""
    package = torch()
    if _is_ready(program):  # the trace by `run_decompositions` takes longer than the export
        return program
    table = package.export.default_decompositions()
    known = dict[Any, Any]()
    try:
        functional = program.run_decompositions({})
        # Operators of a decomposition may lack a rule too. All decompositions are given again: what
        # was decomposed may come back.
        while new := _without_rule(functional) & table.keys() - known.keys():
            known |= {op: table[op] for op in new}
            functional = functional.run_decompositions(known)
    except Exception as error:  # such as a parameter under two names that the module changes
        raise _failed(
            "PyTorch cannot make the exported program functional",
            error,
            hint="torch.export.export(module, args).run_decompositions({}) gives the same error",
        ) from error
    return functional


def _failed(what: str, error: Exception, hint: str) -> ModelImportError:
    """The error for what PyTorch raised."""
    first, *rest = str(error).strip().splitlines() or [type(error).__name__]
    return ModelImportError.here(f"from_torch: {what}: {first}", details=rest[:6], hint=hint)


def _without_rule(program: Any) -> set[Any]:
    """The operators of a program for which there is no rule."""
    package = torch()
    return {
        node.target
        for module in program.graph_module.modules()
        if isinstance(module, package.fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function" and str(node.target) not in RULES
    }


def _is_ready(program: Any) -> bool:
    """Whether a program has rules for all its nodes, of which none changes a tensor or is unused.

    Programs with graphs in nodes are not looked at.
    """
    package = torch()
    for node in program.graph.nodes:
        if node.op == "get_attr":
            return False
        if node.op != "call_function":
            continue
        name = str(node.target)
        is_known = name in RULES or node.target is operator.getitem
        if not is_known or not node.users or _changes_averages(node, name):
            return False
        if isinstance(node.target, package._ops.OpOverload) and node.target._schema.is_mutable:
            return False
    return True


def _has_effect(node: Any) -> bool:
    """Whether a node, or one in its bodies, changes a tensor."""
    if node.is_impure() or _changes_averages(node, str(node.target)):
        return True
    if node.op == "call_function" and getattr(
        getattr(node.target, "_schema", None), "is_mutable", 0
    ):
        return True
    module = node.graph.owning_module
    bodies: list[Any] = [
        getattr(module, n.target, None) for n in node.all_input_nodes if n.op == "get_attr"
    ]
    return any(_has_effect(n) for b in bodies if hasattr(b, "graph") for n in b.graph.nodes)


def _changes_averages(node: Any, name: str) -> bool:
    """Whether it is a batch norm in training mode: its schema does not say what it changes."""
    place = NORMS.get(name)
    return place is not None and (len(node.args) <= place or bool(node.args[place]))
