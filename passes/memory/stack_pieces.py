"""Finds which value each slice of a stack is."""

from __future__ import annotations

from typing import Any, NamedTuple

from graphc.ir.node import Node, Tensor, by_identity, position_of
from graphc.ir.program import Program
from graphc.ops.arrays.joining import CONCATENATE
from graphc.ops.arrays.slicing import REVERSE, SLICE
from graphc.ops.arrays.stacking import STACK, UNSTACK
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN


@by_identity
class Piece(NamedTuple):
    """A value of a program. Equal pieces are the same value.

    Attributes:
        tensor: the value itself; or the stack of which it is a slice; or the last value of the
            carry of which it is an earlier value.
        place: None for the tensor itself; or the index of the slice; or the number of the iteration
            after which the carry has the value.
        is_carry: whether it is an earlier value of a carry. No tensor holds it then.
    """

    tensor: Tensor
    place: int | None = None
    is_carry: bool = False


class Pieces:
    """The contents of the stacks of a program."""

    def __init__(self, program: Program) -> None:
        self._made = program.producers()

    def at(self, stack: Tensor, place: int) -> Piece:
        """The slice of a stack at a place along its leading axis."""
        while True:
            node = self._made.get(stack)
            if node is None:
                return Piece(stack, place)
            if node.op is STACK and node.attrs["axis"] == 0:
                return self.of(node.inputs[place])
            if node.op is SCAN:
                return self._stacked(node, stack, place)
            moved = _operand(node, place)
            if moved is None:
                return Piece(stack, place)
            stack, place = moved

    def of(self, tensor: Tensor) -> Piece:
        """The piece that corresponds to a tensor."""
        node = self._made.get(tensor)
        if node is not None and node.op is UNSTACK and node.attrs["axis"] == 0:
            return self.at(node.inputs[0], position_of(tensor, node.outputs))
        if node is not None and node.op is SCAN and type(node.attrs["length"]) is int:
            view, number = LoopView.of(node), position_of(tensor, node.outputs)
            if number < len(view.following):
                return self._in_iteration(view, view.following[number], node.attrs["length"] - 1)
        return Piece(tensor)

    def stacks(self, stack: Tensor) -> set[Tensor]:
        """The stack, and the stacks that its slices are taken from."""
        found, waiting = {stack}, [stack]
        while waiting:
            node = self._made.get(waiting.pop())
            if node is not None and node.op in (STACK, UNSTACK, SLICE, REVERSE, CONCATENATE):
                waiting += [t for t in node.inputs if t not in found]
                found.update(node.inputs)
        return found

    def _stacked(self, loop: Node, stack: Tensor, place: int) -> Piece:
        view = LoopView.of(loop)
        number = position_of(stack, loop.outputs) - len(view.following)
        if type(loop.attrs["length"]) is not int or number < 0:
            return Piece(stack, place)
        return self._in_iteration(view, view.ys[number], _mirrored(loop, place))

    def _in_iteration(self, view: LoopView, value: Tensor, iteration: int) -> Piece:
        """A result of the body in an iteration; the first one has the number 0."""
        loop = view.node
        inner, outer, results = view.inner, view.outer, view.given()
        carries = len(inner.carries)
        last = loop.attrs["length"] - 1
        carried = {t: i for i, t in reversed(list(enumerate(inner.carries)))}
        met: dict[Tensor, int] = {}
        while value in carried:
            number = carried[value]
            if value in met:  # carries that only exchange their values repeat: skip whole periods
                iteration %= met[value] - iteration
            if iteration == 0:
                return self.of(outer.carries[number])
            met[value] = iteration
            value, iteration = results[number], iteration - 1
        for here, there in zip(inner.consts, outer.consts, strict=True):
            if here is value:
                return self.of(there)
        for here, there in zip(inner.xs, outer.xs, strict=True):
            if here is value:
                return self.at(there, _mirrored(loop, iteration))
        number = position_of(value, results)
        if number >= carries:
            return Piece(loop.outputs[number], _mirrored(loop, iteration))
        if iteration == last:
            return Piece(loop.outputs[number])
        stacked = [i for i in range(carries, len(results)) if results[i] is value]
        if stacked:
            return Piece(loop.outputs[stacked[0]], _mirrored(loop, iteration))
        return Piece(loop.outputs[number], iteration, is_carry=True)


def _mirrored(loop: Node, number: int) -> int:
    """The index of an iteration's slice in the loop's stacks, or the iteration of an index."""
    mirrored: int = loop.attrs["length"] - 1 - number if loop.attrs["reverse"] else number
    return mirrored


def _operand(node: Node, place: int) -> tuple[Tensor, int] | None:
    """The operand of a node that contains the slice at `place` of its result, and the index there;
    or None."""
    attrs: Any = node.attrs
    leading = [t.type.shape[0] for t in node.inputs if t.type.shape]
    sizes = [size for size in leading if isinstance(size, int)]
    if len(sizes) < len(node.inputs):
        return None
    if node.op is REVERSE and attrs["axes"] == (0,):
        return node.inputs[0], sizes[0] - 1 - place
    if node.op is SLICE and node.outputs[0].type.shape[1:] == node.inputs[0].type.shape[1:]:
        return node.inputs[0], attrs["starts"][0] + place * attrs["strides"][0]
    if node.op is CONCATENATE and attrs["axis"] == 0:
        for tensor, size in zip(node.inputs, sizes, strict=True):
            if place < size:
                return tensor, place
            place -= size
    return None
