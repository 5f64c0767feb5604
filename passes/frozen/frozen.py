"""Splits a program into the part that depends only on state and constants, and the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from graphc.ir.costs import bytes_of, size_of
from graphc.ir.dims import has_names
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program, is_pure, walk
from graphc.ir.rewrite import used_from
from graphc.ops.core.emit import CONSTANT
from graphc.ops.matrices.narrow_operands import narrow_in_products


class Split(NamedTuple):
    """The two parts of a program.

    Attributes:
        before: takes state, and returns (as fetches) the values that `after` needs.
        after: the rest, which takes these values as state, in addition to its own state.
    """

    before: Program
    after: Program


def frozen_tensors(program: Program, moving: Collection[str] = ()) -> set[Tensor]:
    """The tensors that are the same in every run, if only the state in `moving` changes.

    These are the state ports, and results of pure nodes with known sizes of such tensors.
    """
    return staying(program, (p.tensor for p in program.ports("state") if p.name not in moving))


def staying(program: Program, given: Iterable[Tensor]) -> set[Tensor]:
    """`given`, and the values that the program computes only from these inputs and constants."""
    found = set(given)
    for node in program.nodes:
        if stays(node, found):
            found.update(node.outputs)
    return found


def stays(node: Node, frozen: Collection[Tensor]) -> bool:
    """Whether the results of `node` are the same in every run, given that those in `frozen` are.

    A named size, whose value is known in a run, may be in the type of a result, in an attribute, or
    inside a body.
    """
    return (
        is_pure(node)
        and all(t in frozen for t in node.inputs)
        and all(t.type.is_static for each in walk(node) for t in each.outputs)
        and not any(has_names(value) for each in walk(node) for value in each.attrs.values())
    )


def split_frozen(program: Program, moving: Collection[str] = (), limit: int = 0) -> Split:
    """The program split into the part that is the same in every run and the rest.

    Repeated values stay in the rest: reading a result that is larger than all operands of its node
    (a broadcast, an iota) is no faster than computing it. So do casts that products do without.

    Args:
        moving: names of state that changes.
        limit: constants of up to this many bytes stay in the program; larger ones become state.
    """
    frozen = frozen_tensors(program, moving)
    makers = {t: node for node in program.nodes if stays(node, frozen) for t in node.outputs}
    cut: dict[Tensor, None] = {}  # the results of `before`, in the order of their use
    kept: set[Node] = set()
    narrow = narrow_in_products(program, apart=makers)

    def want(tensors: Iterable[Tensor]) -> None:
        pending = [t for t in tensors if t in makers]
        while pending:
            tensor = pending.pop()
            node = makers[tensor]
            if tensor in narrow or _stays_behind(node, limit):
                if node not in kept:
                    kept.add(node)
                    pending += [t for t in node.inputs if t in makers]
            else:
                cut[tensor] = None

    for node in program.nodes:
        if node.outputs and node.outputs[0] in makers:
            continue
        kept.add(node)
        want(node.inputs)
    want(program.output_tensors())
    return _cut(program, list(cut), kept)


def _stays_behind(node: Node, limit: int) -> bool:
    size = bytes_of(*node.outputs)
    return size <= limit if node.op is CONSTANT else repeats(node)


def repeats(node: Node) -> bool:
    """Whether the results are larger than all operands together, so that reading them is no
    faster."""
    return sum(map(size_of, node.outputs)) > sum(map(size_of, node.inputs))


def _cut(program: Program, cut: list[Tensor], kept: set[Node]) -> Split:
    state = program.ports("state")
    taken = {port.name for port in state}
    names: dict[Tensor, str] = {}
    for tensor in cut:
        base = tensor.name.removesuffix(":0") or "frozen"
        name, number = base, 0
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        names[tensor] = name
    before = program.replace(
        inputs=tuple(state),
        nodes=used_from(program.nodes, cut),
        outputs=tuple(Port(names[t], "fetch", t) for t in cut),
        equalities=(),
        batch_axes={},
    )
    needed = {t for node in before.nodes for t in node.inputs}
    before = before.replace(inputs=tuple(p for p in state if p.tensor in needed))
    nodes = tuple(node for node in program.nodes if node in kept)
    used = {t for node in nodes for t in node.inputs} | set(program.output_tensors())
    inputs = [p for p in program.inputs if p.kind != "state" or p.tensor in used]
    ports = [Port(names[t], "state", t) for t in cut]
    return Split(before, program.replace(inputs=(*inputs, *ports), nodes=nodes))
