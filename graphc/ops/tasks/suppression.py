"""Non-maximum suppression: of boxes that overlap, the one with the highest score."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import size_of
from graphc.ir.dtypes import INT32, is_floating
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import require_one_dtype
from graphc.ops.core.defining import at_least, without_gradient
from graphc.ops.core.emit import emit, promote_inexact
from graphc.ops.core.layout_rules import replicated
from graphc.ops.core.precision import summed
from graphc.typing import TensorLike

__all__ = ["non_max_suppression"]


def _infer(
    ctx: InferContext, boxes: TensorType, scores: TensorType, *, size: int, **attrs: Any
) -> tuple[TensorType, TensorType]:
    ctx.require_dtype([boxes, scores], is_floating, "floating")
    require_one_dtype(ctx, boxes, scores)
    ctx.require(
        boxes.rank > 1 and boxes.shape[-1] == 4 and scores.rank == boxes.rank - 1,
        f"boxes must be [..., n, 4] and scores [..., n], got {boxes} and {scores}",
    )
    ctx.require(scores.shape[-1] != 0, "there are no boxes")
    batch = [
        ctx.unify(a, b, "sizes of boxes and scores")
        for a, b in zip(boxes.shape[:-1], scores.shape, strict=True)
    ][:-1]
    return TensorType(INT32, (*batch, size)), TensorType(INT32, tuple(batch))


def _lower(
    ctx: LowerContext, boxes: Any, scores: Any, *, size: int, overlap: float, threshold: float
) -> tuple[Any, Any]:
    never = np.array(-np.inf, scores.dtype)

    def select(boxes: Any, scores: Any) -> tuple[Any, Any]:
        ends = _ends(boxes)

        def turn(i: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
            left, found = state
            best = jnp.argmax(left)
            is_one = left[best] > never
            shared = _overlap(ends, [end[best] for end in ends])
            left = jnp.where(shared > overlap, never, left).at[best].set(never)
            return left, found.at[i].set(jnp.where(is_one, best.astype(np.int32), -1))

        left = jnp.where(scores > threshold, scores, never)  # false for NaN
        _, found = lax.fori_loop(0, size, turn, (left, jnp.full((size,), -1, np.int32)))
        return found, jnp.sum(found >= 0, dtype=np.int32)

    for _ in range(scores.ndim - 1):
        select = jax.vmap(select)
    return select(boxes, scores)


def _ends(boxes: Any) -> list[Any]:
    """Top, left, bottom and right of boxes that are given by two opposite corners."""
    first, second = boxes[..., :2], boxes[..., 2:]
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    return [low[..., 0], low[..., 1], high[..., 0], high[..., 1]]


def _overlap(a: list[Any], b: list[Any]) -> Any:
    """The area of the intersection divided by the area of the union; 0 for empty boxes."""
    height = jnp.maximum(jnp.minimum(a[2], b[2]) - jnp.maximum(a[0], b[0]), 0)
    width = jnp.maximum(jnp.minimum(a[3], b[3]) - jnp.maximum(a[1], b[1]), 0)
    shared = height * width
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return jnp.where(shared > 0, shared / jnp.where(union > 0, union, 1), 0)


def _layout(ctx: LayoutContext, node: Node, boxes: Layout, scores: Layout) -> LayoutPlan:
    for layout in (scores, boxes):
        if isinstance(layout, Sharded) and layout.axis < node.inputs[1].ndim - 1:
            return LayoutPlan([layout, layout], [layout, layout])
    return replicated(ctx, node, boxes, scores)


NON_MAX_SUPPRESSION = without_gradient(
    "NonMaxSuppression(boxes, scores) -> indices, count",
    attrs={
        "size": at_least(1, "be positive", doc="how many to choose"),
        "overlap": Attr(
            "float",
            default=0.5,
            check=lambda v: 0 <= v <= 1,
            must="lie between 0 and 1",
            doc="the largest intersection over union that a box may have with a chosen box",
        ),
        "threshold": Attr(
            "float",
            default=-math.inf,
            check=lambda v: not math.isnan(v),
            must="be a number",
            doc="the value that a score must exceed",
        ),
    },
    infer=_infer,
    lower=summed(_lower),
    layout=_layout,
    # Each chosen box: the greatest score, and its overlap with all boxes (15 operations).
    cost=lambda ctx, node: 16 * int(node.attrs["size"]) * size_of(node.inputs[1]),
    doc="The indices (int32) of the boxes [..., n, 4] with the highest scores [..., n], without "
    "boxes that overlap an earlier one too much: [..., size], padded with -1; and their number. "
    "Floating dtypes. Source: Girshick et al., 2014, arXiv:1311.2524; TensorFlow's "
    "`tf.image.non_max_suppression_padded`.",
)


def non_max_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    size: int,
    overlap: float = 0.5,
    threshold: float = -math.inf,
    *,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The boxes with the highest scores, without those that overlap a better one.

    Args:
        boxes: [..., n, 4]: two opposite corners of each, a row and a column, in any unit.
        scores: [..., n]; NaN is never chosen.
        size: how many boxes to choose at most.
        overlap: a box is left out if its intersection over union with a chosen box exceeds this.
        threshold: a box is left out if its score does not exceed this.
        name: of the node.

    Returns:
        Their indices, [..., size], int32, the highest score first, padded with -1; and their
        number, [...], int32.

    Raises:
        ShapeError: wrong shapes, or no boxes.
        AttributeValueError: a size that is not positive, an overlap outside [0, 1].
        DTypeError: complex numbers.

    Source: TensorFlow's `tf.image.non_max_suppression_padded`.

    Examples:
        >>> run(
        ...     gc.nn.non_max_suppression(
        ...         [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.9]], [0.5, 0.9], size=1
        ...     )
        ... )
        (Array([1], dtype=int32), Array(1, dtype=int32))
    """
    attrs: dict[str, Any] = {"size": size, "overlap": float(overlap), "threshold": float(threshold)}
    operands = promote_inexact(boxes, scores)
    indices, count = emit(NON_MAX_SUPPRESSION, operands, name=name, **attrs)
    return indices, count


OPS: tuple[OpDef, ...] = (NON_MAX_SUPPRESSION,)
