"""Windows of a tensor: the operators that slice, pad and reverse."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from graphc.ir.dims import Dim, Shape
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.axes import normalize_axes
from graphc.ops.core.broadcasting import Adjoints, require_one_dtype
from graphc.ops.core.checks import as_dims, is_static
from graphc.ops.core.cost_rules import picks
from graphc.ops.core.defining import rearrangement
from graphc.ops.core.emit import CONSTANT, convert, emit_one, to_dtype
from graphc.ops.core.layout_rules import SUM, local_dims, moves, replicated
from graphc.typing import TensorLike

__all__ = ["flip"]

Triple = tuple[Dim, Dim, int]  # low, high, interior


# -- Slice -----------------------------------------------------------------------------------


def _infer_slice(
    ctx: InferContext, x: TensorType, *, starts: Shape, limits: Shape, strides: tuple[int, ...]
) -> TensorType:
    rank = len(x.shape)
    if not len(starts) == len(limits) == len(strides) == rank:
        ctx.fail(
            f"needs a start, a limit and a stride for each of the {rank} axes",
            hint="x[start:limit:stride] takes all of the axes that it does not name",
        )
    shape = []
    for i, (dim, start, limit, stride) in enumerate(
        zip(x.shape, starts, limits, strides, strict=True)
    ):
        known = [value for value in (0, start, limit, dim) if isinstance(value, int)]
        if known != sorted(known) or stride < 1:
            ctx.fail(
                f"{start}:{limit}:{stride} is not within axis {i}, of size {dim}",
                hint="x[start:limit:stride] takes what there is, as in NumPy",
            )
        shape.append((limit - start + (stride - 1)) // stride)
    return TensorType(x.dtype, tuple(shape))


def _slice_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    pads: list[Triple] = []
    rows = zip(
        node.inputs[0].type.shape,
        node.outputs[0].type.shape,
        node.attrs["starts"],
        node.attrs["strides"],
        strict=True,
    )
    for axis, (dim, count, start, stride) in enumerate(rows):
        if stride > 1 and not isinstance(count, int):  # it may be 0
            dy = _spaced(ctx, dy, axis, stride)
            pads.append((start, dim - start - count * stride, 0))
        else:
            covered = 0 if count == 0 else (count - 1) * stride + 1
            pads.append((start, dim - start - covered, stride - 1))
    return [pad_with(dy, 0, pads)]


def _spaced(ctx: GradientContext, x: Tensor, axis: int, stride: int) -> Tensor:
    """`x` with `stride - 1` zeros after each element along `axis`; empty if `x` is."""
    before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    wide = ctx.ops.reshape(x, (*before, size, 1, *behind))
    pads = [(0, stride - 1 if i == axis + 1 else 0, 0) for i in range(len(wide.shape))]
    spaced: Tensor = ctx.ops.reshape(pad_with(wide, 0, pads), (*before, size * stride, *behind))
    return spaced


def _place_slice(ctx: LayoutContext, node: Node, axis: int) -> Any:
    attrs = node.attrs
    dim = node.inputs[0].type.shape[axis]
    if (attrs["starts"][axis], attrs["limits"][axis], attrs["strides"][axis]) != (0, dim, 1):
        return None
    return axis, {"limits": local_dims(attrs["limits"], axis, ctx.replicas)}


SLICE = rearrangement(
    "Slice(x) -> y",
    attrs={"starts": Attr("dims"), "limits": Attr("dims"), "strides": Attr("ints")},
    infer=_infer_slice,
    lower=lambda ctx, x, *, starts, limits, strides: lax.slice(
        x, ctx.shape(starts), ctx.shape(limits), strides
    ),
    gradient=_slice_gradient,
    layout=moves(_place_slice),
    fold=lambda x, *, starts, limits, strides: x[tuple(map(slice, starts, limits, strides))],
    cost=picks,
    doc="The elements `starts[i]`, `starts[i] + strides[i]`, ... before `limits[i]` along each "
    "axis i; 0 <= start <= limit <= size, stride >= 1. All dtypes. Source: jax.lax.slice.",
)


def slice_(
    x: Any,
    starts: Sequence[Dim],
    limits: Sequence[Dim],
    strides: Sequence[int] | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """A strided window of `x`: `x[starts[0]:limits[0]:strides[0], ...]`, in range.

    Args:
        x: any tensor.
        starts: the first index along each axis, from 0.
        limits: the index to stop before, at most the size.
        strides: steps, from 1; all 1 by default. `x[::-1]` and `flip` go backwards.

    Raises:
        ShapeError: a window outside `x`. With named sizes this is checked when they are bound.

    Source: jax.lax.slice.
    """
    x = convert(x)
    steps = (1,) * x.ndim if strides is None else tuple(operator.index(s) for s in strides)
    low, high = as_dims("Slice", starts), as_dims("Slice", limits)
    return emit_one(SLICE, (x,), name, starts=low, limits=high, strides=steps)


# -- Pad -------------------------------------------------------------------------------------


def _infer_pad(
    ctx: InferContext, x: TensorType, value: TensorType, *, pads: tuple[Triple, ...]
) -> TensorType:
    ctx.require(value.shape == (), f"value must be a scalar, got shape {value.shape}")
    require_one_dtype(ctx, x, value)
    if list(map(len, pads)) != [3] * len(x.shape) or not is_static(*[p[2] for p in pads]):
        ctx.fail(
            f"needs (low, high, interior) for each of the {len(x.shape)} axes, got {pads}",
            hint="gc.pad(x, [(low, high), ...]) has a pair for each axis",
        )
    shape = []
    for dim, (low, high, interior) in zip(x.shape, pads, strict=True):
        size = low + high + (0 if dim == 0 else (dim - 1) * (interior + 1) + 1)
        if interior < 0 or (isinstance(size, int) and size < 0):
            ctx.fail(
                f"size {dim} cannot be padded by ({low}, {high}, {interior})",
                hint="negative amounts remove elements, and no more than there are",
            )
        shape.append(size)
    return TensorType(x.dtype, tuple(shape))


def _pad_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, value = node.inputs
    pads: tuple[Triple, ...] = node.attrs["pads"]
    if any(not isinstance(p, int) or p < 0 for low, high, _ in pads for p in (low, high)):
        # Removed elements have no adjoint: zeros are inserted in their place.
        dy_window = pad_with(dy, 0, [(-low, -high, 0) for low, high, _ in pads])
        starts: list[Dim] = [0] * len(pads)
    else:
        dy_window, starts = dy, [low for low, _, _ in pads]
    limits = [
        start + (0 if dim == 0 else (dim - 1) * (interior + 1) + 1)
        for start, dim, (_, _, interior) in zip(starts, x.type.shape, pads, strict=True)
    ]
    dx = slice_(dy_window, starts, limits, [interior + 1 for _, _, interior in pads])
    graph = value.graph
    producer = graph.find_producer(value) if graph is not None else None
    if producer is not None and producer.op is CONSTANT:
        return [dx, None]
    return [dx, ctx.ops.reduce_sum(dy) - ctx.ops.reduce_sum(dx)]


def _pad_layout(ctx: LayoutContext, node: Node, x: Layout, value: Layout) -> LayoutPlan:
    if x == SUM:  # linear in the pair of x and value
        return LayoutPlan([SUM, SUM], [SUM])
    if isinstance(x, Sharded) and node.attrs["pads"][x.axis] == (0, 0, 0):
        return LayoutPlan([x, REPLICATED], [x])
    return replicated(ctx, node, x, value)


def _fold_pad(x: Any, value: Any, *, pads: tuple[Any, ...]) -> Any:
    spread = [
        n + max(n - 1, 0) * interior for n, (_, _, interior) in zip(x.shape, pads, strict=True)
    ]
    inner = np.full(spread, value, x.dtype)
    inner[tuple(slice(None, None, interior + 1) for _, _, interior in pads)] = x
    sizes = [low + n + high for n, (low, high, _) in zip(spread, pads, strict=True)]
    result = np.full(sizes, value, x.dtype)
    kept = [
        (max(low, 0), max(-low, 0), min(n + low, size) - max(low, 0))
        for n, size, (low, _, _) in zip(spread, sizes, pads, strict=True)
    ]
    if all(count > 0 for _, _, count in kept):
        to = tuple(slice(start, start + count) for start, _, count in kept)
        result[to] = inner[tuple(slice(start, start + count) for _, start, count in kept)]
    return result


PAD = rearrangement(
    "Pad(x, value) -> y",
    attrs={"pads": Attr("pairs", doc="(low, high, interior) for each axis")},
    infer=_infer_pad,
    lower=lambda ctx, x, value, *, pads: lax.pad(x, value, [ctx.shape(triple) for triple in pads]),
    gradient=_pad_gradient,
    layout=_pad_layout,
    fold=_fold_pad,
    doc="x with `value` around it: for each axis `low` before, `high` after (negative: elements "
    "are removed) and `interior` between neighbours. All dtypes. Source: jax.lax.pad.",
)


def pad_with(
    x: Any, value: Any, pads: Sequence[Sequence[Dim]], *, name: str | None = None
) -> Tensor:
    """`x` with the scalar `value` around it and between its elements.

    Args:
        x: any tensor.
        value: a number or a scalar tensor; cast to the dtype of `x`.
        pads: (low, high, interior) for each axis; negative low and high remove elements.

    Raises:
        ShapeError: not a triple for each axis, or more elements are removed than exist.

    Source: jax.lax.pad.
    """
    x = convert(x)
    triples = tuple(as_dims("Pad", triple) for triple in pads)
    return emit_one(PAD, (x, to_dtype(value, x.type.dtype)), name, pads=triples)


# -- Reverse ---------------------------------------------------------------------------------


def _infer_reverse(ctx: InferContext, x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    for axis in axes:
        ctx.require(0 <= axis < len(x.shape), f"axis {axis} is out of range")
    return x


REVERSE = rearrangement(
    "Reverse(x) -> y",
    attrs={"axes": Attr("ints")},
    infer=_infer_reverse,
    lower=lambda ctx, x, *, axes: lax.rev(x, axes),
    gradient=lambda ctx, node, dy: [flip(dy, node.attrs["axes"])],
    layout=moves(lambda ctx, node, axis: None if axis in node.attrs["axes"] else (axis, None)),
    fold=lambda x, *, axes: np.flip(x, axes),
    doc="x reversed along `axes`. All dtypes. Source: numpy.flip.",
)


def flip(
    x: TensorLike, axis: int | Sequence[int] | None = None, *, name: str | None = None
) -> Tensor:
    """`x` reversed along `axis`, by default along all axes. Source: numpy.flip.

    Examples:
        >>> run(gc.flip([1, 2, 3]))
        Array([3, 2, 1], dtype=int32)
    """
    x = convert(x)
    return emit_one(REVERSE, (x,), name, axes=normalize_axes("Reverse", x, axis))


OPS: tuple[OpDef, ...] = (SLICE, PAD, REVERSE)
