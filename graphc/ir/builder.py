"""`Builder`: with it, a pass creates nodes of a program by the same functions that users call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from graphc.ir.graph import Graph
from graphc.ir.node import EMPTY, Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ir.scopes import AMBIENT


class Builder(Graph):
    """The nodes that a pass adds to a program, in order. Enter it and call operator functions:

        with Builder(like=node) as builder:
            scaled = ops.reshape(x, shape) * 2
        builder.nodes  # the Reshape, the constant and the Multiply

    Operands may be tensors of any program. The types of results are inferred; nothing else is
    known about the new tensors. Names have the form `scope/Operator`. They may repeat, as the
    names of nodes in a program may.

    Args:
        like: the node whose source line and device the new nodes get.
        scope: the prefix of their names; the default is the name of `like`.

    Attributes:
        nodes: the nodes written so far. A pass may add its own nodes.
    """

    def __init__(self, like: Node | None = None, scope: str | None = None) -> None:
        super().__init__()
        self.like = like
        self.scope = scope

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def add(
        self,
        op: OpDef,
        inputs: Sequence[Tensor] = (),
        attrs: Mapping[str, Any] = EMPTY,
        regions: tuple[Program, ...] = (),
        name: str | None = None,
    ) -> Node:
        """Appends a node.

        Raises:
            ShapeError, DTypeError, AttributeValueError: the operands or attributes do not fit.
        """
        source, device, scope = None, "", self.scope
        like = self.like
        if like is not None:
            source, device = like.source, like.device
            if scope is None:
                scope = like.name
        path = AMBIENT.name_scope + (name or op.name)
        if scope:
            path = f"{scope}/{path}"
        attrs = op.complete(attrs, source)
        types = op.infer_types(inputs, attrs, self.constraints, source, regions)
        outputs = tuple([Tensor(type, f"{path}:{i}") for i, type in enumerate(types)])
        node = Node(op, tuple(inputs), outputs, attrs, tuple(regions), path, source, device)
        self.append(node)
        return node

    def append(self, node: Node) -> None:
        """Appends a complete node."""
        self.nodes.append(node)
        for tensor in node.outputs:
            self._producers[tensor] = node

    def adopt(self, tensor: Tensor) -> Tensor:
        """Returns the tensor itself, because tensors of programs belong to no graph."""
        return tensor

    def define(self, *pairs: tuple[Tensor, Tensor]) -> None:
        """For each pair (new, old), the node that produces `new` produces `old` instead. `old` is
        a tensor of the program, and its users stay unchanged. No node may use `new` yet."""
        instead = dict(pairs)
        left = {self._producers.pop(new) for new in instead}
        place = len(self.nodes)
        while left:
            place -= 1
            node = self.nodes[place]
            if node in left:
                left.remove(node)
                outputs = tuple([instead.get(t, t) for t in node.outputs])
                self.nodes[place] = node = node.replace(outputs=outputs)
                self._producers.update(dict.fromkeys(outputs, node))

    @contextmanager
    def at(self, like: Node | None, scope: str | None = None) -> Iterator[None]:
        """Inside the context, new nodes get the source line, device and scope given here."""
        saved = self.like, self.scope
        self.like, self.scope = like, scope
        try:
            yield
        finally:
            self.like, self.scope = saved
