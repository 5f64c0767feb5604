"""NarrowExchanges: exchanges values between replicas in their narrow dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.core.emit import CAST
from graphc.ops.structure.collective import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.lossless import holds_all
from graphc.passes.core.rules import Answer, Rewriter, Rule, change, simplify


@dataclass(frozen=True)
class NarrowExchanges(Pass):
    """Moves casts that widen floats behind the exchanges of their results. This halves the bytes
    for gradients in bfloat16.

    The layouts of values usually put an exchange before such a cast, since a gradient is exchanged
    where it is computed. This pass handles casts that are added later: those of products that
    `HoistProducts` moves out of a loop. XLA does not change the dtype of a collective.

    The sum is then rounded to the narrow dtype, as the sums of all other gradients are in the same
    program, and in data-parallel programs written in JAX.

    Must not: run before the program is local; narrow a sum of float16, which may overflow.
    """

    def run(self, program: Program) -> PassResult:
        return simplify(self, program, _RULES)


def _exchange(rw: Rewriter, node: Node) -> Answer:
    if len(node.inputs) != 1 or node.attrs.get("op", "sum") != "sum":
        return None
    cast = rw.maker(node.inputs[0], CAST)
    if cast is None:
        return None
    narrow, wide = cast.inputs[0].type.dtype, cast.outputs[0].type.dtype
    if not (is_floating(narrow) and is_floating(wide) and narrow != wide):
        return None
    if not holds_all(wide, narrow) or (node.op is not ALL_GATHER and narrow == np.float16):
        return None
    exchanged = Tensor(TensorType(narrow, node.outputs[0].type.shape), f"{node.name}/narrow:0")
    rw.nodes.append(node.replace(inputs=cast.inputs, outputs=(exchanged,)))
    return change(node, CAST, (exchanged,), dtype=wide)


_RULES: Final[dict[OpDef, Rule]] = {
    ALL_REDUCE: _exchange,
    ALL_GATHER: _exchange,
    REDUCE_SCATTER: _exchange,
}
