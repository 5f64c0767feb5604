"""What a program writes anew: its state, and the carries of its loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from graphc.ir.node import Node, Tensor, by_identity
from graphc.ir.program import Program
from graphc.passes.core.base import PassResult, with_bodies


@by_identity
class End(NamedTuple):
    """A new value of a state, or of a loop's carry, and the old one (None: it is not read)."""

    new: Tensor
    old: Tensor | None


def states(program: Program) -> list[End]:
    """The state that a program assigns."""
    old = {port.name: port.tensor for port in program.ports("state")}
    return [End(port.tensor, old.get(port.name)) for port in program.new_state()]


def carries(node: Node, number: int) -> list[End]:
    """What a turn of a loop gives of what it was given; `number` counts the node's regions, of
    which the first is the body. None for a node that is no loop."""
    count = node.attrs.get("carries", 0)
    if not count or number:
        return []
    body = node.regions[0]
    given = body.input_tensors()[node.attrs["consts"] :]
    return [End(*pair) for pair in zip(body.output_tensors()[:count], given, strict=False)]


def in_bodies(program: Program, run: Callable[[Program, list[End]], PassResult]) -> PassResult:
    """`run` on the bodies of the program's nodes, with the carries that each writes."""
    if not any(node.regions for node in program.nodes):
        return PassResult(program, 0)
    changed, nodes = 0, []
    for node in program.nodes:
        results = [run(body, carries(node, i)) for i, body in enumerate(node.regions)]
        node, inside = with_bodies(node, results)
        changed += inside
        nodes.append(node)
    return PassResult(program.replace(nodes=tuple(nodes)) if changed else program, changed)
