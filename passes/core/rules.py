"""Local rewrite rules, the common basis of the simplifying passes.

A rule sees one node and the producers of its operands, and returns something equivalent. One scan
in program order applies the rules of each node's operator, so operands are always simplified before
their users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphc.ir.builder import Builder
from graphc.ir.dtypes import DType
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ops.arrays.shape import BROADCAST_TO
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes

# None: no change. A node with the same results: replaces the node. A tensor, or one per result:
# existing values to use instead.
Answer: TypeAlias = Node | Tensor | tuple[Tensor, ...] | None
Rule: TypeAlias = Callable[["Rewriter", Node], Answer]
Rules: TypeAlias = Mapping[OpDef, Rule]

_UNIFORM_LIMIT = 1 << 16  # larger constants are not checked for equal elements
_ABSENT = object()


def simplify(a_pass: Pass, program: Program, rules: Rules) -> PassResult:
    """The program after one scan with `rules`, including bodies, for `a_pass`."""
    rewriter = Rewriter()
    made, instead, nodes = rewriter.made, rewriter.instead, rewriter.nodes
    made |= {tensor: node for node in program.nodes for tensor in node.outputs}

    def simplified(node: Node) -> Node | tuple[()]:
        rule = rules.get(node.op)
        simpler = node if rule is None else rewriter.apply(rules, rule, node)
        if simpler is None:
            return ()
        for tensor in simpler.outputs:
            made[tensor] = simpler
        return simpler

    with rewriter:
        return rewrite_nodes(a_pass, program, simplified, only=rules, instead=instead, nodes=nodes)


class Rewriter(Builder):
    """The context of rules. While a rule runs, operator functions add nodes before the current
    node, with its source line and device.

    Attributes:
        made: tensor -> its producer, for every node of the program; for those before the current
            one, the final one.
        instead: tensor -> its replacement.
        nodes: the nodes of the new program so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[Tensor, Node] = self._producers
        self.instead: dict[Tensor, Tensor] = {}
        self._scalars: dict[Tensor, Any] = {}

    def apply(self, rules: Rules, rule: Rule, node: Node) -> Node | None:
        """The final node after applying rules to `node` until none changes it.

        None if existing tensors replace all its results.
        """
        current: Rule | None = rule
        while current is not None:
            self.like = node
            answer = current(self, node)
            if answer is None:
                return node
            if not isinstance(answer, Node):
                tensors = answer if isinstance(answer, tuple) else (answer,)
                self.instead.update(zip(node.outputs, tensors, strict=True))
                return None
            node = answer
            current = rules.get(node.op)
        return node

    def maker(self, tensor: Tensor, op: OpDef) -> Node | None:
        """The producer of `tensor` if its operator is `op`."""
        node = self.made.get(tensor)
        return node if node is not None and node.op is op else None

    def scalar(self, tensor: Tensor) -> Any:
        """The Python number that all elements of `tensor` equal, or None if unknown."""
        node = self.made.get(tensor)
        if node is None:
            return None
        if node.op is BROADCAST_TO:
            return self.scalar(node.inputs[0])
        if node.op is not CONSTANT:
            return None
        found = self._scalars.get(tensor, _ABSENT)
        if found is _ABSENT:
            found = self._scalars[tensor] = _uniform(node.attrs["value"])
        return found

    def constant(self, value: Any, dtype: DType) -> Tensor:
        """A new scalar constant. A value that does not fit the dtype is rounded or becomes
        infinite."""
        return self.add(CONSTANT, (), {"value": _read_only(value, dtype)}).outputs[0]

    def filled(self, node: Node, value: Any) -> Node:
        """A node that defines the result of `node` with `value` for every element."""
        type = node.outputs[0].type
        if not type.shape:
            return change(node, CONSTANT, (), value=_read_only(value, type.dtype))
        return change(node, BROADCAST_TO, (self.constant(value, type.dtype),), shape=type.shape)

    def fitted(self, node: Node, tensor: Tensor) -> Answer:
        """`tensor` as the result of `node`, broadcast if it is smaller; None if its dtype
        differs."""
        want, have = node.outputs[0].type, tensor.type
        if have == want:
            return tensor
        if have.dtype != want.dtype:
            return None
        return change(node, BROADCAST_TO, (tensor,), shape=want.shape)


def change(node: Node, op: OpDef, inputs: Sequence[Tensor], **attrs: Any) -> Node:
    """`node` with its results computed by another operator."""
    return node.replace(op=op, inputs=tuple(inputs), attrs=op.complete(attrs), regions=())


def first_operand(rw: Rewriter, node: Node) -> Answer:
    """The rule of operators whose result is their first operand."""
    return node.inputs[0]


def _read_only(value: Any, dtype: DType) -> np.ndarray[Any, Any]:
    array = np.asarray(value, dtype)
    array.flags.writeable = False
    return array


def _uniform(value: np.ndarray[Any, Any]) -> Any:
    if not 0 < value.size <= _UNIFORM_LIMIT:
        return None
    first = value.item(0)
    return first if value.size == 1 or bool((value == value.flat[0]).all()) else None
