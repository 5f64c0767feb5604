"""The state that a program updates, and the carries that its loops update."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from graphc.ir.node import Node, Tensor, by_identity
from graphc.ir.program import Program
from graphc.ops.control.loop_view import LoopView
from graphc.passes.core.base import PassResult, with_bodies


@by_identity
class End(NamedTuple):
    """A new value of a state or of a carry, and the old value (None: it is not read)."""

    new: Tensor
    old: Tensor | None


def states(program: Program) -> list[End]:
    """The state that a program assigns."""
    old = {port.name: port.tensor for port in program.ports("state")}
    return [End(port.tensor, old.get(port.name)) for port in program.new_state()]


def carries(node: Node, number: int) -> list[End]:
    """The new and old carries of an iteration of a loop; `number` is the index of the region, of
    which the first is the body. Empty for a node that is not a loop."""
    if number or "carries" not in node.attrs:
        return []
    view = LoopView.of(node)
    return [End(*pair) for pair in zip(view.following, view.inner.carries, strict=True)]


def in_bodies(program: Program, run: Callable[[Program, list[End]], PassResult]) -> PassResult:
    """`run` on the bodies of the program's nodes, with the carries that each updates."""
    if not any(node.regions for node in program.nodes):
        return PassResult(program, 0)
    changed, nodes = 0, []
    for node in program.nodes:
        results = [run(body, carries(node, i)) for i, body in enumerate(node.regions)]
        node, inside = with_bodies(node, results)
        changed += inside
        nodes.append(node)
    return PassResult(program.replace(nodes=tuple(nodes)) if changed else program, changed)
