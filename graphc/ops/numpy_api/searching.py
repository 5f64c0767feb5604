"""Positions in sorted vectors, and counts based on them: searchsorted, digitize, histogram,
bincount."""

from __future__ import annotations

import numpy as np
from jax import numpy as jnp

from graphc.ir.costs import dims_of, size_of
from graphc.ir.dims import Dim
from graphc.ir.dtypes import INT32
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import ones
from graphc.ops.arrays.shape import broadcast_to, ravel
from graphc.ops.arrays.slicing import flip
from graphc.ops.core.broadcasting import infer_ordered, require_one_dtype
from graphc.ops.core.checks import refuse
from graphc.ops.core.cost_rules import comparisons
from graphc.ops.core.defining import one_of, without_gradient
from graphc.ops.core.emit import convert, emit_one, promote_inexact, promote_operands
from graphc.ops.core.layout_rules import replicated
from graphc.ops.core.precision import in_wider
from graphc.ops.elementwise.arithmetic import divide
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.numpy_api.grids import linspace
from graphc.ops.numpy_api.segments import segment_sum
from graphc.ops.reductions.reduction import reduce_max, reduce_min, reduce_sum
from graphc.typing import TensorLike

__all__ = ["bincount", "digitize", "histogram", "histogram_bin_edges", "searchsorted"]


def _infer_search(ctx: InferContext, x: TensorType, values: TensorType, *, side: str) -> TensorType:
    infer_ordered(ctx, x)
    require_one_dtype(ctx, x, values)
    ctx.require(x.rank == 1, f"x must be a vector, in ascending order; got rank {x.rank}")
    return TensorType(INT32, values.shape)


def _search_layout(ctx: LayoutContext, node: Node, x: Layout, values: Layout) -> LayoutPlan:
    if isinstance(values, Sharded):
        return LayoutPlan([REPLICATED, values], [values])
    return replicated(ctx, node, x, values)


SEARCH_SORTED = without_gradient(
    "SearchSorted(x, values) -> y",
    attrs={"side": one_of("left", "right", default="left")},
    infer=_infer_search,
    lower=in_wider(
        lambda ctx, x, values, *, side: jnp.searchsorted(x, values, side=side).astype(INT32)
    ),
    layout=_search_layout,
    fold=lambda x, values, *, side: np.searchsorted(x, values, side).astype(INT32),
    # The cost of a binary search for each value.
    cost=lambda ctx, node: comparisons(size_of(node.inputs[1]), dims_of(node.inputs[0])[-1]),
    doc="The index (int32) in the ascending vector x at which each value belongs: before "
    'equal elements, or after them for "right". Real dtypes and bool. '
    "Source: numpy.searchsorted.",
)


def searchsorted(
    x: TensorLike, values: TensorLike, side: str = "left", *, name: str | None = None
) -> Tensor:
    """The indices in `x` before which the `values` can be inserted to preserve the order.

    Args:
        x: a vector in ascending order.
        values: real, of any shape.
        side: "left" gives the index before equal elements, "right" the one after them.
        name: of the node.

    Returns:
        Indices from 0 to the size of `x`, int32, in the shape of `values`.

    Raises:
        ShapeError: `x` is not a vector.
        AttributeValueError: another `side`.

    Source: numpy.searchsorted.

    Examples:
        >>> run(gc.searchsorted([1, 3, 5], [3, 4]))
        Array([1, 2], dtype=int32)
    """
    return emit_one(SEARCH_SORTED, promote_operands(x, values), name, side=side)


def digitize(
    x: TensorLike, bins: TensorLike, right: bool = False, *, name: str | None = None
) -> Tensor:
    """The index (int32) of the bin that contains each element.

    Args:
        x: real, of any shape.
        bins: the edges, a vector in ascending or descending order.
        right: whether a bin contains its upper edge instead of the lower one.
        name: of the node.

    Source: numpy.digitize.

    Examples:
        >>> run(gc.digitize([0.5, 2.5], [0.0, 1.0, 2.0]))
        Array([1, 3], dtype=int32)
    """
    x, edges = promote_operands(x, bins)
    side = "left" if right else "right"
    up = searchsorted(edges, x, side)
    down = edges.shape[0] - searchsorted(flip(edges), x, side)
    return where(edges[-1] >= edges[0], up, down, name=name)


def bincount(
    x: TensorLike, length: Dim, weights: TensorLike | None = None, *, name: str | None = None
) -> Tensor:
    """How often each of 0, 1, ..., length - 1 occurs in `x`, or the sum of its weights.

    Args:
        x: integers; those outside this range are ignored.
        length: the number of counts: an int or a named size.
        weights: numeric, of the shape of `x`.
        name: of the node.

    Returns:
        [length], int32 or in the dtype of the weights.

    Source: numpy.bincount, with `length` known.

    Examples:
        >>> run(gc.bincount([0, 2, 2], length=4))
        Array([1, 0, 2, 0], dtype=int32)
    """
    places = ravel(x)
    rows = ones(places.shape, INT32) if weights is None else ravel(weights)
    return segment_sum(rows, places, length, name=name)


def histogram_bin_edges(
    x: TensorLike, bins: TensorLike = 10, range: tuple[TensorLike, TensorLike] | None = None
) -> Tensor:
    """The edges of the bins of `histogram`. Source: numpy.histogram_bin_edges.

    Examples:
        >>> run(gc.histogram_bin_edges([0.0, 4.0], bins=2))
        Array([0., 2., 4.], dtype=float32)
    """
    if not isinstance(bins, int):
        edges = convert(bins)
        if edges.ndim != 1:
            refuse("histogram: bins must be a number or a vector of edges", bins=edges)
        return edges
    (values,) = promote_inexact(x)
    if range is None and 0 in values.shape:
        range = (0, 1)  # as in NumPy
    low, high = (reduce_min(values), reduce_max(values)) if range is None else range
    low, high = promote_operands(low, high, cast_to=values.dtype)
    same = equal(low, high)
    return linspace(where(same, low - 0.5, low), where(same, high + 0.5, high), bins + 1)


def histogram(
    x: TensorLike,
    bins: TensorLike = 10,
    range: tuple[TensorLike, TensorLike] | None = None,
    weights: TensorLike | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """The number of elements of `x` in each bin, and the edges of the bins.

    Args:
        x: real, of any shape.
        bins: a number of equal bins, or a vector [bins + 1] of edges in ascending order. A bin
            contains its lower edge, and the last bin contains both edges. Elements outside are
            ignored.
        range: the least and greatest edge of equal bins; by default those of `x`.
        weights: the weight of each element, of the shape of `x`.
        density: divide by the total and by the widths, to give a density with integral 1.

    Returns:
        The counts [bins]: int32, or in the dtype of the weights, floating for a density; and
        the edges [bins + 1].

    Raises:
        ShapeError: the edges are not a vector, or the weights have another shape.

    Source: numpy.histogram.

    Examples:
        >>> run(gc.histogram([1.0, 2.0, 2.0, 4.0], bins=3))
        (Array([1, 2, 1], dtype=int32), Array([1., 2., 3., 4.], dtype=float32))
    """
    edges = histogram_bin_edges(x, bins, range)
    values, edges = promote_operands(ravel(x), edges)
    number = edges.shape[0] - 1
    places = searchsorted(edges, values, "right") - 1
    places = where(equal(values, edges[-1]), number - 1, places)
    weights = None if weights is None else broadcast_to(weights, convert(x).shape)
    counts = bincount(places, number, weights)
    if not density:
        return counts, edges
    (shares,) = promote_inexact(counts)
    return divide(shares, reduce_sum(shares) * (edges[1:] - edges[:-1])), edges


OPS: tuple[OpDef, ...] = (SEARCH_SORTED,)
