"""InRange: marks integers that must be in a range, such as indices, labels and lengths.

Checking every value takes time, so the marker does nothing by itself, and `DropMarks` removes it.
With `CompileOptions(check_numerics=True)` it stays, and `CheckNumerics` checks its operand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.dims import Dim
from graphc.ir.dtypes import is_integer
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, OpDef
from graphc.ops.core.broadcasting import infer_integer
from graphc.ops.core.cost_rules import free
from graphc.ops.core.defining import without_gradient
from graphc.ops.core.emit import CONSTANT, emit_one


def _layout(ctx: LayoutContext, node: Node, x: Layout) -> LayoutPlan:
    """The padding of an uneven batch is 0, which is in every range."""
    return LayoutPlan([x], [x], fill={0: "sum"} if isinstance(x, Sharded) else None)


def _holds(values: Any, low: tuple[Dim, ...], high: tuple[Dim, ...]) -> bool:
    """Whether the range is known and contains the known values."""
    if not all(isinstance(bound, int) for bound in (*low, *high)):
        return False
    known = np.asarray(values)
    if known.size == 0:
        return True
    if known.dtype.itemsize == 1:  # NumPy has no minimum of 4-bit integers
        known = known.astype(np.int32)
    rows = known.reshape(-1, len(low))
    found = zip(rows.min(0).tolist(), rows.max(0).tolist(), low, high, strict=True)
    return all(least <= first and last < end for first, last, least, end in found)


IN_RANGE = without_gradient(
    "InRange(x) -> y",
    attrs={
        "low": Attr("dims", doc="the least allowed value, or one for each index of the last axis"),
        "high": Attr("dims", doc="one more than the greatest allowed value, in the same form"),
        "what": Attr("str", doc="what the values are, for errors"),
        "of": Attr("str", default="", doc="the function that the user called, for errors"),
    },
    infer=lambda ctx, x, **attrs: infer_integer(ctx, x),
    lower=lambda ctx, x, **attrs: x,
    layout=_layout,
    # Known values in the range need no marker; others keep it, and the run raises the error.
    fold=lambda x, *, low, high, **attrs: x if _holds(x, low, high) else None,
    cost=free,
    doc="The operand. Runs with `CompileOptions(check_numerics=True)` raise an error for a value "
    "outside low <= x < high; other runs do not. Integers.",
)


Bounds = Dim | tuple[Dim, ...]


def in_range(x: Tensor, low: Bounds, high: Bounds, what: str, *, of: str) -> Tensor:
    """`x`, marked for `check_numerics`: its values must be at least `low` and less than `high`.

    Args:
        what: the name of the values in errors, in the plural: "lengths".
        of: the function that the user called with them. The error names it, since the user may not
            have written the node that uses them.
    """
    if not is_integer(x.dtype):
        return x  # the operator raises the error
    low, high = (bound if isinstance(bound, tuple) else (bound,) for bound in (low, high))
    producer = None if x.graph is None else x.graph.find_producer(x)
    known = producer.attrs["value"] if producer is not None and producer.op is CONSTANT else None
    if known is not None and _holds(known, low, high):
        return x
    return emit_one(IN_RANGE, (x,), low=low, high=high, what=what, of=of)


OPS: tuple[OpDef, ...] = (IN_RANGE,)
