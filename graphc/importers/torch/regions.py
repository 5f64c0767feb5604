"""Marks in an exported program what PyTorch's `run_decompositions` would forget: regions without
gradients, and copies into parameters and buffers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from graphc.errors import ModelImportError
from graphc.importers.torch.dtypes import torch

_COPY = "aten.copy_.default"
_REGION = "wrap_with_set_grad_enabled"
_VIEWS = {  # those by which parts of parameters are changed
    f"aten.{name}" for name in ("detach.default", "select.int", "slice.Tensor", "view.default")
}


def with_marks(program: Any, *, is_own: bool) -> Any:
    """The program, in which

    - tensors enter a region of `no_grad` through `detach`: the region is replaced by its nodes;
    - `x.copy_(y)` copies a clone of y: x is replaced by what was copied, whose gradient would be
      that of y.

    Args:
        is_own: whether the program may be changed. Otherwise a copy is, which shares its tensors.

    Raises:
        ModelImportError: two regions change one parameter.
    """
    if not any(_is_marked(node) for module in _graphs(program) for node in module.graph.nodes):
        return program
    _refuse_two_changes(program)
    if not is_own:
        tensors = [*program.state_dict.values(), *program.constants.values()]
        program = copy.deepcopy(program, {id(tensor): tensor for tensor in tensors})
    aten = torch().ops.aten
    for module in list(_graphs(program)):
        for node in list(module.graph.nodes):
            if not _is_marked(node):
                continue
            if str(node.target) == _COPY:
                with module.graph.inserting_before(node):
                    clone = module.graph.call_function(aten.clone.default, (node.args[1],))
                clone.meta = dict(node.args[1].meta)
                node.replace_input_with(node.args[1], clone)
            else:
                _detach_inputs(getattr(module, node.args[1].target))
    return program


def _graphs(program: Any) -> Iterator[Any]:
    for module in program.graph_module.modules():
        if isinstance(module, torch().fx.GraphModule):
            yield module


def _is_marked(node: Any) -> bool:
    if node.op != "call_function":
        return False
    if str(node.target) == _COPY:
        return hasattr(node.args[1], "meta")
    return _is_region(node)


def _is_region(node: Any) -> bool:
    """Whether a node is a region without gradients."""
    is_one = node.op == "call_function" and getattr(node.target, "__name__", "") == _REGION
    return is_one and node.args[0] is False


def _detach_inputs(body: Any) -> None:
    """Puts a `detach` between each tensor that a graph takes and its users, except operators that
    change the tensor itself."""
    graph = body.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in placeholders:
        value = node.meta.get("val")
        if not hasattr(value, "dtype") or not value.dtype.is_floating_point:
            continue
        with graph.inserting_before(first):
            inside = graph.call_function(torch().ops.aten.detach.default, (node,))
        inside.meta = dict(node.meta)
        for user in list(node.users):
            if user is not inside and not (_is_in_place(user) and user.args[0] is node):
                user.replace_input_with(node, inside)


def _is_in_place(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


def _refuse_two_changes(program: Any) -> None:
    """Raises an error if two regions without gradients change one parameter. What uses it in
    between has the gradient of the parameter, which the program no longer shows."""
    parameters = program.graph_signature.inputs_to_parameters
    module, seen = program.graph_module, set[str]()
    for node in module.graph.nodes:
        if not _is_region(node):
            continue
        body = getattr(module, node.args[1].target)
        changed = [_origin(body, n) for n in body.graph.nodes if _is_in_place(n)]
        inputs = [n for n in body.graph.nodes if n.op == "placeholder"]
        operands = [a for a, n in zip(node.args[2:], inputs, strict=True) if n in changed]
        for name in {_origin(module, operand).name for operand in operands} & parameters.keys():
            if not program.state_dict[parameters[name]].requires_grad:
                continue
            if name in seen:
                raise ModelImportError.here(
                    f"from_torch: the model changes its parameter {parameters[name]!r} twice in a "
                    "forward pass",
                    hint="change it once, or make it a buffer",
                )
            seen.add(name)


def _origin(module: Any, node: Any) -> Any:
    """The node whose tensor a node returns: itself, by a view, or by an operator in place; also
    through regions."""
    while node.op == "call_function" and node.args and hasattr(node.args[0], "args"):
        operand = node.args[0]
        if _is_region(operand):
            body = getattr(module, operand.args[1].target)
            result = _origin(body, list(body.graph.nodes)[-1].args[0][node.args[1]])
            inputs = [n for n in body.graph.nodes if n.op == "placeholder"]
            if result not in inputs:
                return node
            operand = operand.args[2 + inputs.index(result)]
        elif not (_is_in_place(node) or str(node.target) in _VIEWS):
            return node
        node = operand
    return node
