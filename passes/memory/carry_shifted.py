"""CarryShifted: a stack that is another stack shifted by one iteration is carried instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.rewrite import substitute
from graphc.ops.arrays.joining import CONCATENATE
from graphc.ops.arrays.shape import RESHAPE
from graphc.ops.arrays.slicing import REVERSE, SLICE
from graphc.ops.arrays.stacking import STACK
from graphc.ops.control.bodies import slice_type, split
from graphc.ops.control.scan import SCAN
from graphc.passes.core.base import Pass, PassResult, run_all_bodies
from graphc.passes.core.building import node_of
from graphc.passes.memory.stack_pieces import Piece, Pieces
from graphc.passes.simplify.prune import Prune

# The results of these are arrays of their own.
_MAKERS: Final = (CONCATENATE, REVERSE, SCAN, SLICE, STACK)


@dataclass(frozen=True)
class CarryShifted(Pass):
    """A loop that takes two stacks, one of which is the other shifted by one iteration, takes only
    one of them: the slice of this iteration is carried to the next one.

    The backward loop of a recurrence h -> tanh(h @ w) needs h for the gradient of w, and the new
    h for the slope of tanh. The stack of the new h is the stack of h, later by one layer. The
    backward loop begins with the last layer: it has the new h of a layer from the iteration
    before, where it was h. So half of the activations are stored. What the forward loop stacks
    for the second stack, or what copies it together, is not needed any more. XLA does not compare
    what lies in stacks.

    Must not: replace a stack that anything else uses, or that is an argument of the program: it
    would stay in memory. Nor a stack whose first slice only that stack holds. Nor compare values:
    two stacks are compared by where their slices come from.
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
        first: what the first iteration takes: the value, or the stack and the place in it.
    """

    stack: Tensor
    source: Tensor
    first: Tensor
    place: int | None


class _Alone:
    """Which stacks are there for one loop alone."""

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
    """The stacks that a loop need not take."""
    length = loop.attrs["length"]
    if type(length) is not int or length < 2:
        return []
    order = range(length - 1, -1, -1) if loop.attrs["reverse"] else range(length)
    outer = split(loop.inputs, loop.attrs["consts"], loop.attrs["carries"])
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
    """Whether a piece is in memory although no stack is kept for it."""
    if first.place is None or alone.is_argument(first.tensor) or first.tensor.type.shape[0] == 1:
        return True
    return any(first.tensor in pieces.stacks(t) for t in kept)


def _follows(stack: Tensor, source: Tensor, pieces: Pieces, order: range) -> bool:
    """Whether each iteration takes of `stack` what the one before took of `source`."""
    steps = zip(order[1:], order[:-1], strict=True)
    return all(pieces.at(stack, now) == pieces.at(source, before) for now, before in steps)


def _written(loop: Node, found: Sequence[_Shifted]) -> list[Node]:
    """The loop with its carries, after the nodes that make their first values."""
    (body,), consts, carries = loop.regions, loop.attrs["consts"], loop.attrs["carries"]
    outer = split(loop.inputs, consts, carries)
    inner = split(body.input_tensors(), consts, carries)
    results = body.output_tensors()
    first_of: dict[Tensor, Tensor] = {}
    same: dict[Tensor, Tensor] = {}
    for there, here in zip(outer.xs, inner.xs, strict=True):
        same[here] = first_of.setdefault(there, here)
    gone = {each.stack for each in found}
    xs = [pair for pair in zip(outer.xs, inner.xs, strict=True) if pair[0] not in gone]
    instead = {
        here: same[here]
        for there, here in zip(outer.xs, inner.xs, strict=True)
        if there in gone and same[here] is not here
    }
    starts: list[Node] = []
    initial: list[Tensor] = []
    for each in found:
        initial.append(each.first)
        if each.place is not None:
            starts += _slice(each.first, each.place, loop)
            initial[-1] = starts[-1].outputs[0]
    outputs = [
        *results[:carries],
        *(first_of[each.source] for each in found),
        *results[carries:],
    ]
    finals = [Tensor(slice_type(each.stack.type), each.stack.name) for each in found]
    inputs = [
        *inner.consts,
        *inner.carries,
        *(first_of[each.stack] for each in found),
        *(here for _, here in xs),
    ]
    new = region(
        body.name,
        inputs,
        substitute(body.nodes, instead),
        [instead.get(t, t) for t in outputs],
    )
    return [
        *starts,
        loop.replace(
            inputs=(*outer.consts, *outer.carries, *initial, *(there for there, _ in xs)),
            outputs=(*loop.outputs[:carries], *finals, *loop.outputs[carries:]),
            attrs={**loop.attrs, "carries": carries + len(found)},
            regions=(new,),
        ),
    ]


def _slice(stack: Tensor, place: int, loop: Node) -> list[Node]:
    """The slice of a stack at a place."""
    shape = stack.type.shape
    cut = node_of(
        SLICE,
        (stack,),
        like=loop,
        starts=(place, *[0] * (len(shape) - 1)),
        limits=(place + 1, *shape[1:]),
        strides=(1,) * len(shape),
    )
    return [cut, node_of(RESHAPE, cut.outputs, like=loop, shape=shape[1:])]
