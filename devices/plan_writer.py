"""`PlanWriter`: writes nodes in the form that their layout plans give them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from graphc.ir.builder import Builder
from graphc.ir.layouts import Layout, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port
from graphc.ir.types import TensorType
from graphc.ops.core.emit import emit_one
from graphc.ops.draws.random_keys import FOLD_IN


class PlanWriter(ABC):
    """Writes the part of a program that computes one piece of a batch: a replica's piece, or one
    micro-batch.

    Args:
        body: receives the nodes.
    """

    def __init__(self, body: Builder) -> None:
        self._body = body
        # whole value -> the tensor of the part, in the layout that the plans of its users expect
        self._local: dict[Tensor, Tensor] = {}
        self._converted: dict[tuple[Tensor, Layout], Tensor] = {}
        self._keys: dict[Tensor, Tensor] = {}  # random key -> the part's own key

    @abstractmethod
    def _convert(self, tensor: Tensor, wanted: Layout, user: Node | Port) -> Tensor:
        """The part's tensor for `tensor` in the layout that `user` wants."""

    @abstractmethod
    def _piece(self, type: TensorType, layout: Sharded) -> TensorType:
        """The type of one piece of a value."""

    @abstractmethod
    def _number(self) -> Tensor:
        """The number of the piece, in the body: int32 scalar."""

    def _as(self, tensor: Tensor, wanted: Layout, user: Node | Port) -> Tensor:
        """The part's tensor for `tensor` in the layout that `user` wants, converted only once."""
        found = self._converted.get((tensor, wanted))
        if found is None:
            found = self._convert(tensor, wanted, user)
            self._converted[tensor, wanted] = found
        return found

    def _write(self, node: Node, plan: LayoutPlan) -> Node:
        """Writes a node as its plan says, and returns it."""
        inputs = [
            self._as(tensor, wanted, node)
            for tensor, wanted in zip(node.inputs, plan.operands, strict=True)
        ]
        for position in plan.fold_replica:
            inputs[position] = self._own_key(inputs[position])
        inputs = self._with_padding(node, plan, inputs)
        outputs = [
            self._define(tensor, layout)
            for tensor, layout in zip(node.outputs, plan.results, strict=True)
        ]
        local = plan.local(node, inputs, outputs)
        self._body.append(local)
        return local

    def _with_padding(self, node: Node, plan: LayoutPlan, inputs: list[Tensor]) -> list[Tensor]:
        """The operands, with padding that does not affect the result. Micro-batches have none."""
        return inputs

    def _define(self, tensor: Tensor, layout: Layout) -> Tensor:
        """The part's tensor for a new tensor; the tensor itself if its type is unchanged."""
        local = tensor
        if isinstance(layout, Sharded):
            local = Tensor(self._piece(tensor.type, layout), tensor.name)
        self._local[tensor] = local
        return local

    def _own_key(self, key: Tensor) -> Tensor:
        """A random key with the number of the piece folded in."""
        if key not in self._keys:
            with self._body:
                self._keys[key] = emit_one(FOLD_IN, (key, self._number()))
        return self._keys[key]
