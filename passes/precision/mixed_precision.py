"""Mixed precision: expensive operators in 16 bits, everything else in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import ml_dtypes
import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import DType
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.precision.narrowing import Narrowing
from graphc.passes.precision.precision_roles import updating

NARROW_TYPES: Final[dict[str, DType]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
}


@dataclass(frozen=True)
class MixedPrecision(Pass):
    """Computes products, convolutions, attention and elementwise operators around them in bf16 or
    f16, as each operator states (`OpDef.precision`), and everything else in float32.

    XLA may not change the rounding of a program. Variables stay float32 and are rounded where a
    product reads them (master weights). Sums, means, norms, softmax, losses and exponentials are
    float32. State updates are too: everything after the gradients of `minimize`, and otherwise
    nodes that lead to a new value of a variable and to no product. A value that is needed in both
    types is kept narrow and widened where necessary, so nothing is rounded twice.

    An elementwise operator is narrow if all its operands are narrow or may be rounded (variables
    and constants). With a float32 feed (a target, for example) or a float32 sum as another operand,
    it is float32. A constant that would become infinite or 0 in the narrow type keeps its operator
    in float32. In the body of a `gc.scan`, carries stay float32.

    Must not: run twice, or without a request; change float64, integers or the user's casts; round
    the new value of a variable. For f16, gradients need `ScaleLoss` first.

    Source: Micikevicius et al., Mixed precision training, 2018, arXiv:1710.03740.

    Attributes:
        dtype: "bf16" or "f16".

    Raises:
        AttributeValueError: another dtype.
    """

    dtype: str

    once: ClassVar[bool] = True
    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.dtype not in NARROW_TYPES:
            raise AttributeValueError(
                f"MixedPrecision: dtype must be one of {', '.join(NARROW_TYPES)}, "
                f"got {self.dtype!r}"
            )

    def run(self, program: Program) -> PassResult:
        narrowing = Narrowing(NARROW_TYPES[self.dtype], updating(program))
        node: Node | None = None
        try:
            for port in program.inputs:
                narrowing.take(port.tensor, free=port.kind == "state")
            for node in program.nodes:
                narrowing.add(node)
            node = None
            for tensor in program.output_tensors():
                narrowing.wide(tensor)
        except Exception as error:
            raise self.fault(node, error) from error
        if not narrowing.changed:
            return PassResult(program, 0)
        return PassResult(program.replace(nodes=tuple(narrowing.nodes)), narrowing.changed)
