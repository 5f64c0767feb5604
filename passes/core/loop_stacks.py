"""The stacks that a loop reads and writes, for passes that move work after the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure
from graphc.ir.rewrite import used_from
from graphc.ops.control.bodies import stacked_type
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes, with_bodies
from graphc.passes.core.rules import Rewriter


def uses_of(body: Program) -> Counter[Tensor]:
    """How often each value is an operand of a node or a result of the body."""
    found = Counter(tensor for node in body.nodes for tensor in node.inputs)
    found.update(body.output_tensors())
    return found


class LoopStacks:
    """The stacks of a `Scan`: existing ones, and new ones that it must write.

    Attributes:
        node: the loop before the change.
        view: its parts.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.view = view = LoopView.of(node)
        self._there = dict(zip(view.ys, view.stacks, strict=True))
        self._there.update(zip(view.inner.xs, view.outer.xs, strict=True))
        self._new: dict[Tensor, Tensor] = {}

    def has(self, tensor: Tensor) -> bool:
        """Whether a stack of this value of the body exists before the change."""
        return tensor in self._there

    def of(self, tensor: Tensor) -> Tensor:
        """The stack of a value of the body, outside of the loop; a new one if none exists."""
        if tensor in self._there:
            return self._there[tensor]
        type = stacked_type(tensor.type, self.node.attrs["length"])
        return self._new.setdefault(tensor, Tensor(type, f"{tensor.name}/turns"))

    def without(self, gone: Collection[int]) -> Node:
        """The loop with the new stacks, and without these carries and the nodes that only they
        needed."""
        view = self.view.without_carries(gone).with_ys(self._new.items())
        nodes = used_from(view.nodes, view.given(), keep=lambda inner: not is_pure(inner))
        return view.with_nodes(nodes).write()


Rewrite = Callable[[Node, Rewriter], tuple[Node, list[Node]]]


def rewrite_loops(a_pass: Pass, program: Program, rewrite: Rewrite) -> PassResult:
    """The program with each `Scan` rewritten, inner loops first.

    Args:
        rewrite: takes a loop and the producers of the values before it. It returns the new loop
            (the same one for no change) and the nodes to insert after it.
    """
    known = Rewriter()

    def enter(node: Node) -> tuple[Node, int]:
        return with_bodies(node, [rewrite_loops(a_pass, body, rewrite) for body in node.regions])

    def rewritten(node: Node) -> Node | list[Node]:
        known.made.update(dict.fromkeys(node.outputs, node))
        loop, after = rewrite(node, known) if node.op is SCAN else (node, [])
        return node if loop is node else [loop, *after]

    return rewrite_nodes(a_pass, program, rewritten, enter=enter)
