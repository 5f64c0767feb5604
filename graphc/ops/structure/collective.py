"""What replicas of a data-parallel run tell each other.

The replicate pass puts these into local programs, where shapes are those of one replica's piece;
nothing else does, and no layout rule applies there any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.errors import GraphError, LayoutError
from graphc.ir.dtypes import BOOL, FLOAT32, INT32, DType, is_floating
from graphc.ir.layouts import Layout, LayoutContext
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.cost_rules import free, moves_only, picks
from graphc.ops.core.emit import emit_one

# Arrays of up to so many bytes go through an all-reduce in one flat array. Each array of its own
# costs XLA:CPU about 65 us (4 replicas on 2 cores), copies cost by size: steps with 12 gradients of
# 16, 64 and 256 KiB took 0.4, 0.6 and 0.9 of the time for it, with one of 512 KiB 1.1 times.
_PACKED = 2**18

_REDUCTIONS: dict[str, Callable[..., Any]] = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin}
_AXIS = Attr("int", check=lambda v: v >= 0, must="be counted from the front")
_REPLICAS = Attr("int", check=lambda v: v > 0, must="be a positive int")


def refuse_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> NoReturn:
    """The layout rule of what stands in local programs only."""
    raise LayoutError(
        f"{node.op.name} {node.name!r}: the program is replicated already",
        source=node.source,
        hint="collectives stand in local programs only; the replicate pass puts them there",
    )


def axis_name_of(ctx: LowerContext) -> str:
    """The axis of `jax.pmap` that the replicas lie along.

    Raises:
        GraphError: there is none.
    """
    if ctx.axis_name is None:
        raise GraphError(
            f"{ctx.node.op.name} has no replicas here: it runs under a data-parallel strategy only",
            source=ctx.node.source,
        )
    return ctx.axis_name


def _infer_all_reduce(ctx: InferContext, *types: TensorType, op: str) -> tuple[TensorType, ...]:
    ctx.require(len(types) > 0, "needs an operand at least")
    for type in types:
        ctx.require(
            type.dtype == types[0].dtype,
            f"operands must have one dtype, got {types[0].dtype.name} and {type.dtype.name}",
            dtype=True,
        )
    return types


def _lower_all_reduce(ctx: LowerContext, *xs: Any, op: str) -> tuple[Any, ...]:
    reduce = partial(_REDUCTIONS[op], axis_name=axis_name_of(ctx))
    found = _packed(reduce, [_sent(x, op) for x in xs])
    return tuple(_received(y, x.dtype, op) for x, y in zip(xs, found, strict=True))


def _packed(reduce: Callable[[list[Any]], list[Any]], arrays: list[Any]) -> list[Any]:
    """What `reduce` makes of the arrays, elementwise; small ones are given to it as one."""
    small = [i for i, x in enumerate(arrays) if x.size * x.dtype.itemsize <= _PACKED]
    if len(small) < 2:
        return reduce(arrays)
    large = [i for i in range(len(arrays)) if i not in small]
    flat = jnp.concatenate([arrays[i].reshape(-1) for i in small])
    flat, *results = reduce([flat, *(arrays[i] for i in large)])
    found = dict(zip(large, results, strict=True))
    pieces = _unpacked(flat, [arrays[i].shape for i in small])
    found.update(zip(small, pieces, strict=True))
    return [found[i] for i in range(len(arrays))]


def _unpacked(flat: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """The arrays that lie one after the other in `flat`."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    pieces = jnp.split(flat, [int(end) for end in ends[:-1]])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _sent(x: Any, op: str) -> Any:
    """The numbers that go between replicas for `x`."""
    if x.dtype == BOOL:  # any and all
        return x.astype(INT32)
    if op == "sum" or not is_floating(x.dtype):
        return x
    if x.dtype.itemsize < 4:  # float32 holds them all
        x = x.astype(FLOAT32)
    # XLA's collectives may leave out NaN, which a reduction on one device never does. So they
    # compare integers that are ordered as the numbers are, with NaN beyond the last of them.
    integer = np.dtype(f"int{8 * x.dtype.itemsize}")
    nan = np.copysign(np.array(np.nan, x.dtype), 1 if op == "max" else -1).view(integer)
    bits = jnp.where(jnp.isnan(x), nan, lax.bitcast_convert_type(x, integer))
    return _swap_order(bits)


def _received(y: Any, dtype: DType, op: str) -> Any:
    """What `_sent` made of `dtype`, back in it."""
    if op != "sum" and is_floating(dtype):
        wide = dtype if dtype.itemsize >= 4 else FLOAT32
        y = lax.bitcast_convert_type(_swap_order(y), wide)
    return y.astype(dtype)


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
    # Along axis 0 and moved then: XLA:CPU would lay an operand out for a gather along another
    # axis as its FFT cannot (RET_CHECK in fft_thunk.cc, JAX 0.10).
    rows = lax.all_gather(jnp.moveaxis(x, axis, 0), axis_name_of(ctx), axis=0, tiled=True)
    return jnp.moveaxis(rows, 0, axis)


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
    start = lax.axis_index(axis_name_of(ctx)) * size
    return lax.dynamic_slice_in_dim(x, start, size, axis)


def _lower_reduce_scatter(ctx: LowerContext, x: Any, *, axis: int, replicas: int) -> Any:
    return lax.psum_scatter(x, axis_name_of(ctx), scatter_dimension=axis, tiled=True)


def _lower_on_replica_zero(ctx: LowerContext, x: Any) -> Any:
    return jnp.where(lax.axis_index(axis_name_of(ctx)) == 0, x, jnp.zeros_like(x))


ALL_REDUCE = OpDef(
    name="AllReduce",
    signature="*xs -> *ys",
    precision="wide",
    attrs={"op": Attr("str", check=_REDUCTIONS.__contains__, must='be "sum", "max" or "min"')},
    infer=_infer_all_reduce,
    lower=_lower_all_reduce,
    differentiable=False,
    layout=refuse_layout,
    doc="The sum, maximum or minimum over the replicas of each of the operands, which have one "
    "dtype and go together: Partial to Replicated. Real and bool dtypes; sums of complex ones too.",
)

REDUCE_SCATTER = OpDef(
    name="ReduceScatter",
    signature="x -> y",
    precision="wide",
    attrs={"axis": _AXIS, "replicas": _REPLICAS},
    infer=_infer_shard_slice,
    lower=_lower_reduce_scatter,
    differentiable=False,
    layout=refuse_layout,
    doc="This replica's piece along `axis` of the sum of x over the replicas: Partial(sum) to "
    "Sharded, for half of what the whole sum costs. Numeric dtypes.",
)

ALL_GATHER = OpDef(
    name="AllGather",
    signature="x -> y",
    precision="wide",
    attrs={"axis": _AXIS, "replicas": _REPLICAS},
    infer=_infer_all_gather,
    lower=_lower_all_gather,
    differentiable=False,
    layout=refuse_layout,
    cost=moves_only,
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
    layout=refuse_layout,
    cost=picks,
    doc="This replica's piece of x along `axis`: Replicated to Sharded, without communication. "
    "All dtypes.",
)

REPLICA_INDEX = OpDef(
    name="ReplicaIndex",
    signature="-> i",
    precision="wide",
    infer=lambda ctx: TensorType(INT32, ()),
    lower=lambda ctx: lax.axis_index(axis_name_of(ctx)),
    differentiable=False,
    layout=refuse_layout,
    cost=free,
    doc="The number of this replica, from 0: int32 scalar.",
)

ON_REPLICA_ZERO = OpDef(
    name="OnReplicaZero",
    signature="x -> y",
    precision="wide",
    infer=lambda ctx, x: x,
    lower=_lower_on_replica_zero,
    differentiable=False,
    layout=refuse_layout,
    cost=free,
    doc="x on replica 0, zeros on the others: Replicated to Partial(sum). Numeric dtypes.",
)


def all_reduce(x: Tensor, op: str = "sum") -> Tensor:
    """`x` summed ("sum"), or its "max" or "min", over the replicas."""
    return emit_one(ALL_REDUCE, (x,), op=op)


def reduce_scatter(x: Tensor, axis: int, replicas: int) -> Tensor:
    """This replica's piece of the sum of `x` over all `replicas`.

    Raises:
        ShapeError: the axis cannot be cut into `replicas` equal pieces.
    """
    return emit_one(REDUCE_SCATTER, (x,), axis=axis, replicas=replicas)


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


# Those by which replicas send each other data.
EXCHANGES: tuple[OpDef, ...] = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)
OPS: tuple[OpDef, ...] = (*EXCHANGES, SHARD_SLICE, REPLICA_INDEX, ON_REPLICA_ZERO)
