"""Updates written at index vectors: set, add, multiply, minimum and maximum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from graphc.errors import DTypeError
from graphc.ir.dims import product
from graphc.ir.dtypes import BOOL, INT32
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Replicated, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.gathering import SCATTER_MODE, TAKE_OF, scatter
from graphc.ops.arrays.gathering_nd import vector_axes
from graphc.ops.arrays.index_frames import INDEXED, Axes, Frame, check_frame, frame_of, xla_indices
from graphc.ops.arrays.shape import broadcast_to
from graphc.ops.core.broadcasting import Adjoints, is_numeric, is_real, require_one_dtype
from graphc.ops.core.checks import known_alike, refuse
from graphc.ops.core.cost_rules import times_operand
from graphc.ops.core.defining import define, one_of
from graphc.ops.core.emit import convert, emit_one, promote_types, to_dtype
from graphc.ops.core.layout_rules import SUM, replicated
from graphc.ops.core.precision import wide
from graphc.typing import TensorLike

__all__ = ["scatter_nd"]

_LOWERINGS: dict[str, Callable[..., Any]] = {
    "set": lax.scatter,
    "add": lax.scatter_add,
    "mul": lax.scatter_mul,
    "min": lax.scatter_min,
    "max": lax.scatter_max,
}


def _infer_scatter(
    ctx: InferContext,
    operand: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    op: str,
    axes: Axes,
    batch: int,
    mode: str,
) -> TensorType:
    frame = check_frame(ctx, operand, indices, axes, batch)
    require_one_dtype(ctx, operand, updates)
    if op in ("add", "mul"):
        ctx.require_dtype([operand], is_numeric, "numeric")
    if op in ("min", "max"):
        ctx.require_dtype([operand], lambda dtype: is_real(dtype) and dtype != BOOL, "real")
    expected = frame.shape(operand.shape, indices.shape)
    ctx.require(
        updates.rank == len(expected),
        f"updates must have rank {len(expected)}, got {updates.rank}",
    )
    for axis, (wanted, dim) in enumerate(zip(expected, updates.shape, strict=True)):
        ctx.unify(wanted, dim, f"sizes of axis {axis} of the updates")
    return operand


def _lower_scatter(
    ctx: LowerContext,
    operand: Any,
    indices: Any,
    updates: Any,
    *,
    op: str,
    axes: Axes,
    batch: int,
    mode: str,
) -> Any:
    places = xla_indices(indices, [operand.shape[axis] for axis in axes])
    dtype = wide(operand.dtype) if op in ("add", "mul") else operand.dtype
    result = scatter(
        _LOWERINGS[op],
        operand.astype(dtype),
        places,
        updates.astype(dtype),
        mode,
        axes,
        windows=frame_of(operand.ndim, indices.ndim, axes, batch).windows(),
        shared=tuple(range(batch)),
    )
    return result.astype(operand.dtype)


# -- gradients -------------------------------------------------------------------------------


def _scatter_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    indices = node.inputs[1]
    where = {key: node.attrs[key] for key in ("axes", "batch")}
    mode = node.attrs["mode"]

    def gather(x: Tensor) -> Tensor:
        found: Tensor = ctx.ops.gather_at(x, indices, **where, mode=TAKE_OF[mode])
        return found

    def scatter(x: Tensor, updates: Any, op: str) -> Tensor:
        return scatter_at(x, indices, updates, op, **where, mode=mode)

    rule = _RULES[node.attrs["op"]]
    of_operand, of_updates = rule(ctx, node, dy, gather, scatter)
    return [of_operand, None, of_updates]


Gather = Callable[[Tensor], Tensor]
Scatter = Callable[[Tensor, Any, str], Tensor]


def _of_set(
    ctx: GradientContext, node: Node, dy: Tensor, gather: Gather, scatter: Scatter
) -> tuple[Tensor, Tensor]:
    """Of several updates of one element, only the one that was written gets the adjoint.

    Each update writes its number to its position. The update whose number remains there was the
    last.
    """
    operand, _, updates = node.inputs
    count = product(updates.type.shape)
    numbers = ctx.ops.reshape(ctx.ops.arange(1, count + 1), updates.type.shape)
    written = gather(scatter(ctx.ops.zeros_like(operand, INT32), numbers, "set"))
    last = ctx.ops.equal(written, numbers)
    return scatter(dy, 0, "set"), ctx.ops.where(last, gather(dy), 0)


def _of_extreme(
    ctx: GradientContext, node: Node, dy: Tensor, gather: Gather, scatter: Scatter
) -> tuple[Tensor, Tensor]:
    """All updates that are equal to the extreme get equal shares of the adjoint."""
    (operand, _, updates), y = node.inputs, node.outputs[0]
    dtype = y.type.dtype
    kept = ctx.ops.equal(operand, y)
    won = ctx.ops.equal(updates, gather(y))
    share = dy / scatter(to_dtype(kept, dtype), to_dtype(won, dtype), "add")
    return ctx.ops.where(kept, share, 0), ctx.ops.where(won, gather(share), 0)


def _of_mul(
    ctx: GradientContext, node: Node, dy: Tensor, gather: Gather, scatter: Scatter
) -> tuple[Tensor, Tensor]:
    """The adjoint of an update is multiplied by the product of the other updates, which may be
    zero."""
    operand, _, updates = node.inputs
    zero = ctx.ops.equal(updates, 0)
    plain = ctx.ops.where(zero, 1, updates)
    products = scatter(operand, plain, "mul")
    zeros = gather(scatter(ctx.ops.zeros_like(operand, INT32), to_dtype(zero, INT32), "add"))
    alone = ctx.ops.equal(zeros, to_dtype(zero, INT32))
    of_updates = ctx.ops.where(alone, gather(dy * products) / plain, 0)
    return scatter(dy, updates, "mul"), of_updates


_RULES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "set": _of_set,
    "add": lambda ctx, node, dy, gather, scatter: (dy, gather(dy)),
    "mul": _of_mul,
    "min": _of_extreme,
    "max": _of_extreme,
}


# -- layouts ---------------------------------------------------------------------------------


def _common_axis(frame: Frame, operand: Layout, indices: Layout, updates: Layout) -> int | None:
    """The sharded axis of the operand along which every update stays on its replica."""
    if isinstance(updates, Sharded):
        for axis in frame.kept:
            if frame.of_operand(axis) == updates.axis:
                return axis
    if isinstance(indices, Sharded) and indices.axis < frame.batch:
        return indices.axis
    if isinstance(operand, Sharded) and operand.axis not in frame.axes:
        return operand.axis
    return None


def _scatter_layout(
    ctx: LayoutContext, node: Node, operand: Layout, indices: Layout, updates: Layout
) -> LayoutPlan:
    rank, index_rank, _ = (t.ndim for t in node.inputs)
    frame = frame_of(rank, index_rank, node.attrs["axes"], node.attrs["batch"])
    if node.attrs["op"] == "add":
        for axis in range(frame.batch, index_rank - 1):
            after = Sharded(frame.of_indices(axis))
            if Sharded(axis) == indices or (isinstance(indices, Replicated) and updates == after):
                # Each replica adds its own updates, so the operand itself must be counted only
                # once.
                return LayoutPlan([SUM, Sharded(axis), after], [SUM], fill={2: "sum"})
    common = _common_axis(frame, operand, indices, updates)
    if common is not None:
        own = Sharded(common)
        needed = own if common < frame.batch else REPLICATED
        return LayoutPlan([own, needed, Sharded(frame.of_operand(common))], [own])
    if node.attrs["op"] == "add" and SUM in (operand, updates):  # linear in the pair
        return LayoutPlan([SUM, REPLICATED, SUM], [SUM])
    return replicated(ctx, node, operand, indices, updates)


SCATTER_ND = define(
    "ScatterNd(operand, indices, updates) -> y",
    precision="wide",
    attrs={
        "op": one_of(*_LOWERINGS, doc="how an update and the old element are combined"),
        **INDEXED,
        "mode": SCATTER_MODE,
    },
    infer=_infer_scatter,
    lower=_lower_scatter,
    gradient=_scatter_gradient,
    layout=_scatter_layout,
    cost=times_operand(1, position=2),
    doc="The operand with the windows of `updates` set, added or multiplied, or combined by the "
    "minimum or maximum, at the positions that GatherNd reads for the same indices and axes. If "
    'several updates set one element, one wins. Out of range: "drop" does nothing, "clip" uses the '
    "nearest. One dtype; numeric to add and multiply, integer or floating for min and max. "
    "Source: jax.numpy.ndarray.at.",
)


# -- functions -------------------------------------------------------------------------------


def scatter_at(
    operand: Any,
    indices: Any,
    updates: Any,
    op: str,
    axes: Axes,
    batch: int = 0,
    mode: str = "drop",
    *,
    name: str | None = None,
) -> Tensor:
    """`operand` updated at index vectors along any `axes`; see `scatter_nd` for the rest."""
    target, where = convert(operand), convert(indices)
    changes = updates_for("ScatterNd", target, updates)
    fits = bool(axes) and target.ndim > max(axes) and where.ndim > batch
    if fits:  # else the operator raises the error
        frame = frame_of(target.ndim, where.ndim, axes, batch)
        expected = frame.shape(target.type.shape, where.type.shape)
        if not known_alike(changes.shape, expected, changes) and changes.ndim <= len(expected):
            changes = broadcast_to(changes, expected)
    attrs = {"op": op, "axes": tuple(axes), "batch": batch, "mode": mode}
    return emit_one(SCATTER_ND, (target, where, changes), name, **attrs)


def updates_for(op: str, target: Tensor, updates: Any) -> Tensor:
    """`updates` converted to the dtype of the target, which must not be narrower.

    Raises:
        DTypeError: the conversion would lose information.
    """
    dtype = target.type.dtype
    if promote_types(target, updates) != dtype:
        own = convert(updates)
        refuse(
            f"{op}: updates of {own.dtype.name} do not fit into {dtype.name}",
            error=DTypeError,
            hint=f'gc.cast(updates, "{dtype.name}") drops the excess precision',
            operand=target,
            updates=own,
        )
    return to_dtype(updates, dtype)


def scatter_nd(
    operand: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    op: str = "set",
    batch_dims: int = 0,
    mode: str = "drop",
    *,
    name: str | None = None,
) -> Tensor:
    """`operand` updated at the index vectors `indices[..., :]`.

    Args:
        operand: any tensor; `gc.zeros(shape)` to build one up.
        indices: integers [..., k]: indices along the first k axes of `operand` after `batch_dims`.
            Negative ones count from the end.
        updates: of the shape of `gather_nd(operand, indices, batch_dims)`, or broadcast to it.
        op: "set", "add", "mul", "min" or "max".
        batch_dims: how many leading axes `operand` and `indices` share.
        mode: an index out of range is ignored ("drop") or clamped ("clip").

    Returns:
        A tensor of the type of `operand`.

    Raises:
        ShapeError: the updates do not fit.
        DTypeError: the indices are not integers, or the updates wider than the operand.
        AttributeValueError: an unknown `op` or `mode`.

    Source: tf.tensor_scatter_nd_update and related functions.

    Examples:
        >>> run(gc.scatter_nd([[0, 0], [0, 0]], [[0, 1], [1, 0]], [5, 6]))
        Array([[0, 5],
               [6, 0]], dtype=int32)
    """
    where = convert(indices)
    axes = vector_axes("ScatterNd", where, batch_dims)
    return scatter_at(operand, where, updates, op, axes, batch_dims, mode, name=name)


OPS: tuple[OpDef, ...] = (SCATTER_ND,)
