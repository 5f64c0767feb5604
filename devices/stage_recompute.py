"""Recomputes the activations of a pipeline's stages instead of keeping them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.devices.clustering import Key
from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, ancestors


def recomputed(
    program: Program, groups: Sequence[Sequence[Node]], keys: Mapping[Node, Key]
) -> tuple[Program, list[list[Node]], dict[Node, Key]]:
    """Copies nodes of earlier groups into the groups that use their results, within one device and
    micro-batch, if the operands of the copies are smaller than those results (GPipe, Huang et al.
    2019, section 2.3).

    So a stage keeps its inputs from a forward pass to the backward pass. All nodes of a micro-batch
    are pure: see `micro_batches`.

    Args:
        groups: in an order in which they can run, see `clustering.grouped`.
        keys: the device and the micro-batch of each node.

    Returns:
        The program with the copies, and its groups and keys.
    """
    of = {node: i for i, group in enumerate(groups) for node in group}
    arguments = set(program.input_tensors())
    after: dict[Node, list[Node]] = {}  # node -> its copies
    instead: dict[Node, Node] = {}  # a node that uses copies, in place of one that does not
    new_groups: list[list[Node]] = []
    new_keys = dict(keys)
    for number, group in enumerate(groups):
        again = _worth_copying(number, group, of, keys, arguments)
        renamed: dict[Tensor, Tensor] = {}
        copies = []
        for node in (n for n in program.nodes if n in again):
            outputs = tuple([Tensor(t.type, t.name) for t in node.outputs])
            copies.append(node.replace(inputs=_in(renamed, node.inputs), outputs=outputs))
            after.setdefault(node, []).append(copies[-1])
            renamed.update(zip(node.outputs, outputs, strict=True))
        users = [n for n in group if not renamed.keys().isdisjoint(n.inputs)]
        instead.update({n: n.replace(inputs=_in(renamed, n.inputs)) for n in users})
        new_groups.append([*copies, *(instead.get(node, node) for node in group)])
        new_keys.update(dict.fromkeys(new_groups[-1], keys[group[0]]))
    nodes = [new for n in program.nodes for new in (instead.get(n, n), *after.get(n, ()))]
    return program.replace(nodes=tuple(nodes)), new_groups, new_keys


def _in(renamed: Mapping[Tensor, Tensor], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple([renamed.get(tensor, tensor) for tensor in tensors])


def _worth_copying(
    number: int,
    group: Sequence[Node],
    of: Mapping[Node, int],
    keys: Mapping[Node, Key],
    arguments: set[Tensor],
) -> set[Node]:
    """The nodes of earlier groups that a group should compute again."""
    key = keys[group[0]]
    if key.micro_batch is None:
        return set()
    earlier = [n for n, i in of.items() if i != number and keys[n] == key]
    makers = {t: node for node in earlier for t in node.outputs}
    taken = {t for node in group for t in node.inputs}
    kept = taken & makers.keys()
    again = ancestors(makers, kept)
    needed = {t for node in again for t in node.inputs} - makers.keys() - taken - arguments
    return again if bytes_of(*needed) < bytes_of(*kept) else set()
