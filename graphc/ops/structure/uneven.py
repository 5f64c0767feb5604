"""Pieces of a batch that does not divide by the replicas: padding behind the real rows.

As the collectives, these stand in local programs only, where the replicate pass puts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import DType, is_floating
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.cost_rules import moves_only, picks
from graphc.ops.core.precision import greatest_finite, highest, lowest
from graphc.ops.structure.collective import axis_name_of, refuse_layout

_AXIS = Attr("int", check=lambda v: v >= 0, must="be counted from the front")
_COUNT = Attr("int", check=lambda v: v > 0, must="be a positive int")


def neutral(reduction: str, dtype: DType) -> Any:
    """What leaves the "sum", "max" or "min" of others as it is."""
    if reduction == "sum":
        return np.zeros((), dtype)
    found = lowest(dtype) if reduction == "max" else highest(dtype)
    if is_floating(dtype) and not np.isinf(found.astype(np.float32)):  # some 8-bit floats have none
        found = dtype.type(greatest_finite(dtype) * (-1 if reduction == "max" else 1))
    return np.asarray(found, dtype)


def _infer_padded_piece(
    ctx: InferContext, x: TensorType, *, axis: int, replicas: int, piece: int
) -> TensorType:
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    size = x.shape[axis]
    ctx.require(
        not isinstance(size, int) or 0 < size <= replicas * piece,
        f"axis {axis} of size {size} cannot be cut into {replicas} pieces of {piece}",
    )
    return TensorType(x.dtype, (*x.shape[:axis], piece, *x.shape[axis + 1 :]))


def _lower_padded_piece(ctx: LowerContext, x: Any, *, axis: int, replicas: int, piece: int) -> Any:
    padding = [(0, 0)] * x.ndim
    padding[axis] = (0, replicas * piece - x.shape[axis])
    start = lax.axis_index(axis_name_of(ctx)) * piece
    return lax.dynamic_slice_in_dim(jnp.pad(x, padding, mode="edge"), start, piece, axis)


def _infer_fill_padding(
    ctx: InferContext, x: TensorType, fill: TensorType, *, axis: int, size: int
) -> TensorType:
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    words = f"fill must be {x.dtype.name}, as x, got {fill.dtype.name}"
    ctx.require(fill.dtype == x.dtype, words, dtype=True)
    lead = x.rank - fill.rank
    fits = lead >= 0 and all(
        a in (1, b) for a, b in zip(fill.shape, x.shape[max(lead, 0) :], strict=True)
    )
    ctx.require(fits, f"fill {fill} does not broadcast to {x}")
    return x


def _lower_fill_padding(ctx: LowerContext, x: Any, fill: Any, *, axis: int, size: int) -> Any:
    first = lax.axis_index(axis_name_of(ctx)) * x.shape[axis]
    places = first + lax.broadcasted_iota(np.int32, x.shape, axis)
    return jnp.where(places < size, x, fill)


PADDED_PIECE = OpDef(
    name="PaddedPiece",
    signature="x -> y",
    precision="wide",
    attrs={"axis": _AXIS, "replicas": _COUNT, "piece": _COUNT},
    infer=_infer_padded_piece,
    lower=_lower_padded_piece,
    differentiable=False,
    layout=refuse_layout,
    cost=picks,
    doc="This replica's piece of x, of `piece` elements along `axis`. Behind the last element of x "
    "it is repeated: what is computed from padding is then no worse than what is computed from "
    "x. All dtypes.",
)

FILL_PADDING = OpDef(
    name="FillPadding",
    signature="x, fill -> y",
    precision="follow",
    attrs={"axis": _AXIS, "size": _COUNT},
    infer=_infer_fill_padding,
    lower=_lower_fill_padding,
    differentiable=False,
    layout=refuse_layout,
    cost=moves_only,
    doc="This replica's piece x of a value that has `size` elements along `axis`, with `fill`, "
    "which broadcasts, in the place of what is behind them. All dtypes.",
)

OPS: tuple[OpDef, ...] = (PADDED_PIECE, FILL_PADDING)
