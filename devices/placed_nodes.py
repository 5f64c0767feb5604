"""Properties of nodes that both the placer and the partitioner need: whether a node is a constant
or part of an optimizer, and which device holds its operands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from graphc.errors import DeviceError
from graphc.ir.costs import bytes_of_type
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, ancestors, is_pure
from graphc.ops.structure.state import IDENTITY
from graphc.ops.structure.training import GRADIENTS, LOSS_ADJOINT, UPDATED

MARKS: Final = (LOSS_ADJOINT, GRADIENTS, UPDATED)  # these operators compute nothing


def is_constant(node: Node, constants: Collection[Tensor]) -> bool:
    """Whether a node computes the same value in every run, from `constants` or without operands. An
    `Identity` that requests a device is not a constant: it holds a value on that device."""
    if node.op is IDENTITY and node.device:
        return False
    return all(t in constants for t in node.inputs) and is_pure(node)


def nearest_device(node: Node, at: Mapping[Tensor, str]) -> str | None:
    """The device that holds most bytes of a node's operands, or None."""
    weights: dict[str, int] = {}
    for tensor in node.inputs:
        if tensor in at:
            weights[at[tensor]] = weights.get(at[tensor], 0) + bytes_of_type(tensor.type)
    return max(weights, key=weights.__getitem__, default=None)


def devices_of(nodes: Sequence[Node], at: dict[Tensor, str], base: str) -> dict[Node, str]:
    """The device of each node of a placed program after the passes have run and added nodes. Adds
    the devices of their results to `at`.

    A node without a request runs on the device that holds most bytes of its operands. A node whose
    operands are all feeds has no device, unless it has effects: it is computed on each device that
    uses it. The same holds for constants, even if they request a device, because storing a constant
    until it is used would cost more.
    """
    found: dict[Node, str] = {}
    constants: set[Tensor] = set()
    for node in nodes:
        if is_constant(node, constants):
            constants.update(node.outputs)
            continue
        device = node.device or _of_body(node) or nearest_device(node, at)
        if device is None and not is_pure(node):
            device = base
        if device is not None:
            found[node] = device
            at.update(dict.fromkeys(node.outputs, device))
    return found


def _of_body(node: Node) -> str | None:
    """The device of the nodes in a node's bodies, if any."""
    inside = {inner.device for body in node.regions for inner in body.walk() if inner.device}
    if len(inside) > 1:
        raise DeviceError(
            f"{node.op.name} {node.name!r} must run on one device, but contains nodes for "
            f"{', '.join(sorted(inside))}",
            source=node.source,
        )
    return inside.pop() if inside else None


def update_nodes(program: Program) -> set[Node]:
    """The nodes of an optimizer: the nodes between the gradients and the new values that `minimize`
    marks."""
    made = {t: node for t, node in program.producers().items() if node.op not in MARKS}
    marks = [node for node in program.nodes if node.op is UPDATED]
    return ancestors(made, [t for mark in marks for t in mark.inputs[len(mark.outputs) :]])


def homes_of_updates(
    program: Program, updates: Collection[Node], homes: Mapping[str, str]
) -> dict[Node, str]:
    """The device of the variables that a node of an optimizer updates, if it is one device.

    Args:
        updates: these nodes, see `update_nodes`.
        homes: the device of each variable, by name.
    """
    ends: dict[Tensor, set[str]] = {}
    for port in program.new_state():
        ends.setdefault(port.tensor, set()).add(homes[port.name])
    found: dict[Node, str] = {}
    for node in reversed(program.nodes):
        if node.op is UPDATED:  # a variable of the same number for each result
            pairs = zip(node.inputs[-len(node.outputs) :], node.outputs, strict=True)
            for operand, result in pairs:
                ends.setdefault(operand, set()).update(ends.get(result, ()))
        elif node in updates:
            places = {place for tensor in node.outputs for place in ends.get(tensor, ())}
            if len(places) == 1:
                found[node] = next(iter(places))
            for operand in node.inputs:
                ends.setdefault(operand, set()).update(places)
    return found
