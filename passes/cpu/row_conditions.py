"""Finds results that consist of parts, with whole rows of slow functions in a part.

A padded or joined result consists of parts. XLA:CPU writes it with one loop that asks for each
element which part it belongs to. At level 3, LLVM makes a loop for each part if whole rows belong
to one ("non-trivial loop unswitching"); at level 2 it does not, and elements of a computed part are
not vectorized. Padding tanh(x) with rows takes 5 times as long at level 2, and joining normal draws
4 times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.dynamic_slicing import DYNAMIC_UPDATE_SLICE
from graphc.ops.arrays.joining import CONCATENATE
from graphc.ops.arrays.shape import RESHAPE, TRANSPOSE
from graphc.ops.arrays.slicing import PAD
from graphc.ops.arrays.stacking import STACK
from graphc.ops.draws import dropout, random_draws, random_parametric
from graphc.ops.elementwise import activation, transcendental
from graphc.passes.core.elementwise import is_elementwise

_SLOW: Final = frozenset(
    [
        *transcendental.OPS,
        *activation.OPS,
        *random_draws.OPS,
        *random_parametric.OPS,
        *dropout.OPS,
    ]
)
_MANY: Final = 1 << 14  # elements of a result; smaller ones take microseconds at any level
_LONG: Final = 16  # elements of a row, which is a vector at least
_DEEP: Final = 64  # nodes that are searched for a slow one


def has_slow_rows(program: Program) -> bool:
    """Whether a large padded or joined result has whole rows of slow functions."""
    made: dict[Tensor, Node] = {}
    for node in program.walk():
        if _has_long_rows(node):
            made = made or {t: node for node in program.walk() for t in node.outputs}
            if any(_is_slow(tensor, made) for tensor in node.inputs):
                return True
    return False


def _has_long_rows(node: Node) -> bool:
    """Whether the result consists of parts, and whole rows belong to one."""
    if node.op not in (PAD, CONCATENATE, STACK, DYNAMIC_UPDATE_SLICE):
        return False
    cut = _cut_axis(node)
    sizes = node.outputs[0].type.sizes
    return cut is not None and math.prod(sizes) >= _MANY and math.prod(sizes[cut + 1 :]) >= _LONG


def _cut_axis(node: Node) -> int | None:
    """The last axis along which the parts of the result differ; None if there is one part."""
    if node.op is PAD:
        cut = [axis for axis, pads in enumerate(node.attrs["pads"]) if pads != (0, 0, 0)]
    elif node.op is DYNAMIC_UPDATE_SLICE:
        sizes = zip(*(tensor.type.shape for tensor in node.inputs[:2]), strict=True)
        cut = [axis for axis, (whole, part) in enumerate(sizes) if whole != part]
    else:
        cut = [node.attrs["axis"]]
    return max(cut, default=None)


def _is_slow(tensor: Tensor, made: Mapping[Tensor, Node]) -> bool:
    """Whether the kernel that reads `tensor` probably computes it with a slow function."""
    waiting, seen = [tensor], {tensor}
    while waiting and len(seen) <= _DEEP:
        node = made.get(waiting.pop())
        if node is None:
            continue
        if node.op in _SLOW:
            return True
        if node.op in (RESHAPE, TRANSPOSE) or is_elementwise(node):
            waiting += [t for t in node.inputs if t not in seen]
            seen.update(node.inputs)
    return False
