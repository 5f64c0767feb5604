"""The shape of one tensor: reshape, transpose, broadcast, and functions composed of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import lax

from graphc.errors import AttributeValueError
from graphc.ir.dims import Shape, product
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Partial, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.reshape_sizes import common_factor, never_equal, remaining_size, text_of
from graphc.ops.core.axes import normalize_axes, normalize_axis
from graphc.ops.core.broadcasting import unbroadcast
from graphc.ops.core.checks import as_dims, insertion_axis, refuse
from graphc.ops.core.cost_rules import free
from graphc.ops.core.defining import rearrangement
from graphc.ops.core.emit import convert, emit_one
from graphc.ops.core.layout_rules import local_dims, moves
from graphc.ops.core.sizes import SHAPE
from graphc.typing import ShapeLike, TensorLike

__all__ = [
    "broadcast_to",
    "expand_dims",
    "flatten",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "squeeze",
    "swapaxes",
    "transpose",
]

Placed = tuple[int, Mapping[str, Any] | None] | None


# -- Reshape ---------------------------------------------------------------------------------


def _infer_reshape(ctx: InferContext, x: TensorType, *, shape: Shape) -> TensorType:
    if x.shape != shape:
        find = ctx.constraints.find
        old, new = find(product(x.shape)), find(product(shape))
        if old != new:
            common = common_factor(old, new)
            old_rest, new_rest = old // common, new // common
            if never_equal(old_rest, new_rest) or not ctx.constraints.unify(old_rest, new_rest):
                ctx.fail(
                    f"{old} elements do not fit the shape {text_of(shape)}, which holds {new}",
                    hint="the sizes must multiply to the same number; -1 is computed from the "
                    "others",
                )
    return TensorType(x.dtype, shape)


def _place_reshape(ctx: LayoutContext, node: Node, axis: int) -> Placed:
    """The axis of the result whose pieces have the same elements as the pieces along `axis`.

    In row-major order a piece has one run of elements for each index of the axes before `axis`. The
    same holds for an axis of the result with as many elements before it, if it divides evenly.
    """
    old, new = node.inputs[0].type.shape, node.attrs["shape"]
    before = product(old[:axis])
    for i, dim in enumerate(new):
        divides = dim == old[axis] or (isinstance(dim, int) and dim % ctx.replicas == 0)
        if divides and product(new[:i]) == before:
            return i, {"shape": local_dims(new, i, ctx.replicas)}
    return None


RESHAPE = rearrangement(
    "Reshape(x) -> y",
    attrs={"shape": SHAPE},
    infer=_infer_reshape,
    lower=lambda ctx, x, *, shape: lax.reshape(x, ctx.shape(shape)),
    gradient=lambda ctx, node, dy: [reshape(dy, node.inputs[0].type.shape)],
    layout=moves(_place_reshape),
    fold=lambda x, *, shape: np.reshape(x, shape),
    cost=free,
    doc="The elements of x, in row-major order, under `shape`. All dtypes. Source: numpy.reshape.",
)


def reshape(x: TensorLike, shape: ShapeLike, *, name: str | None = None) -> Tensor:
    """The elements of `x`, in row-major order, under `shape`. All dtypes.

    Args:
        x: any tensor.
        shape: ints and named sizes. One may be -1: it is computed from the others.

    Raises:
        ShapeError: the numbers of elements differ, or -1 has no value.

    Source: numpy.reshape.

    Examples:
        >>> run(gc.reshape([1, 2, 3, 4], (2, -1)))
        Array([[1, 2],
               [3, 4]], dtype=int32)
    """
    x = convert(x)
    dims = as_dims("Reshape", shape)
    wildcards = [i for i, dim in enumerate(dims) if dim == -1]
    if wildcards:
        if len(wildcards) > 1:
            refuse(
                f"Reshape: more than one -1 in {text_of(dims)}",
                hint="one size can follow from the others: (x.shape[0], -1)",
                x=x,
            )
        i = wildcards[0]
        dims = (*dims[:i], remaining_size(x, dims[:i] + dims[i + 1 :], dims), *dims[i + 1 :])
    return emit_one(RESHAPE, (x,), name, shape=dims)


def reshaped(x: Tensor, shape: Shape) -> Tensor:
    """`x` under `shape`; itself if it already has this shape."""
    return x if x.type.shape == shape else reshape(x, shape)


def ravel(x: TensorLike, *, name: str | None = None) -> Tensor:
    """`x` as one axis, in row-major order. All dtypes. Source: numpy.ravel.

    Examples:
        >>> run(gc.ravel([[1, 2], [3, 4]]))
        Array([1, 2, 3, 4], dtype=int32)
    """
    return reshape(x, (-1,), name=name)


def flatten(x: TensorLike, start_axis: int = 0, *, name: str | None = None) -> Tensor:
    """`x` with the axes from `start_axis` on merged into one; `start_axis=1` keeps the batch.

    Raises:
        AttributeValueError: `start_axis` is out of range.

    Examples:
        >>> run(gc.flatten([[1, 2], [3, 4]]))
        Array([1, 2, 3, 4], dtype=int32)
    """
    x = convert(x)
    axis = normalize_axis("Reshape", x, start_axis) if x.ndim else 0
    return reshape(x, (*x.type.shape[:axis], product(x.type.shape[axis:])), name=name)


def expand_dims(x: TensorLike, axis: int | Sequence[int], *, name: str | None = None) -> Tensor:
    """`x` with axes of size 1 at the positions `axis` of the result. Source: numpy.expand_dims.

    Examples:
        >>> gc.expand_dims([1, 2], 0).shape
        (1, 2)
    """
    x = convert(x)
    wanted = list(axis) if isinstance(axis, Iterable) else [axis]
    rank = x.ndim + len(wanted)
    new = {insertion_axis("Reshape", x, a, rank) for a in wanted}
    if len(new) != len(wanted):
        refuse(f"Reshape: an axis occurs twice in {wanted}", error=AttributeValueError, x=x)
    dims = iter(x.type.shape)
    return reshape(x, tuple(1 if i in new else next(dims) for i in range(rank)), name=name)


def squeeze(
    x: TensorLike, axis: int | Sequence[int] | None = None, *, name: str | None = None
) -> Tensor:
    """`x` without the axes `axis`, which have size 1; by default without all such axes.

    Raises:
        ShapeError: one of the axes has another size. A named size is never 1.

    Source: numpy.squeeze.

    Examples:
        >>> gc.squeeze(gc.zeros((1, 3, 1))).shape
        (3,)
    """
    x = convert(x)
    shape = x.type.shape
    if axis is None:
        return reshape(x, tuple(dim for dim in shape if dim != 1), name=name)
    axes = normalize_axes("Reshape", x, axis)
    for i in axes:
        if shape[i] != 1:
            refuse(
                f"Reshape: axis {i} has size {shape[i]}, not 1, and cannot be squeezed",
                hint=f"x[{':, ' * i}0] is the first of {shape[i]} slices; gc.reshape merges axes",
                x=x,
            )
    return reshape(x, tuple(dim for i, dim in enumerate(shape) if i not in axes), name=name)


def one_axis(op: str, x: TensorLike, axis: int | None) -> tuple[Tensor, int]:
    """`x` and the position of `axis`. If `axis` is None, `x` is raveled first, as in NumPy.

    Args:
        op: the name of the operator, for the error.

    Raises:
        AttributeValueError: the axis is out of range.
    """
    tensor = convert(x)
    if axis is None:
        return ravel(tensor), 0
    return tensor, normalize_axis(op, tensor, axis)


# -- Transpose -------------------------------------------------------------------------------


def _infer_transpose(ctx: InferContext, x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
    if sorted(perm) != list(range(len(x.shape))):
        ctx.fail(
            f"axes {perm} are not a permutation of the {len(x.shape)} axes of x",
            hint="name each axis once",
        )
    return TensorType(x.dtype, tuple(x.shape[i] for i in perm))


TRANSPOSE = rearrangement(
    "Transpose(x) -> y",
    attrs={"perm": Attr("ints")},
    infer=_infer_transpose,
    lower=lambda ctx, x, *, perm: lax.transpose(x, perm),
    gradient=lambda ctx, node, dy: [transpose(dy, np.argsort(node.attrs["perm"]).tolist())],
    layout=moves(lambda ctx, node, axis: (node.attrs["perm"].index(axis), None)),
    fold=lambda x, *, perm: np.transpose(x, perm),
    doc="Axis i of the result is axis `perm[i]` of x. All dtypes. Source: numpy.transpose.",
)


def transpose(
    x: TensorLike, axes: Sequence[int] | None = None, *, name: str | None = None
) -> Tensor:
    """`x` with its axes in the order `axes`, reversed by default.

    Raises:
        AttributeValueError: an axis is out of range.
        ShapeError: `axes` does not name each axis once.

    Source: numpy.transpose.

    Examples:
        >>> run(gc.transpose([[1, 2], [3, 4]]))
        Array([[1, 3],
               [2, 4]], dtype=int32)
    """
    x = convert(x)
    rank = x.ndim
    perm = range(rank)[::-1] if axes is None else [normalize_axis("Transpose", x, a) for a in axes]
    return emit_one(TRANSPOSE, (x,), name, perm=tuple(perm))


permute_dims = transpose


def swapaxes(x: TensorLike, axis1: int, axis2: int, *, name: str | None = None) -> Tensor:
    """`x` with two axes exchanged. Source: numpy.swapaxes.

    Examples:
        >>> gc.swapaxes(gc.zeros((2, 3, 4)), 0, 2).shape
        (4, 3, 2)
    """
    x = convert(x)
    a, b = normalize_axis("Transpose", x, axis1), normalize_axis("Transpose", x, axis2)
    perm = list(range(x.ndim))
    perm[a], perm[b] = b, a
    return transpose(x, perm, name=name)


def moveaxis(
    x: TensorLike,
    source: int | Sequence[int],
    destination: int | Sequence[int],
    *,
    name: str | None = None,
) -> Tensor:
    """`x` with the axes `source` at the positions `destination`. The others keep their order.

    Raises:
        AttributeValueError: an axis is out of range or occurs twice, or the numbers of axes differ.

    Source: numpy.moveaxis.

    Examples:
        >>> gc.moveaxis(gc.zeros((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    x = convert(x)
    sources, places = (
        [normalize_axis("Transpose", x, a) for a in (s if isinstance(s, Iterable) else (s,))]
        for s in (source, destination)
    )
    if len(set(sources)) != len(places) or len(set(places)) != len(sources):
        refuse(
            f"Transpose: cannot move axes {sources} to {places}",
            error=AttributeValueError,
            x=x,
            hint="name each axis and each position once, with as many positions as axes",
        )
    perm = [i for i in range(x.ndim) if i not in sources]
    for place, axis in sorted(zip(places, sources, strict=True)):
        perm.insert(place, axis)
    return transpose(x, perm, name=name)


# -- BroadcastTo -----------------------------------------------------------------------------


def _infer_broadcast_to(ctx: InferContext, x: TensorType, *, shape: Shape) -> TensorType:
    lead = len(shape) - len(x.shape)
    fits = lead >= 0
    for dim, wanted in zip(x.shape, shape[max(lead, 0) :], strict=False):
        fits = fits and (dim == 1 or dim == wanted or ctx.constraints.unify(dim, wanted))
    if not fits:
        ctx.fail(
            f"shape {text_of(x.shape)} does not broadcast to {text_of(shape)}",
            hint="each dim of x, counted from the right, must be 1 or equal",
        )
    return TensorType(x.dtype, shape)


def _broadcast_layout(ctx: LayoutContext, node: Node, x: Layout) -> LayoutPlan:
    old, shape = node.inputs[0].type.shape, node.attrs["shape"]
    if isinstance(x, Sharded) and old[x.axis] != 1:
        axis = x.axis + len(shape) - len(old)
        local = {"shape": local_dims(shape, axis, ctx.replicas)}
        return LayoutPlan([x], [Sharded(axis)], local)
    if isinstance(x, Partial) and product(old) == product(shape):
        return LayoutPlan([x], [x])
    # A partial sum is completed here, where it is smaller than after the repetition.
    return LayoutPlan([REPLICATED], [REPLICATED])


BROADCAST_TO = rearrangement(
    "BroadcastTo(x) -> y",
    attrs={"shape": SHAPE},
    infer=_infer_broadcast_to,
    lower=lambda ctx, x, *, shape: lax.broadcast_in_dim(
        x, ctx.shape(shape), tuple(range(len(shape) - x.ndim, len(shape)))
    ),
    gradient=lambda ctx, node, dy: [unbroadcast(ctx, dy, node.inputs[0])],
    layout=_broadcast_layout,
    fold=lambda x, *, shape: np.broadcast_to(x, shape),
    doc="x repeated along new leading axes and axes of size 1 to `shape`. All dtypes. "
    "Source: numpy.broadcast_to.",
)


def broadcast_to(x: TensorLike, shape: ShapeLike, *, name: str | None = None) -> Tensor:
    """`x` repeated along new leading axes and along axes of size 1, to `shape`.

    Raises:
        ShapeError: a dim of `x`, counted from the right, is neither 1 nor equal.

    Source: numpy.broadcast_to.

    Examples:
        >>> run(gc.broadcast_to([1, 2], (2, 2)))
        Array([[1, 2],
               [1, 2]], dtype=int32)
    """
    dims = as_dims("BroadcastTo", shape)
    return emit_one(BROADCAST_TO, (convert(x),), name, shape=dims)


OPS: tuple[OpDef, ...] = (RESHAPE, TRANSPOSE, BROADCAST_TO)
