"""A new axis from several tensors, and its slices as several tensors: stack, unstack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax import lax

from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.joining import several
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import or_zeros, require_one_dtype
from graphc.ops.core.checks import insertion_axis
from graphc.ops.core.defining import at_least, rearrangement
from graphc.ops.core.emit import convert, emit_node, emit_one
from graphc.ops.core.layout_rules import SUM, moves, replicated
from graphc.typing import TensorLike

__all__ = ["stack", "unstack"]

AXIS = at_least(0, "be an axis, counted from the front", default=0)


_JOIN = "gc.concatenate joins along an existing axis; gc.pad makes sizes equal"


def _infer_stack(ctx: InferContext, *xs: TensorType, axis: int) -> TensorType:
    ctx.require(bool(xs), "nothing to stack")
    shape = list(xs[0].shape)
    ctx.require(axis <= len(shape), f"axis {axis} is out of range for rank {len(shape) + 1}")
    require_one_dtype(ctx, *xs)
    for x in xs[1:]:
        if len(x.shape) != len(shape):
            ctx.fail(
                f"only tensors of one shape can be stacked: ranks {len(shape)}, {x.rank}",
                hint=_JOIN,
            )
        for i, dim in enumerate(x.shape):
            shape[i] = ctx.unify(
                shape[i], dim, f"only tensors of one shape: sizes of axis {i}", hint=_JOIN
            )
    return TensorType(xs[0].dtype, (*shape[:axis], len(xs), *shape[axis:]))


def _stack_layout(ctx: LayoutContext, node: Node, *xs: Layout) -> LayoutPlan:
    if all(x == SUM for x in xs):
        return LayoutPlan(list(xs), [SUM])
    for x in xs:
        if isinstance(x, Sharded):
            moved = x.axis + (x.axis >= node.attrs["axis"])
            return LayoutPlan([x] * len(xs), [Sharded(moved)])
    return replicated(ctx, node, *xs)


STACK = rearrangement(
    "Stack(*xs) -> y",
    attrs={"axis": AXIS},
    infer=_infer_stack,
    lower=lambda ctx, *xs, axis: lax.concatenate([lax.expand_dims(x, (axis,)) for x in xs], axis),
    gradient=lambda ctx, node, dy: list(unstack(dy, node.attrs["axis"])),
    layout=_stack_layout,
    fold=lambda *xs, axis: np.stack(xs, axis),
    doc="The operands, of one type, stacked along a new axis. All dtypes. Source: numpy.stack.",
)


# The maximum number of results of one node. The results of a very long axis would fill memory.
_MOST = 1 << 20


def _infer_unstack(ctx: InferContext, x: TensorType, *, axis: int) -> tuple[TensorType, ...]:
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    size = x.shape[axis]
    if not isinstance(size, int):
        ctx.fail(
            f"axis {axis} has no known size ({size}) and cannot be unstacked",
            hint="gc.scan and gc.map_fn iterate over an axis when the graph runs",
        )
    ctx.require(size <= _MOST, f"axis {axis} has {size} slices, and {_MOST} is the maximum")
    return (TensorType(x.dtype, (*x.shape[:axis], *x.shape[axis + 1 :])),) * size


def _unstack_gradient(ctx: GradientContext, node: Node, *dys: Tensor | None) -> list[Tensor | None]:
    return [stack(or_zeros(ctx, node, dys), node.attrs["axis"])]


def _unstacked_axis(ctx: LayoutContext, node: Node, axis: int) -> tuple[int, None] | None:
    own: int = node.attrs["axis"]
    return None if axis == own else (axis - (axis > own), None)


UNSTACK = rearrangement(
    "Unstack(x) -> *ys",
    attrs={"axis": AXIS},
    infer=_infer_unstack,
    lower=lambda ctx, x, *, axis: tuple(
        lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])
    ),
    gradient=_unstack_gradient,
    layout=moves(_unstacked_axis),
    fold=lambda x, *, axis: tuple(np.moveaxis(x, axis, 0)),
    doc="The slices of x along `axis`, whose size is known, without that axis: one result for "
    "each index. All dtypes. Source: numpy.unstack.",
)


def stack(tensors: Sequence[TensorLike], axis: int = 0, *, name: str | None = None) -> Tensor:
    """The tensors, of one shape, stacked along a new axis; dtypes promote.

    Raises:
        ShapeError: shapes differ.
        AttributeValueError: `axis` is out of range, or there is nothing to stack.

    Source: numpy.stack.

    Examples:
        >>> run(gc.stack([[1, 2], [3, 4]]))
        Array([[1, 2],
               [3, 4]], dtype=int32)
    """
    xs = several("Stack", tensors)
    return emit_one(STACK, xs, name, axis=insertion_axis("Stack", xs[0], axis, xs[0].ndim + 1))


def unstack(x: TensorLike, axis: int = 0, *, name: str | None = None) -> tuple[Tensor, ...]:
    """The slices of `x` along `axis`, without that axis. Its size must be known.

    Raises:
        ShapeError: the size along `axis` is a named one.

    Source: numpy.unstack.

    Examples:
        >>> run(gc.unstack([[1, 2], [3, 4]]))
        (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = convert(x)
    place = normalize_axis("Unstack", x, axis)
    if x.type.shape[place] == 0:
        return ()
    return emit_node(UNSTACK, (x,), name=name, axis=place).outputs


OPS: tuple[OpDef, ...] = (STACK, UNSTACK)
