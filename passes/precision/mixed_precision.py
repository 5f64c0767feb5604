"""Mixed precision: where the time goes in 16 bits, everything else in float32."""

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
    """Computes products, convolutions, attention and what is elementwise around them in bf16 or
    f16, as each operator states (`OpDef.precision`), and everything else in float32.

    XLA cannot: it may not change what a program rounds, and was not asked to. Variables stay
    float32 and are rounded where a product takes them (master weights); sums, means, norms,
    softmax, losses and exponentials are float32; so is what updates state: all that comes after
    the gradients of `minimize`, and elsewhere whatever leads to a new value of a variable and to
    no product. A value of both kinds is kept narrow and widened where that is needed, so nothing
    is rounded twice.

    An elementwise operator is narrow if all its operands are, or may be without harm: variables
    and constants. Beside a float32 feed (a target, say) or a float32 sum it is float32. A constant
    that the narrow type would make infinite, or 0, keeps its operator in float32. In the body of a
    `gc.scan`, what is carried stays float32.

    Must not: run twice, or without being asked to; change float64, integers or what the user
    cast; round a variable's new value. For f16, gradients need `ScaleLoss` first.

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
