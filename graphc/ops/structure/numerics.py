"""Operators that find the first node that produced NaN or infinity; `CheckNumerics` inserts them.

A *fault* is i32[n]. It holds the kind (1: an infinity was produced, 2: a NaN, 3: an integer is out
of range, 0: no fault), that integer, and the location: the position of a node in its program, and
for each body around it the iteration and the position in that body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import INT32, is_inexact, is_integer, scalar_of
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.cost_rules import times_operand
from graphc.ops.core.defining import without_gradient
from graphc.ops.core.precision import wide, wide_integer

_NUMBER = TensorType(INT32, ())
Ints = tuple[int, ...]
Table = tuple[Ints, ...]
INFINITE, NAN, OUTSIDE = 1, 2, 3
HEAD = 2  # the number of elements of a fault before its location
# The form of a body's fault: one for each of several parallel iterations; a single one; or the
# first one in a loop, with its iteration.
ROWS, ONCE, TURN = 0, 1, 2


def _infer_non_finite(ctx: InferContext, x: TensorType) -> TensorType:
    ctx.require_dtype([x], is_inexact, "floating or complex")
    return _NUMBER


def _lower_non_finite(ctx: LowerContext, x: Any) -> Any:
    if jnp.iscomplexobj(x):
        parts = (lax.real(x), lax.imag(x))
        return jnp.maximum(*[_lower_non_finite(ctx, part) for part in parts])
    # A single maximum, which XLA vectorizes. It is computed over levels: on CPU, XLA's maximum
    # loses NaN in arrays of about ten thousand elements (jaxlib 0.10 to 0.12).
    wider = lax.convert_element_type(x, wide(np.dtype(x.dtype)))
    levels = jnp.where(jnp.isnan(wider), NAN, jnp.where(jnp.isinf(wider), INFINITE, 0))
    return jnp.max(levels.astype(wider.dtype), initial=0).astype(INT32)


NON_FINITE = without_gradient(
    "NonFinite(x) -> level",
    infer=_infer_non_finite,
    lower=_lower_non_finite,
    cost=times_operand(1),
    doc="2 if x contains NaN, else 1 if it contains an infinity, else 0. Floating and complex "
    "dtypes.",
)


def _infer_out_of_range(ctx: InferContext, x: TensorType, *, low: Any, high: Any) -> TensorType:
    ctx.require_dtype([x], is_integer, "integers")
    return TensorType(INT32, (2,))


def _lower_out_of_range(ctx: LowerContext, x: Any, *, low: Any, high: Any) -> Any:
    if x.size == 0:
        return jnp.zeros(2, INT32)
    wider = lax.convert_element_type(x, wide_integer(np.dtype(x.dtype)))
    limits = np.iinfo(wider.dtype)
    lowest, highest = int(limits.min), int(limits.max)
    least, most = (  # bounds may not fit: negative ones in unsigned dtypes, 2**31 in int32
        np.array(
            [min(max(int(n) - shift, lowest), highest) for n in ctx.shape(bounds)], wider.dtype
        )
        for bounds, shift in ((low, 0), (high, 1))
    )
    above, below = wider > most, wider < least
    # Maxima and minima are cheap on several devices; positions of elements are not.
    value = jnp.where(
        jnp.any(above),
        jnp.max(jnp.where(above, wider, scalar_of(lowest, wider.dtype))),
        jnp.min(jnp.where(below, wider, scalar_of(highest, wider.dtype))),
    )
    shown = jnp.clip(value, max(lowest, -(2**31)), min(highest, 2**31 - 1))
    found = jnp.any(above | below).astype(INT32)
    return jnp.stack([found, found * shown.astype(INT32)])


OUT_OF_RANGE = without_gradient(
    "OutOfRange(x) -> found",
    attrs={"low": Attr("dims"), "high": Attr("dims")},
    infer=_infer_out_of_range,
    lower=_lower_out_of_range,
    cost=times_operand(2),
    doc="Whether a value of x is outside low <= x < high, and such a value: the greatest one if it "
    "is too great, else the least one (0 if there is none). A bound is one number, or one for "
    "each index of the last axis.",
)


def _infer_fault(ctx: InferContext, *types: TensorType, width: int, **attrs: Any) -> TensorType:
    ctx.require_dtype(types, lambda dtype: dtype == INT32, "int32")
    return TensorType(INT32, (width,))


def _lower_fault(
    ctx: LowerContext, *operands: Any, rows: Table, ranges: Ints, bodies: Table, width: int
) -> Any:
    count = len(operands) - len(bodies) - len(ranges)
    levels, faults = operands[:count], operands[count + len(ranges) :]
    found = [
        _in_body(fault, place, form, width)
        for fault, (place, form) in zip(faults, bodies, strict=True)
    ]
    for outside, place in zip(operands[count : count + len(ranges)], ranges, strict=True):
        head = jnp.stack([outside[0] * OUTSIDE, outside[1], jnp.int32(place)])
        found.append(jnp.concatenate([head, jnp.full(width - HEAD - 1, -1, INT32)]))
    if rows:
        found.append(_in_rows(jnp.stack([jnp.zeros((), INT32), *levels]), rows, width))
    if not found:
        return jnp.zeros(width, INT32)
    all_found = jnp.stack(found)
    places = jnp.where(all_found[:, 0] > 0, all_found[:, HEAD], np.iinfo(np.int32).max)
    return all_found[jnp.argmin(places)]


def _in_rows(levels: Any, rows: Sequence[tuple[int, ...]], width: int) -> Any:
    """The fault of the first row whose results are worse than its operands."""
    takes, gives = [], []
    for _, count, *tensors in rows:
        takes.append([0, *(i + 1 for i in tensors[:count])])
        gives.append([0, *(i + 1 for i in tensors[count:])])
    before, after = (jnp.max(levels[_table(table)], axis=1) for table in (takes, gives))
    bad = after > before
    first = jnp.argmax(bad)
    place = jnp.asarray(np.array([row[0] for row in rows], np.int32))[first]
    made = jnp.where(bad[first], after[first], 0)
    head = jnp.stack([made, jnp.zeros((), INT32), place])
    return jnp.concatenate([head, jnp.full(width - HEAD - 1, -1, INT32)])


def _table(rows: Sequence[Sequence[int]]) -> np.ndarray[Any, Any]:
    """The rows padded with 0 to one length; index 0 means no tensor."""
    length = max(map(len, rows))
    return np.array([[*row, *[0] * (length - len(row))] for row in rows], np.int32)


def _in_body(fault: Any, place: int, form: int, width: int) -> Any:
    """The fault of a body, as a fault of the program around it."""
    if form == ROWS:
        turn = jnp.argmax(fault[:, 0] > 0)
        fault = fault[turn]
        fault = jnp.concatenate([fault[:HEAD], turn[None].astype(INT32), fault[HEAD:]])
    elif form == ONCE:
        fault = jnp.concatenate([fault[:HEAD], jnp.zeros(1, INT32), fault[HEAD:]])
    inner = jnp.concatenate([fault[:HEAD], jnp.full(1, place, INT32), fault[HEAD:]])
    return jnp.concatenate([inner, jnp.full(width - inner.shape[0], -1, INT32)])


FIRST_FAULT = without_gradient(
    "FirstFault(*operands) -> fault",
    attrs={
        "rows": Attr(
            "pairs",
            doc="for each node: position, number of operand levels, these, result levels",
        ),
        "ranges": Attr("ints", doc="the position of the node of each `OutOfRange`"),
        "bodies": Attr("pairs", doc="for each fault of a body: the node's position, and the form"),
        "width": Attr("int"),
    },
    infer=_infer_fault,
    lower=_lower_fault,
    doc="The fault of the first node whose results are worse than its operands, or whose integers "
    "are out of range. The operands are levels (`NonFinite`), then results of `OutOfRange`, then "
    "faults of bodies: rows, one fault, or one fault with its iteration.",
)


def _lower_keep(ctx: LowerContext, kept: Any, turn: Any, fault: Any) -> tuple[Any, Any]:
    now = jnp.concatenate([fault[:HEAD], turn[None], fault[HEAD:]])
    return jnp.where(kept[0] > 0, kept, now), turn + 1


KEEP_FAULT = without_gradient(
    "KeepFault(kept, turn, fault) -> kept, turn",
    infer=lambda ctx, kept, turn, fault: (kept, turn),
    lower=_lower_keep,
    doc="In a loop: the kept fault, or else the fault of this iteration with its number; and the "
    "number of the next iteration.",
)


OPS: tuple[OpDef, ...] = (NON_FINITE, OUT_OF_RANGE, FIRST_FAULT, KEEP_FAULT)
