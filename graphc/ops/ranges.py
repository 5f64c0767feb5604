"""Integers that must lie in a range: indices, labels and lengths, where another one is a mistake.

Looking at every value costs time, so the mark does nothing by itself: `DropMarks` removes it. With
`CompileOptions(check_numerics=True)` it stays, and `CheckNumerics` looks at what passes through it.
"""

from __future__ import annotations

from typing import Any

from graphc.ir.dims import Dim
from graphc.ir.dtypes import is_integer
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.emit import CONSTANT, emit_one


def _infer(ctx: InferContext, x: TensorType, **attrs: Any) -> TensorType:
    ctx.require_dtype([x], is_integer, "integers")
    return x


def _layout(ctx: LayoutContext, node: Node, x: Layout) -> LayoutPlan:
    """What pads a batch that does not divide is 0, which every range holds."""
    return LayoutPlan([x], [x], fill={0: "sum"} if isinstance(x, Sharded) else None)


IN_RANGE = OpDef(
    name="InRange",
    signature="x -> y",
    precision="wide",
    attrs={
        "low": Attr("dims", doc="the least allowed value: one, or one for each of the last axis"),
        "high": Attr("dims", doc="one more than the greatest allowed value, likewise"),
        "what": Attr("str", doc="what the values are, for errors"),
    },
    infer=_infer,
    lower=lambda ctx, x, **attrs: x,
    differentiable=False,
    layout=_layout,
    fold=lambda x, **attrs: x,
    doc="The operand. A value outside low <= x < high is an error of runs with "
    "`CompileOptions(check_numerics=True)`, and of no others. Integers.",
)


Bounds = Dim | tuple[Dim, ...]


def in_range(x: Tensor, low: Bounds, high: Bounds, what: str) -> Tensor:
    """`x`, marked for `check_numerics`: its values must be at least `low` and less than `high`."""
    producer = None if x.graph is None else x.graph.find_producer(x)
    if not is_integer(x.dtype) or (producer is not None and producer.op is CONSTANT):
        return x  # the operator refuses it, or the values are known and were looked at
    bounds = [bound if isinstance(bound, tuple) else (bound,) for bound in (low, high)]
    return emit_one(IN_RANGE, (x,), low=bounds[0], high=bounds[1], what=what)


OPS: tuple[OpDef, ...] = (IN_RANGE,)
