"""Recurrences that run or compile faster without a loop, although they save nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from graphc.ir.node import Node, Tensor
from graphc.ir.program import is_pure
from graphc.ops.elementwise.arithmetic import ADD, MULTIPLY, NEGATIVE, SUBTRACT
from graphc.passes.core.keys import kind_key
from graphc.passes.rolling.recurrence import Recurrence, elements_in

_CHEAP: Final = frozenset((ADD, SUBTRACT, MULTIPLY, NEGATIVE))
_MANY: Final = 512  # nodes: XLA compiles more of them slowly
_LARGE: Final = 2048  # elements


def takes_turns(found: Recurrence) -> bool:
    """Whether iterations use a few large values in turn, such as a matrix and its transpose.

    The loop would stack copies of them. A recurrence whose iterations are several of these has each
    value once.
    """
    return any(
        2 * len(set(stack)) <= len(stack) and elements_in(stack[0]) >= _LARGE
        for stack in found.stacks
    )


def is_one_kernel(found: Recurrence) -> bool:
    """Whether all iterations are one kernel of XLA without a loop: sums and products of elements,
    with a few numbers for each.

    Each iteration of a loop would read and write the whole array: a polynomial with 40 coefficients
    takes 3 times as long.
    """
    nodes = len(found.turns) * found.period
    small = all(elements_in(stack[0]) < _LARGE for stack in found.stacks)
    return nodes <= _MANY and small and all(node.op in _CHEAP for node in found.turns[0])


def without_many_outside(
    found: Sequence[Recurrence], row: Sequence[Node], state: set[Tensor]
) -> list[Recurrence]:
    """The recurrences, except those over layers if more than half as many layers stay outside.

    XLA compiles equal kernels once. The layers outside need the kernels of a layer anyway, and the
    kernels of the loop, which read slices of stacks, are additional. A normalising flow of 8
    layers, 5 of them in loops, took twice the time to compile.
    """
    inside = {node for each in found for turn in each.turns for node in turn}
    outside = Counter(kind_key(node) for node in row if node not in inside and is_pure(node))

    def is_covered(each: Recurrence) -> bool:
        body = Counter(kind_key(node) for node in each.turns[0])
        layers = sorted(outside[kind] // count for kind, count in body.items())
        return 2 * layers[(len(layers) - 1) // 2] <= len(each.turns)

    return [each for each in found if not has_parameters(each, state) or is_covered(each)]


def has_parameters(found: Recurrence, state: set[Tensor]) -> bool:
    """Whether each iteration uses variables of its own."""
    return any(state.issuperset(stack) for stack in found.stacks)
