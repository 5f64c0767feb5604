"""Joining tensors along an axis and splitting a tensor: concatenate, split."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jax import lax

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim, Shape
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, OpDef
from graphc.ir.operand import Operand
from graphc.ir.types import TensorType
from graphc.ops.arrays.gathering import AXIS
from graphc.ops.arrays.shape import ravel
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import Adjoints, or_zeros, require_one_dtype
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.cost_rules import picks
from graphc.ops.core.defining import rearrangement
from graphc.ops.core.emit import convert, emit_node, emit_one, promote_operands
from graphc.ops.core.layout_rules import SUM, moves, replicated
from graphc.typing import TensorLike

__all__ = ["concat", "concatenate", "split"]


def _require_axis(ctx: InferContext, axis: int, rank: int) -> None:
    ctx.require(axis < rank, f"axis {axis} is out of range for rank {rank}")


def _infer_concatenate(ctx: InferContext, *xs: TensorType, axis: int) -> TensorType:
    ctx.require(bool(xs), "nothing to join")
    first = xs[0]
    _require_axis(ctx, axis, len(first.shape))
    require_one_dtype(ctx, *xs)
    shape = list(first.shape)
    for x in xs[1:]:
        if len(x.shape) != len(shape):
            ctx.fail(
                f"ranks differ, {len(shape)} and {len(x.shape)}",
                hint="gc.expand_dims(x, axis) adds an axis; gc.stack joins along a new one",
            )
        for i, dim in enumerate(x.shape):
            if i == axis:
                shape[i] = shape[i] + dim
            else:
                shape[i] = ctx.unify(
                    shape[i],
                    dim,
                    f"sizes of axis {i}",
                    hint=f"only the sizes of axis {axis}, the joined axis, may differ",
                )
    return TensorType(first.dtype, tuple(shape))


def _concatenate_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    axis: int = node.attrs["axis"]
    return list(split(dy, [t.type.shape[axis] for t in node.inputs], axis))


def _concatenate_layout(ctx: LayoutContext, node: Node, *xs: Layout) -> LayoutPlan:
    if all(x == SUM for x in xs):
        return LayoutPlan(list(xs), [SUM])
    for x in xs:
        if isinstance(x, Sharded) and x.axis != node.attrs["axis"]:
            return LayoutPlan([x] * len(xs), [x])
    return replicated(ctx, node, *xs)


CONCATENATE = rearrangement(
    "Concatenate(*xs) -> y",
    attrs={"axis": AXIS},
    infer=_infer_concatenate,
    lower=lambda ctx, *xs, axis: lax.concatenate(xs, axis),
    gradient=_concatenate_gradient,
    layout=_concatenate_layout,
    fold=lambda *xs, axis: np.concatenate(xs, axis),
    doc="The operands joined along `axis`; their other sizes are equal. All dtypes. "
    "Source: numpy.concatenate.",
)


def _total(sizes: Shape) -> Dim:
    total: Dim = 0
    for size in sizes:
        total = total + size
    return total


def _infer_split(
    ctx: InferContext, x: TensorType, *, axis: int, sizes: Shape
) -> tuple[TensorType, ...]:
    _require_axis(ctx, axis, len(x.shape))
    total = _total(sizes)
    if not ctx.constraints.unify(x.shape[axis], total):
        listed = ", ".join(map(str, sizes))
        ctx.fail(
            f"sizes ({listed}) add to {total}, axis {axis} has {x.shape[axis]}",
            hint="give the sizes of the pieces, not the positions of the cuts",
        )
    return tuple(
        TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes
    )


def _split_gradient(ctx: GradientContext, node: Node, *dys: Tensor | None) -> Adjoints:
    return [concatenate(or_zeros(ctx, node, dys), node.attrs["axis"])]


SIZES = Attr(
    "dims",
    check=lambda sizes: bool(sizes) and all(s >= 0 for s in sizes if isinstance(s, int)),
    must="be sizes, one or more, none negative",
)

SPLIT = rearrangement(
    "Split(x) -> *ys",
    attrs={"axis": AXIS, "sizes": SIZES},
    infer=_infer_split,
    lower=lambda ctx, x, *, axis, sizes: tuple(lax.split(x, ctx.shape(sizes), axis)),
    gradient=_split_gradient,
    layout=moves(lambda ctx, node, axis: None if axis == node.attrs["axis"] else (axis, None)),
    fold=lambda x, *, axis, sizes: tuple(np.split(x, np.cumsum(sizes[:-1], dtype=int), axis)),
    cost=picks,
    doc="The pieces of x of `sizes`, in order along `axis`. All dtypes. Source: jax.lax.split.",
)


def concatenate(
    tensors: Sequence[TensorLike], axis: int | None = 0, *, name: str | None = None
) -> Tensor:
    """The tensors joined along `axis`; dtypes promote. `axis` None ravels them first.

    Raises:
        ShapeError: ranks or other sizes differ.
        AttributeValueError: `axis` is out of range, or there is nothing to join.

    Source: numpy.concatenate.

    Examples:
        >>> run(gc.concatenate([[1, 2], [3]]))
        Array([1, 2, 3], dtype=int32)
    """
    xs = several("Concatenate", tensors)
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    place = normalize_axis("Concatenate", xs[0], axis)
    return emit_one(CONCATENATE, xs, name, axis=place)


concat = concatenate


def several(op: str, tensors: Any) -> list[Tensor]:
    """A list of tensors, promoted to one dtype; `op` rejects anything else."""
    if not hasattr(tensors, "__len__") or isinstance(tensors, Operand) or not len(tensors):
        refuse(
            f"{op}: takes a list of tensors, one or more, got {tensors!r}",
            error=AttributeValueError,
            hint=f"a list is the first argument: gc.{op.lower()}([a, b], axis)",
        )
    return promote_operands(*tensors)


def split(
    x: TensorLike, sections_or_sizes: int | Sequence[Dim], axis: int = 0, *, name: str | None = None
) -> tuple[Tensor, ...]:
    """`x` split along `axis` into a number of equal pieces, or into pieces of given sizes.

    A list holds sizes, as in jax.lax.split and torch.split. A list for numpy.split holds the
    positions of cuts. One size may be -1: the remaining size.

    Raises:
        ShapeError: the sizes do not add up, or the number of pieces does not divide the size.

    Examples:
        >>> run(gc.split([1, 2, 3, 4], 2))
        (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = convert(x)
    place = normalize_axis("Split", x, axis)
    dim = x.type.shape[place]
    if isinstance(sections_or_sizes, Iterable):
        sizes = as_dims("Split", sections_or_sizes)
        if sizes.count(-1) == 1:
            rest = dim - (_total(sizes) + 1)
            sizes = tuple(rest if size == -1 else size for size in sizes)
    else:
        sections = operator.index(sections_or_sizes)
        if sections < 1 or (isinstance(dim, int) and dim % sections):
            refuse(
                f"Split: size {dim} of axis {place} does not divide by {sections}",
                hint="pass a list of sizes to split it unevenly",
                x=x,
            )
        sizes = (dim // sections,) * sections
    return emit_node(SPLIT, (x,), name=name, axis=place, sizes=sizes).outputs


OPS: tuple[OpDef, ...] = (CONCATENATE, SPLIT)
