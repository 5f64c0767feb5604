"""Pieces of a batch that does not divide by the number of replicas: padding follows the real rows.

Like the collectives, these operators occur in local programs only; the replicate pass adds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import DType, is_floating
from graphc.ir.node import Tensor
from graphc.ir.opdef import InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.axes import AXIS
from graphc.ops.core.cost_rules import moves_only, picks
from graphc.ops.core.emit import emit_one
from graphc.ops.core.precision import greatest_finite, highest, lowest
from graphc.ops.structure.collective import POSITIVE, axis_name_of, local_operator


def neutral(reduction: str, dtype: DType) -> Any:
    """The value that does not change the "sum", "max" or "min" of others."""
    if reduction == "sum":
        return np.zeros((), dtype)
    found = lowest(dtype) if reduction == "max" else highest(dtype)
    # Some 8-bit floats have no infinity.
    if is_floating(dtype) and not np.isinf(found.astype(np.float32)):
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


PADDED_PIECE = local_operator(
    "PaddedPiece(x) -> y",
    attrs={"axis": AXIS, "replicas": POSITIVE, "piece": POSITIVE},
    infer=_infer_padded_piece,
    lower=_lower_padded_piece,
    cost=picks,
    doc="This replica's piece of x: `piece` elements along `axis`. The padding repeats the last "
    "element of x, so that computing with it is as safe as computing with x. All dtypes.",
)

FILL_PADDING = local_operator(
    "FillPadding(x, fill) -> y",
    precision="follow",
    attrs={"axis": AXIS, "size": POSITIVE},
    infer=_infer_fill_padding,
    lower=_lower_fill_padding,
    cost=moves_only,
    doc="This replica's piece x of a value with `size` elements along `axis`. The elements after "
    "these become `fill`, which is broadcast. All dtypes.",
)


def padded_piece(x: Tensor, axis: int, replicas: int, piece: Any) -> Tensor:
    """This replica's `piece` elements of `x` along `axis`; after the end, its last element."""
    return emit_one(PADDED_PIECE, (x,), axis=axis, replicas=replicas, piece=piece)


def fill_padding(x: Tensor, fill: Tensor, axis: int, size: Any) -> Tensor:
    """This replica's piece `x` of a value of `size` along `axis`, with `fill` in its padding."""
    return emit_one(FILL_PADDING, (x, fill), axis=axis, size=size)


OPS: tuple[OpDef, ...] = (PADDED_PIECE, FILL_PADDING)
