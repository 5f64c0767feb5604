"""Collectives: the communication between the replicas of a data-parallel run.

Only the replicate pass adds these operators. They occur in local programs, whose shapes are those
of one replica's piece and to which layout rules no longer apply.
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
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.axes import AXIS
from graphc.ops.core.cost_rules import free, moves_only, picks
from graphc.ops.core.defining import at_least, define, marker
from graphc.ops.core.emit import emit_one

# Arrays up to this size in bytes are packed into one flat array for an all-reduce. On XLA:CPU each
# separate array costs about 65 us (4 replicas on 2 cores), and the cost of packing grows with the
# size. Steps with 12 gradients of 16, 64, 256 and 512 KiB took 0.4, 0.6, 0.9 and 1.1 of the time.
_PACKED = 2**18

_REDUCTIONS: dict[str, Callable[..., Any]] = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin}
POSITIVE = at_least(1, "be a positive int")


def refuse_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> NoReturn:
    """The layout rule of operators that occur in local programs only."""
    raise LayoutError(
        f"{node.op.name} {node.name!r}: the program is already replicated",
        source=node.source,
        hint="collectives occur only in local programs; the replicate pass adds them",
    )


def axis_name_of(ctx: LowerContext) -> str:
    """The name of the mapped axis of the replicas.

    Raises:
        GraphError: the run has no replicas.
    """
    if ctx.axis_name is None:
        raise GraphError(
            f"{ctx.node.op.name} needs a data-parallel strategy: this run has no replicas",
            source=ctx.node.source,
        )
    return ctx.axis_name


def local_operator(schema: str, precision: str = "wide", **fields: Any) -> OpDef:
    """An operator of local programs: it has neither a gradient nor a layout rule."""
    return define(schema, precision=precision, differentiable=False, layout=refuse_layout, **fields)


def _infer_all_reduce(ctx: InferContext, *types: TensorType, op: str) -> tuple[TensorType, ...]:
    ctx.require(len(types) > 0, "needs at least one operand")
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
    """`reduce`, an elementwise function, of the arrays. Small arrays are packed into one."""
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
    """The arrays that are stored one after the other in `flat`."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    pieces = jnp.split(flat, [int(end) for end in ends[:-1]])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _sent(x: Any, op: str) -> Any:
    """The form in which the replicas exchange `x`."""
    if x.dtype == BOOL:  # any and all
        return x.astype(INT32)
    if op == "sum" or not is_floating(x.dtype):
        return x
    if x.dtype.itemsize < 4:  # float32 represents all of them
        x = x.astype(FLOAT32)
    # XLA's collectives may ignore NaN; a reduction on one device never does. So they compare
    # integers in the same order as the floats, and NaN is ordered after the last of them.
    integer = np.dtype(f"int{8 * x.dtype.itemsize}")
    nan = np.copysign(np.array(np.nan, x.dtype), 1 if op == "max" else -1).view(integer)
    bits = jnp.where(jnp.isnan(x), nan, lax.bitcast_convert_type(x, integer))
    return _swap_order(bits)


def _received(y: Any, dtype: DType, op: str) -> Any:
    """Undoes `_sent` for values of `dtype`."""
    if op != "sum" and is_floating(dtype):
        wide = dtype if dtype.itemsize >= 4 else FLOAT32
        y = lax.bitcast_convert_type(_swap_order(y), wide)
    return y.astype(dtype)


def _swap_order(bits: Any) -> Any:
    """Maps the bits of floats to integers in the same order, and back: reverses negative ones."""
    limits = np.iinfo(bits.dtype)
    return bits ^ ((bits >> (limits.bits - 1)) & limits.max)


def _infer_all_gather(ctx: InferContext, x: TensorType, *, axis: int, replicas: int) -> TensorType:
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    size = x.shape[axis] * replicas
    return TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :]))


def _lower_all_gather(ctx: LowerContext, x: Any, *, axis: int, replicas: int) -> Any:
    # Gather along axis 0, then move the axis: for other axes XLA:CPU chooses an operand layout that
    # its FFT does not support (RET_CHECK in fft_thunk.cc, JAX 0.10).
    rows = jnp.moveaxis(x, axis, 0)
    if x.size == 0:  # JAX cannot lower it (0.10)
        return jnp.moveaxis(jnp.tile(rows, (replicas, *[1] * (x.ndim - 1))), 0, axis)
    rows = lax.all_gather(rows, axis_name_of(ctx), axis=0, tiled=True)
    return jnp.moveaxis(rows, 0, axis)


def _infer_shard_slice(ctx: InferContext, x: TensorType, *, axis: int, replicas: int) -> TensorType:
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    size = x.shape[axis]
    ctx.require(
        not isinstance(size, int) or size % replicas == 0,
        f"axis {axis} of size {size} cannot be cut into {replicas} equal pieces",
    )
    return TensorType(x.dtype, (*x.shape[:axis], size // replicas, *x.shape[axis + 1 :]))


def _lower_shard_slice(ctx: LowerContext, x: Any, *, axis: int, replicas: int) -> Any:
    size = x.shape[axis] // replicas
    start = lax.axis_index(axis_name_of(ctx)) * size
    return lax.dynamic_slice_in_dim(x, start, size, axis)


_PIECES = {"axis": AXIS, "replicas": POSITIVE}

ALL_REDUCE = local_operator(
    "AllReduce(*xs) -> *ys",
    attrs={"op": Attr("str", check=_REDUCTIONS.__contains__, must='be "sum", "max" or "min"')},
    infer=_infer_all_reduce,
    lower=_lower_all_reduce,
    doc="The sum, maximum or minimum over the replicas of each operand: Partial to Replicated. The "
    "operands have one dtype and are exchanged together. Real and bool dtypes; sums also complex.",
)

REDUCE_SCATTER = local_operator(
    "ReduceScatter(x) -> y",
    attrs=_PIECES,
    infer=_infer_shard_slice,
    lower=lambda ctx, x, *, axis, replicas: lax.psum_scatter(
        x, axis_name_of(ctx), scatter_dimension=axis, tiled=True
    ),
    doc="This replica's piece along `axis` of the sum of x over the replicas: Partial(sum) to "
    "Sharded, at half the cost of the whole sum. Numeric dtypes.",
)

ALL_GATHER = local_operator(
    "AllGather(x) -> y",
    attrs=_PIECES,
    infer=_infer_all_gather,
    lower=_lower_all_gather,
    cost=moves_only,
    doc="The pieces x of all replicas, joined along `axis` in replica order: Sharded to "
    "Replicated. All dtypes.",
)

SHARD_SLICE = local_operator(
    "ShardSlice(x) -> y",
    attrs=_PIECES,
    infer=_infer_shard_slice,
    lower=_lower_shard_slice,
    cost=picks,
    doc="This replica's piece of x along `axis`: Replicated to Sharded, without communication. "
    "All dtypes.",
)

REPLICA_INDEX = local_operator(
    "ReplicaIndex() -> i",
    infer=lambda ctx: TensorType(INT32, ()),
    lower=lambda ctx: lax.axis_index(axis_name_of(ctx)),
    cost=free,
    doc="The number of this replica, from 0: int32 scalar.",
)

ON_REPLICA_ZERO = local_operator(
    "OnReplicaZero(x) -> y",
    infer=lambda ctx, x: x,
    lower=lambda ctx, x: jnp.where(lax.axis_index(axis_name_of(ctx)) == 0, x, jnp.zeros_like(x)),
    cost=free,
    doc="x on replica 0, zeros on the others: Replicated to Partial(sum). Numeric dtypes.",
)


WHOLE = marker(
    "Whole(x) -> y",
    differentiable=False,
    layout=lambda ctx, node, *xs: LayoutPlan([REPLICATED], [REPLICATED], fill={}),
    doc="The operand, whole on each replica. The pass `GatherParameters` adds it where a parameter "
    "that is stored in pieces is used. All dtypes and shapes.",
)


def all_reduce(x: Tensor, op: str = "sum") -> Tensor:
    """The "sum", "max" or "min" of `x` over the replicas."""
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


# The operators that send data between replicas.
EXCHANGES: tuple[OpDef, ...] = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)
OPS: tuple[OpDef, ...] = (*EXCHANGES, SHARD_SLICE, REPLICA_INDEX, ON_REPLICA_ZERO, WHOLE)
