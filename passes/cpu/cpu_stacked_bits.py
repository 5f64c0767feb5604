"""CPU: bfloat16 stacks of loops are stored as integers, so that XLA keeps them in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import ml_dtypes
import numpy as np

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN
from graphc.ops.elementwise.bits import BITCAST
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes
from graphc.passes.core.building import node_of

_BF16: Final = np.dtype(ml_dtypes.bfloat16)
_BITS: Final = np.dtype(np.uint16)


@dataclass(frozen=True)
class CpuStackedBits(Pass):
    """Loops take and stack the bits of bfloat16 slices, as uint16. The body converts them back.

    XLA:CPU widens every bfloat16 operation to float32, including the update of a slice. So the
    whole stack that a forward loop keeps for a backward loop becomes float32, and no memory is
    saved. XLA does not widen integers or float16.

    Must not: run for other devices, or in programs that JAX is to differentiate: bits have no
    gradient.
    """

    def run(self, program: Program) -> PassResult:
        bits: dict[Tensor, Tensor] = {}  # stack that a loop returned -> the integers behind it
        return rewrite_nodes(
            self, program, lambda node: _by_bits(node, bits) if node.op is SCAN else node
        )


def _by_bits(node: Node, bits: dict[Tensor, Tensor]) -> Node | list[Node]:
    """The loop itself, or the nodes before the new loop, this loop, and the nodes after it."""
    view = LoopView.of(node)
    before: list[Node] = []
    first: list[Node] = []
    last: list[Node] = []
    after: list[Node] = []
    taken = list(zip(view.outer.xs, view.inner.xs, strict=True))
    for i, (stack, piece) in enumerate(taken):
        if stack.type.dtype != _BF16:
            continue
        if stack not in bits:
            before.append(node_of(BITCAST, (stack,), like=node, dtype=_BITS))
            bits[stack] = before[-1].outputs[0]
        taken[i] = bits[stack], _as_bits(piece)
        first.append(node_of(BITCAST, (taken[i][1],), (piece,), like=node, dtype=_BF16))
    given = list(zip(view.ys, view.stacks, strict=True))
    for i, (value, stack) in enumerate(given):
        if stack.type.dtype != _BF16:
            continue
        last.append(node_of(BITCAST, (value,), like=node, dtype=_BITS))
        bits[stack] = _as_bits(stack)
        after.append(node_of(BITCAST, (bits[stack],), (stack,), like=node, dtype=_BF16))
        given[i] = last[-1].outputs[0], bits[stack]
    if not (first or last):
        return node
    view = replace(
        view,
        outer=view.outer._replace(xs=()),
        inner=view.inner._replace(xs=()),
        nodes=(*first, *view.nodes, *last),
        ys=(),
        stacks=(),
    )
    return [*before, view.with_xs(taken).with_ys(given).write(), *after]


def _as_bits(tensor: Tensor) -> Tensor:
    return Tensor(TensorType(_BITS, tensor.type.shape), tensor.name)
