"""What replicas of a data-parallel run tell each other.

The replicate pass puts these into local programs, where shapes are those of one replica's piece;
nothing else does, and no layout rule applies there any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.errors import GraphError, LayoutError
from graphc.ir.dtypes import BOOL, FLOAT32, INT32, is_floating
from graphc.ir.layouts import Layout, LayoutContext
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.emit import emit_one

_REDUCTIONS: dict[str, Callable[..., Any]] = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin}
_AXIS = Attr("int", check=lambda v: v >= 0, must="be counted from the front")
_REPLICAS = Attr("int", check=lambda v: v > 0, must="be a positive int")


def _refuse_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> NoReturn:
    raise LayoutError(
        f"{node.op.name} {node.name!r}: the program is replicated already",
        source=node.source,
        mend="collectives stand in local programs only; the replicate pass puts them there",
    )


def _axis_name(ctx: LowerContext) -> str:
    if ctx.axis_name is None:
        raise GraphError(
            f"{ctx.node.op.name} has no replicas here: it runs under a data-parallel strategy only",
            source=ctx.node.source,
        )
    return ctx.axis_name


def _lower_all_reduce(ctx: LowerContext, x: Any, *, op: str) -> Any:
    reduce, axis_name = _REDUCTIONS[op], _axis_name(ctx)
    if x.dtype == BOOL:  # any and all
        return reduce(x.astype(INT32), axis_name).astype(BOOL)
    if op == "sum" or not is_floating(x.dtype):
        return reduce(x, axis_name)
    if x.dtype.itemsize < 4:  # float32 holds them all
        return _lower_all_reduce(ctx, x.astype(FLOAT32), op=op).astype(x.dtype)
    # XLA's collectives may leave out NaN, which a reduction on one device never does. So they
    # compare integers that are ordered as the numbers are, with NaN beyond the last of them.
    integer = np.dtype(f"int{8 * x.dtype.itemsize}")
    nan = np.copysign(np.array(np.nan, x.dtype), 1 if op == "max" else -1).view(integer)
    bits = jnp.where(jnp.isnan(x), nan, lax.bitcast_convert_type(x, integer))
    extreme = _swap_order(reduce(_swap_order(bits), axis_name))
    return lax.bitcast_convert_type(extreme, x.dtype)


def _swap_order(bits: Any) -> Any:
    """From a float's bits to an integer in the floats' order, and back: negative ones reversed."""
    limits = np.iinfo(bits.dtype)
    return bits ^ ((bits >> (limits.bits - 1)) & limits.max)


def _infer_all_gather(ctx: InferContext, x: TensorType, *, axis: int, replicas: int) -> TensorType:
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    return TensorType(
        x.dtype, tuple(d * replicas if i == axis else d for i, d in enumerate(x.shape))
    )


def _lower_all_gather(ctx: LowerContext, x: Any, *, axis: int, replicas: int) -> Any:
    return lax.all_gather(x, _axis_name(ctx), axis=axis, tiled=True)


def _infer_shard_slice(ctx: InferContext, x: TensorType, *, axis: int, replicas: int) -> TensorType:
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    size = x.shape[axis]
    ctx.require(
        not isinstance(size, int) or size % replicas == 0,
        f"axis {axis} of size {size} cannot be cut into {replicas} equal pieces",
    )
    return TensorType(
        x.dtype, tuple(d // replicas if i == axis else d for i, d in enumerate(x.shape))
    )


def _lower_shard_slice(ctx: LowerContext, x: Any, *, axis: int, replicas: int) -> Any:
    size = x.shape[axis] // replicas
    start = lax.axis_index(_axis_name(ctx)) * size
    return lax.dynamic_slice_in_dim(x, start, size, axis)


def _lower_on_replica_zero(ctx: LowerContext, x: Any) -> Any:
    return jnp.where(lax.axis_index(_axis_name(ctx)) == 0, x, jnp.zeros_like(x))


ALL_REDUCE = OpDef(
    name="AllReduce",
    signature="x -> y",
    precision="wide",
    attrs={"op": Attr("str", check=_REDUCTIONS.__contains__, must='be "sum", "max" or "min"')},
    infer=lambda ctx, x, *, op: x,
    lower=_lower_all_reduce,
    differentiable=False,
    layout=_refuse_layout,
    doc="The sum, maximum or minimum of x over the replicas, the same on each: Partial to "
    "Replicated. Real and bool dtypes; sums of complex ones too.",
)

ALL_GATHER = OpDef(
    name="AllGather",
    signature="x -> y",
    precision="wide",
    attrs={"axis": _AXIS, "replicas": _REPLICAS},
    infer=_infer_all_gather,
    lower=_lower_all_gather,
    differentiable=False,
    layout=_refuse_layout,
    doc="The pieces x of all replicas, joined along `axis` in replica order: Sharded to "
    "Replicated. All dtypes.",
)

SHARD_SLICE = OpDef(
    name="ShardSlice",
    signature="x -> y",
    precision="wide",
    attrs={"axis": _AXIS, "replicas": _REPLICAS},
    infer=_infer_shard_slice,
    lower=_lower_shard_slice,
    differentiable=False,
    layout=_refuse_layout,
    doc="This replica's piece of x along `axis`: Replicated to Sharded, without communication. "
    "All dtypes.",
)

REPLICA_INDEX = OpDef(
    name="ReplicaIndex",
    signature="-> i",
    precision="wide",
    infer=lambda ctx: TensorType(INT32, ()),
    lower=lambda ctx: lax.axis_index(_axis_name(ctx)),
    differentiable=False,
    layout=_refuse_layout,
    doc="The number of this replica, from 0: int32 scalar.",
)

ON_REPLICA_ZERO = OpDef(
    name="OnReplicaZero",
    signature="x -> y",
    precision="wide",
    infer=lambda ctx, x: x,
    lower=_lower_on_replica_zero,
    differentiable=False,
    layout=_refuse_layout,
    doc="x on replica 0, zeros on the others: Replicated to Partial(sum). Numeric dtypes.",
)


def all_reduce(x: Tensor, op: str = "sum") -> Tensor:
    """`x` summed ("sum"), or its "max" or "min", over the replicas."""
    return emit_one(ALL_REDUCE, (x,), op=op)


def all_gather(x: Tensor, axis: int, replicas: int) -> Tensor:
    """The pieces of all `replicas`, joined along `axis`."""
    return emit_one(ALL_GATHER, (x,), axis=axis, replicas=replicas)


def shard_slice(x: Tensor, axis: int, replicas: int) -> Tensor:
    """This replica's piece of `x` along `axis`.

    Raises:
        ShapeError: the axis cannot be cut into `replicas` equal pieces.
    """
    return emit_one(SHARD_SLICE, (x,), axis=axis, replicas=replicas)


def replica_index() -> Tensor:
    """The number of this replica, from 0: int32 scalar."""
    return emit_one(REPLICA_INDEX, ())


def on_replica_zero(x: Tensor) -> Tensor:
    """`x` on replica 0, zeros on the others."""
    return emit_one(ON_REPLICA_ZERO, (x,))


OPS: tuple[OpDef, ...] = (ALL_REDUCE, ALL_GATHER, SHARD_SLICE, REPLICA_INDEX, ON_REPLICA_ZERO)
