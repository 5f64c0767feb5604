"""The greatest elements along an axis, found fast with high probability."""

from __future__ import annotations

from typing import Any

from jax import lax

from graphc.ir.dtypes import INT32, is_floating
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.defining import at_least, define
from graphc.ops.core.emit import convert, emit
from graphc.ops.core.layout_rules import not_last, same_axis
from graphc.ops.core.precision import in_wider
from graphc.ops.reductions.sorting import top_k_cost, top_k_gradient
from graphc.typing import TensorLike

__all__ = ["approx_top_k"]


def _infer(
    ctx: InferContext, x: TensorType, *, k: int, recall_target: float, smallest: bool
) -> tuple[TensorType, TensorType]:
    ctx.require_dtype((x,), is_floating, "floating (JAX's limit)")
    ctx.require(x.rank > 0, "x must have an axis, got a scalar")
    size = x.shape[-1]
    ctx.require(not isinstance(size, int) or k <= size, f"k is {k} of {size} elements")
    shape = (*x.shape[:-1], k)
    return TensorType(x.dtype, shape), TensorType(INT32, shape)


def _lower(
    ctx: LowerContext, x: Any, *, k: int, recall_target: float, smallest: bool
) -> tuple[Any, ...]:
    search = lax.approx_min_k if smallest else lax.approx_max_k
    return tuple(search(x, k, recall_target=recall_target))


APPROX_TOP_K = define(
    "ApproxTopK(x) -> y, indices",
    precision="follow",
    attrs={
        "k": at_least(1, "be positive"),
        "recall_target": Attr(
            "float",
            default=0.95,
            check=lambda share: 0 < share <= 1,
            must="be more than 0 and at most 1",
            doc="the fraction of the k elements to find, on average",
        ),
        "smallest": Attr("bool", default=False, doc="find the smallest instead"),
    },
    infer=_infer,
    lower=in_wider(_lower),
    gradient=top_k_gradient,
    layout=same_axis(not_last),
    cost=top_k_cost,
    doc="Approximately the k greatest elements along the last axis, the greatest first, and their "
    "indices (int32). On CPU and GPU the result is exact, because there is no faster method yet. "
    "Floats. Source: Chern et al., TPU-KNN, NeurIPS 2022; jax.lax.approx_max_k.",
)


def approx_top_k(
    x: TensorLike,
    k: int,
    recall_target: float = 0.95,
    *,
    smallest: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Approximately the `k` greatest elements along the last axis, the greatest first; their
    indices.

    Args:
        x, k: as for `top_k`, but `x` is floating.
        recall_target: the fraction of them to find, on average.
        smallest: find the smallest elements instead, the smallest first.
        name: of the node.

    Returns:
        The results of `top_k`.

    Raises:
        ShapeError: as `top_k`.
        DTypeError: not floating.
        AttributeValueError: k or the recall target is out of range.

    Source: jax.lax.approx_max_k and approx_min_k.

    Examples:
        >>> run(gc.approx_top_k([1.0, 5.0, 3.0], 2))
        (Array([5., 3.], dtype=float32), Array([1, 2], dtype=int32))
    """
    attrs: dict[str, Any] = {"k": k, "recall_target": recall_target, "smallest": smallest}
    values, indices = emit(APPROX_TOP_K, (convert(x),), name=name, **attrs)
    return values, indices


OPS: tuple[OpDef, ...] = (APPROX_TOP_K,)
