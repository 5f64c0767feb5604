"""The greatest few along an axis, found fast and nearly always."""

from __future__ import annotations

from typing import Any

from jax import lax

from graphc.ir.costs import CostContext, size_of
from graphc.ir.dtypes import INT32, is_floating
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.along_axis import scatter_add_along_axis
from graphc.ops.arrays.creation import zeros_like
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.cost_rules import comparisons
from graphc.ops.core.emit import convert, emit
from graphc.ops.core.layout_rules import map_axis
from graphc.ops.core.precision import in_wider

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
) -> tuple[Any, Any]:
    search = lax.approx_min_k if smallest else lax.approx_max_k
    values, indices = search(x, k, recall_target=recall_target)
    return values, indices


def _gradient(
    ctx: GradientContext, node: Node, dy: Tensor | None, dindices: Tensor | None
) -> Adjoints:
    if dy is None:
        return [None]
    return [scatter_add_along_axis(zeros_like(node.inputs[0]), node.outputs[1], dy, -1)]


def _not_last(node: Node, axis: int) -> int | None:
    return None if axis == node.inputs[0].ndim - 1 else axis


def _cost(ctx: CostContext, node: Node) -> int:
    """Each element is compared with a heap of the k greatest so far."""
    return comparisons(size_of(node.inputs[0]), node.attrs["k"])


APPROX_TOP_K = OpDef(
    name="ApproxTopK",
    signature="x -> y, indices",
    precision="follow",
    attrs={
        "k": Attr("int", check=lambda k: k > 0, must="be positive"),
        "recall_target": Attr(
            "float",
            default=0.95,
            check=lambda share: 0 < share <= 1,
            must="be more than 0 and at most 1",
            doc="the share of the k that is to be found, on average",
        ),
        "smallest": Attr("bool", default=False, doc="the least instead"),
    },
    infer=_infer,
    lower=in_wider(_lower),
    gradient=_gradient,
    layout=map_axis(_not_last),
    cost=_cost,
    doc="Nearly the k greatest elements along the last axis, the greatest first, and their places "
    "(int32); all of them on CPU and GPU, where there is no faster way yet. Floats. Source: Chern "
    "et al., TPU-KNN, NeurIPS 2022; jax.lax.approx_max_k.",
)


def approx_top_k(
    x: Any,
    k: int,
    recall_target: float = 0.95,
    *,
    smallest: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Nearly the `k` greatest elements along the last axis, the greatest first; their places.

    Args:
        x: [..., n], floating.
        k: positive, at most n.
        recall_target: the share of them that is to be found, on average.
        smallest: the least instead, the least first.
        name: of the node.

    Returns:
        The elements [..., k], and int32 [..., k].

    Raises:
        ShapeError: a scalar, or fewer than k elements.
        DTypeError: not floating.
        AttributeValueError: k or the share is out of range.

    Source: jax.lax.approx_max_k and approx_min_k.
    """
    values, indices = emit(
        APPROX_TOP_K,
        (convert(x),),
        name=name,
        k=k,
        recall_target=recall_target,
        smallest=smallest,
    )
    return values, indices


OPS: tuple[OpDef, ...] = (APPROX_TOP_K,)
