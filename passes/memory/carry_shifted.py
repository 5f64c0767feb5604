"""CarryShifted: a stack that is another stack shifted by one iteration is carried instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.joining import CONCATENATE
from graphc.ops.arrays.slicing import REVERSE, SLICE
from graphc.ops.arrays.stacking import STACK
from graphc.ops.control.bodies import slice_type
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN
from graphc.passes.core.base import Pass, PassResult, run_all_bodies
from graphc.passes.memory.stack_pieces import Piece, Pieces
from graphc.passes.simplify.prune import Prune

# The results of these operators are new arrays.
_MAKERS: Final = (CONCATENATE, REVERSE, SCAN, SLICE, STACK)


@dataclass(frozen=True)
class CarryShifted(Pass):
    """Removes a stack of a loop that equals another one shifted by one iteration: the loop carries
    the slice of the other stack to the next iteration instead.

    The backward loop of a recurrence h -> tanh(h @ w) needs h for the gradient of w, and the new h
    for the derivative of tanh. The new h of a layer is the h of the next layer, which the backward
    loop read one iteration earlier. So only half of the activations are stored: the second stack
    is not computed any more. XLA does not compare the contents of stacks.

    Must not: replace a stack that has other users or is an argument of the program, because it
    would stay in memory; replace a stack that alone holds its first slice. Two stacks are compared
    by the origin of their slices, never by values.
    """

    def run(self, program: Program) -> PassResult:
        program, changed = run_all_bodies(self, program)
        pieces = Pieces(program)
        alone = _Alone(program)
        nodes: list[Node] = []
        node: Node | None = None
        shifted = 0
        try:
            for node in program.nodes:
                found = _find(node, pieces, alone) if node.op is SCAN else []
                if found:
                    nodes += _written(node, found)
                    shifted += len(found)
                else:
                    nodes.append(node)
        except Exception as error:
            raise self.fault(node, error) from error
        if shifted:
            program = Prune().run(program.replace(nodes=tuple(nodes))).program
        return PassResult(program, changed + shifted)


class _Shifted(NamedTuple):
    """A stack to be carried.

    Attributes:
        stack: an operand of the loop.
        source: the operand whose slice an iteration carries to the next one.
        first, place: the value that the first iteration uses: `first` itself if `place` is None,
            else the slice of `first` at `place`.
    """

    stack: Tensor
    source: Tensor
    first: Tensor
    place: int | None


class _Alone:
    """Tells which stacks are used by only one loop."""

    def __init__(self, program: Program) -> None:
        self._users = program.users()
        self._made = program.producers()
        self._given = set(program.output_tensors())

    def is_for(self, stack: Tensor, loop: Node) -> bool:
        node = self._made.get(stack)
        if node is None or node.op not in _MAKERS or stack in self._given:
            return False
        return all(user is loop for user in self._users[stack])

    def is_argument(self, tensor: Tensor) -> bool:
        return tensor not in self._made


def _find(loop: Node, pieces: Pieces, alone: _Alone) -> list[_Shifted]:
    """The stacks that a loop does not need."""
    length = loop.attrs["length"]
    if type(length) is not int or length < 2:
        return []
    view = LoopView.of(loop)
    order, outer = view.order(), view.outer
    fixed = {*outer.consts, *outer.carries}
    xs = list(dict.fromkeys(outer.xs))
    found: list[_Shifted] = []
    gone: set[Tensor] = set()
    for stack in xs:
        if stack in fixed or not alone.is_for(stack, loop):
            continue
        for source in xs:
            if source is stack or source in gone or source.type != stack.type:
                continue
            if not _follows(stack, source, pieces, order):
                continue
            first = pieces.at(stack, order[0])
            kept = [t for t in xs if t is not stack and t not in gone]
            if first.is_carry or not _is_there(first, kept, pieces, alone):
                continue
            found.append(_Shifted(stack, source, first.tensor, first.place))
            gone.add(stack)
            break
    return found


def _is_there(first: Piece, kept: Sequence[Tensor], pieces: Pieces, alone: _Alone) -> bool:
    """Whether a piece is in memory even if no stack is kept for it."""
    if first.place is None or alone.is_argument(first.tensor) or first.tensor.type.shape[0] == 1:
        return True
    return any(first.tensor in pieces.stacks(t) for t in kept)


def _follows(stack: Tensor, source: Tensor, pieces: Pieces, order: range) -> bool:
    """Whether each iteration reads from `stack` what the previous one read from `source`."""
    steps = zip(order[1:], order[:-1], strict=True)
    return all(pieces.at(stack, now) == pieces.at(source, before) for now, before in steps)


def _written(loop: Node, found: Sequence[_Shifted]) -> list[Node]:
    """The loop with its carries, after the nodes that compute their first values."""
    view = LoopView.of(loop)
    pairs = list(zip(view.outer.xs, view.inner.xs, strict=True))
    slice_of: dict[Tensor, Tensor] = {}  # a loop may take a stack twice: one slice serves both
    for stack, inside in pairs:
        slice_of.setdefault(stack, inside)
    gone = [i for i, (stack, _) in enumerate(pairs) if any(stack is each.stack for each in found)]
    taken = [(inside, slice_of[stack]) for stack, inside in (pairs[i] for i in gone)]
    second = {inside: first for inside, first in taken if inside is not first}
    with Builder(like=loop) as builder:
        carried = [
            (
                each.first if each.place is None else each.first[each.place],
                slice_of[each.stack],
                slice_of[each.source],
                Tensor(slice_type(each.stack.type), each.stack.name),
            )
            for each in found
        ]
    return [*builder.nodes, view.without_xs(gone).with_carries(carried).substituted(second).write()]
