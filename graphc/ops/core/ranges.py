"""Integers that must lie in a range: indices, labels and lengths, where another one is a mistake.

Looking at every value costs time, so the mark does nothing by itself: `DropMarks` removes it. With
`CompileOptions(check_numerics=True)` it stays, and `CheckNumerics` looks at what passes through it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.dims import Dim
from graphc.ir.dtypes import is_integer
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.cost_rules import free
from graphc.ops.core.emit import CONSTANT, emit_one


def _infer(ctx: InferContext, x: TensorType, **attrs: Any) -> TensorType:
    ctx.require_dtype([x], is_integer, "integers")
    return x


def _layout(ctx: LayoutContext, node: Node, x: Layout) -> LayoutPlan:
    """What pads a batch that does not divide is 0, which every range holds."""
    return LayoutPlan([x], [x], fill={0: "sum"} if isinstance(x, Sharded) else None)


def _fold(x: Any, *, low: tuple[Dim, ...], high: tuple[Dim, ...], what: str, of: str) -> Any:
    """Known values that lie in the range need no mark; others keep it, for the error."""
    return x if _holds(x, low, high) else None


def _holds(values: Any, low: tuple[Dim, ...], high: tuple[Dim, ...]) -> bool:
    """Whether the range is known, and known values lie in it."""
    if not all(isinstance(bound, int) for bound in (*low, *high)):
        return False
    known = np.asarray(values)
    if known.size == 0:
        return True
    if known.dtype.itemsize == 1:  # NumPy finds no least of 4 bits
        known = known.astype(np.int32)
    rows = known.reshape(-1, len(low))
    found = zip(rows.min(0).tolist(), rows.max(0).tolist(), low, high, strict=True)
    return all(least <= first and last < end for first, last, least, end in found)


IN_RANGE = OpDef(
    name="InRange",
    signature="x -> y",
    precision="wide",
    attrs={
        "low": Attr("dims", doc="the least allowed value: one, or one for each of the last axis"),
        "high": Attr("dims", doc="one more than the greatest allowed value, likewise"),
        "what": Attr("str", doc="what the values are, for errors"),
        "of": Attr("str", default="", doc="the function that the user gave them to, likewise"),
    },
    infer=_infer,
    lower=lambda ctx, x, **attrs: x,
    differentiable=False,
    layout=_layout,
    fold=_fold,
    cost=free,
    doc="The operand. A value outside low <= x < high is an error of runs with "
    "`CompileOptions(check_numerics=True)`, and of no others. Integers.",
)


Bounds = Dim | tuple[Dim, ...]


def in_range(x: Tensor, low: Bounds, high: Bounds, what: str, *, of: str) -> Tensor:
    """`x`, marked for `check_numerics`: its values must be at least `low` and less than `high`.

    Args:
        what: the values are, in the plural: "lengths".
        of: the function that the user gave them to. The error names it, since the node that takes
            them may be one that the user never wrote.
    """
    if not is_integer(x.dtype):
        return x  # the operator refuses it
    low, high = (bound if isinstance(bound, tuple) else (bound,) for bound in (low, high))
    producer = None if x.graph is None else x.graph.find_producer(x)
    known = producer.attrs["value"] if producer is not None and producer.op is CONSTANT else None
    if known is not None and _holds(known, low, high):
        return x
    return emit_one(IN_RANGE, (x,), low=low, high=high, what=what, of=of)


OPS: tuple[OpDef, ...] = (IN_RANGE,)
