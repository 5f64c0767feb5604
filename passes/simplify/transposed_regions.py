"""Finds nodes that compute with another order of axes, so that fewer elements are transposed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import TRANSPOSE
from graphc.passes.simplify.axis_orders import (
    Order,
    Reordered,
    by_operand,
    by_result,
    compose,
    inverse,
    is_free,
    lengthened,
    reordered_type,
)

_UNKNOWN: Final = 32  # counts for a size without a value


@dataclass
class Region:
    """Nodes that compute with reordered axes.

    Attributes:
        forms: the nodes, and what they become.
        held: the results of the nodes, and the order in which they are stored.
    """

    forms: dict[Node, Reordered] = field(default_factory=dict)
    held: dict[Tensor, Order] = field(default_factory=dict)

    def origin(
        self, made: Mapping[Tensor, Node], tensor: Tensor, order: Order
    ) -> tuple[Tensor, Order]:
        """The tensor at the start of a chain of transposes, and its order that gives `tensor` in
        `order`."""
        while tensor not in self.held:
            maker = made.get(tensor)
            if maker is None or maker.op is not TRANSPOSE or len(order) != tensor.type.rank:
                break
            tensor, order = maker.inputs[0], compose(maker.attrs["perm"], order)
        return tensor, order

    def moved(self, tensor: Tensor, order: Order) -> int:
        """How many elements move to give `tensor`, as it is stored, in `order`."""
        type = expanded(tensor.type, len(order))
        held = self.held.get(tensor)
        if held is not None:
            held = lengthened(held, len(order))
            type, order = reordered_type(type, held), compose(inverse(held), order)
        return 0 if is_free(type, order) else _elements(type)


def expanded(type: TensorType, rank: int) -> TensorType:
    """The type with leading axes of size 1."""
    return TensorType(type.dtype, (*(1,) * (rank - type.rank), *type.shape))


def _elements(type: TensorType) -> int:
    found = 1
    for dim in type.shape:
        found *= dim if isinstance(dim, int) else _UNKNOWN
    return found


class Search:
    """Finds the regions of a program that need fewer transposes when they are reordered."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._made = program.producers()
        self._users: Mapping[Tensor, list[Node]] = program.users()
        self._outputs = frozenset(program.output_tensors())
        self._tried: set[tuple[Node, Order]] = set()

    def run(self) -> Region:
        chosen = Region()
        for node in self._program.nodes:
            if node.op is not TRANSPOSE:
                continue
            order = node.attrs["perm"]
            for tensor, seed in ((node.outputs[0], inverse(order)), (node.inputs[0], order)):
                region = self._region(tensor, seed, chosen)
                if region.forms and self._is_better(region):
                    chosen.forms.update(region.forms)
                    chosen.held.update(region.held)
        return chosen

    def _region(self, tensor: Tensor, order: Order, chosen: Region) -> Region:
        """The nodes that are connected to `tensor` and can be reordered, without chosen ones."""
        region, queue = Region(), deque([(tensor, order)])
        while queue:
            tensor, order = queue.popleft()
            if len(order) != tensor.type.rank or is_free(tensor.type, order):
                continue
            maker = self._made.get(tensor)
            if maker is not None and maker.op is not TRANSPOSE and maker.outputs[0] is tensor:
                self._include(maker, by_result(maker, order), region, chosen, queue)
            if region.held.get(tensor) != order and not self._is_transposed(tensor, order):
                continue
            for user in self._users.get(tensor, ()):
                position = next(i for i, t in enumerate(user.inputs) if t is tensor)
                form = by_operand(user, position, order)
                self._include(user, form, region, chosen, queue)
        return region

    def _is_transposed(self, tensor: Tensor, order: Order) -> bool:
        """Whether `tensor` in `order` is the operand of a transpose."""
        maker = self._made.get(tensor)
        if maker is None or maker.op is not TRANSPOSE:
            return False
        return is_free(maker.inputs[0].type, compose(maker.attrs["perm"], order))

    def _include(
        self,
        node: Node,
        form: Reordered | None,
        region: Region,
        chosen: Region,
        queue: deque[tuple[Tensor, Order]],
    ) -> None:
        if form is None or node in region.forms or node in chosen.forms:
            return
        seen = (node, form.results[0])
        if not region.forms and seen in self._tried:
            return  # the region of an earlier seed, which was not better
        self._tried.add(seen)
        region.forms[node] = form
        region.held.update(zip(node.outputs, form.results, strict=True))
        queue.extend(zip(node.inputs, form.operands, strict=True))
        queue.extend(zip(node.outputs, form.results, strict=True))

    def _is_better(self, region: Region) -> bool:
        before, after = self._transposes(Region(), region), self._transposes(region, region)
        return sum(after) < sum(before) and len(after) <= len(before)

    def _transposes(self, held: Region, region: Region) -> list[int]:
        """The elements that each transpose at the nodes of `region` moves.

        Args:
            held: `region`, or an empty one for the program as it is.
        """
        needed: dict[tuple[Tensor, Order], None] = {}
        for node, form in region.forms.items():
            now = held.forms.get(node)
            for i, tensor in enumerate(node.inputs):
                order = form.operands[i] if now else tuple(range(tensor.type.rank))
                needed[held.origin(self._made, tensor, order)] = None
                self._add_kept(tensor, held, region, needed)
            for tensor in node.outputs:
                self._add_users(tensor, held, region, needed)
        moves = [held.moved(*pair) for pair in needed]
        return [moved for moved in moves if moved]

    def _add_users(
        self, tensor: Tensor, held: Region, region: Region, needed: dict[tuple[Tensor, Order], None]
    ) -> None:
        """Adds what the users of a result outside of the region need."""
        for user in self._users.get(tensor, ()):
            if user.op is TRANSPOSE:
                needed[tensor, user.attrs["perm"]] = None
            elif user not in region.forms:
                needed[tensor, tuple(range(tensor.type.rank))] = None
        if tensor in self._outputs:
            needed[tensor, tuple(range(tensor.type.rank))] = None

    def _add_kept(
        self, tensor: Tensor, held: Region, region: Region, needed: dict[tuple[Tensor, Order], None]
    ) -> None:
        """Adds the transpose that makes an operand, if something else needs it too."""
        maker = self._made.get(tensor)
        if maker is None or maker.op is not TRANSPOSE:
            return
        others = any(user not in region.forms for user in self._users.get(tensor, ()))
        if others or tensor in self._outputs:
            needed[held.origin(self._made, maker.inputs[0], maker.attrs["perm"])] = None
