"""Scaled dot-product attention: averages of values, weighted by similarity of query and key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphc.errors import DTypeError
from graphc.ir.costs import CostContext, CostRule, dims_of
from graphc.ir.dims import Shape
from graphc.ir.dtypes import BOOL, is_floating
from graphc.ir.layouts import REPLICATED, Fill, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints, require_one_dtype
from graphc.ops.core.checks import refuse
from graphc.ops.core.defining import adjoint_of, at_least, define
from graphc.ops.core.emit import convert, emit, emit_one, promote_operands
from graphc.ops.core.layout_rules import SUM, follow_axis, replicated
from graphc.ops.draws.dropout import kept_by_dropout
from graphc.ops.draws.random_draws import draw
from graphc.ops.draws.random_keys import check_key
from graphc.ops.nn.attention_kernels import adjoints, attend
from graphc.ops.nn.attention_operands import How, Operands
from graphc.typing import Seed, TensorLike

__all__ = ["attention"]

_ATTRS = {
    "scale": Attr("float", doc="the factor of the products of queries and keys"),
    "causal": Attr("bool", default=False, doc="query i sees the keys 0 to i only"),
    "dropout": Attr(
        "float",
        default=0.0,
        check=lambda v: 0 <= v < 1,
        must="be at least 0 and less than 1",
        doc="the probability that a weight is set to 0; if it is not 0, the last operand is a "
        "random key",
    ),
    "mean_if_blind": Attr(
        "bool",
        default=False,
        doc="whether a query that sees no key gives the mean of all values, as the softmax of "
        "equal logits does, instead of 0",
    ),
    "rows": at_least(
        0,
        "be at least 0",
        default=0,
        doc="how many queries to compute at a time, so that memory is linear in the lengths; 0 "
        "for all",
    ),
    "each_entry": Attr("bool", default=False, doc="compute one entry of the batch at a time"),
    "flash": Attr("bool", default=False, doc="use cuDNN's flash attention, on GPUs only"),
    "alone": Attr(
        "bool", default=False, doc="with cuDNN, store nothing for an AttentionGradient of the call"
    ),
}
_SOURCE = (
    "Source: Vaswani et al., 2017, arXiv:1706.03762; grouped heads: Ainslie et al., 2023, "
    "arXiv:2305.13245; `jax.nn.dot_product_attention`."
)


# -- types ----------------------------------------------------------------------------------


def _pairs(query: Shape, key: Shape) -> Shape:
    """[batch, heads, time, source]: one element for each query and key of a head."""
    return (query[0], query[2], query[1], key[1])


def _result(ctx: InferContext, query: TensorType, key: TensorType, value: TensorType) -> TensorType:
    operands = (query, key, value)
    for position, operand in enumerate(operands):
        label = ctx.op.operand_label(position)
        axes = "[batch, time, heads, depth]"
        ctx.require(
            operand.rank == 4,
            f"{label} must be {axes}, got {operand.rank} axes",
            hint="x[:, :, None, :] is one head; MultiHeadAttention takes [batch, time, features]",
        )
    ctx.require_dtype(operands, is_floating, "floating")
    require_one_dtype(ctx, *operands)
    ctx.unify(query.shape[0], key.shape[0], "batch sizes of query and key")
    ctx.unify(query.shape[3], key.shape[3], "depths of query and key")
    for axis, what in enumerate(("batch sizes", "lengths", "heads")):
        ctx.unify(key.shape[axis], value.shape[axis], f"{what} of key and value")
    heads, shared = query.shape[2], key.shape[2]
    if not (isinstance(heads, int) and isinstance(shared, int)):
        ctx.fail(f"the numbers of heads must be known, got {heads} and {shared}")
    ctx.require(
        shared > 0 and heads % shared == 0,
        f"{heads} heads of query cannot share {shared} heads of key",
    )
    return TensorType(query.dtype, (*query.shape[:3], value.shape[3]))


def _check_masks(ctx: InferContext, full: Shape, masks: Sequence[TensorType]) -> None:
    for mask in masks:
        ctx.require(
            mask.dtype == BOOL or is_floating(mask.dtype),
            f"a mask must be bool, and a bias floating, got {mask.dtype.name}",
            dtype=True,
        )
        shape = ctx.broadcast(full, mask.shape)
        ctx.require(
            len(shape) == 4 and all(a != 1 or b == 1 for a, b in zip(full, shape, strict=True)),
            "masks and biases must broadcast to [batch, heads, time, source] = "
            f"({', '.join(map(str, full))}), got ({', '.join(map(str, mask.shape))})",
        )


def _infer_attention(
    ctx: InferContext,
    query: TensorType,
    key: TensorType,
    value: TensorType,
    *masks: TensorType,
    dropout: float,
    **attrs: Any,
) -> tuple[TensorType, ...]:
    y, full = _result(ctx, query, key, value), _pairs(query.shape, key.shape)
    if not dropout:
        _check_masks(ctx, full, masks)
        return (y,)
    ctx.require(bool(masks), "dropout needs a random key as the last operand")
    check_key(ctx, masks[-1])
    _check_masks(ctx, full, masks[:-1])
    return (y, TensorType(BOOL, full))


# -- values ---------------------------------------------------------------------------------


def _lower_attention(
    ctx: LowerContext, query: Any, key: Any, value: Any, *masks: Any, **attrs: Any
) -> tuple[Any, ...]:
    how = How(**attrs)
    if not how.dropout:
        return (attend(Operands(query, key, value, masks), how),)
    kept = kept_by_dropout(masks[-1], _pairs(query.shape, key.shape), how.dropout)
    return attend(Operands(query, key, value, masks[:-1], kept), how), kept


# -- gradient -------------------------------------------------------------------------------


def _attention_gradient(
    ctx: GradientContext, node: Node, dy: Tensor, *dkept: Tensor | None
) -> Adjoints:
    query, key, value, *masks = node.inputs
    # As with `Dropout`: the gradient reuses the mask of kept weights instead of drawing it again.
    rest = [*masks[:-1], node.outputs[1]] if node.attrs["dropout"] else masks
    found = iter(emit(ATTENTION_GRADIENT, (query, key, value, dy, *rest), **node.attrs))
    return [next(found) if is_floating(t.type.dtype) else None for t in node.inputs]


def _infer_attention_gradient(
    ctx: InferContext,
    query: TensorType,
    key: TensorType,
    value: TensorType,
    dy: TensorType,
    *masks: TensorType,
    **attrs: Any,
) -> tuple[TensorType, ...]:
    y = _result(ctx, query, key, value)
    ctx.unify_types(dy, y, "dy")
    _check_masks(ctx, _pairs(query.shape, key.shape), masks)
    return (query, key, value, *[mask for mask in masks if is_floating(mask.dtype)])


def _lower_attention_gradient(
    ctx: LowerContext, query: Any, key: Any, value: Any, dy: Any, *masks: Any, **attrs: Any
) -> tuple[Any, ...]:
    how = How(**attrs)
    masks, kept = (masks[:-1], masks[-1]) if how.dropout else (masks, None)
    return adjoints(Operands(query, key, value, masks, kept, dy), how)


# -- layouts --------------------------------------------------------------------------------


def _cut(ctx: LayoutContext, node: Node, operands: Sequence[Layout]) -> int | None:
    """The axis along which query, key and value may all be sharded: the batch or the heads."""
    axes = {layout.axis for layout in operands if isinstance(layout, Sharded)}
    if 0 in axes:
        return 0
    _, _, shared, _ = node.inputs[1].type.shape
    whole = isinstance(shared, int) and shared % ctx.replicas == 0
    return 2 if 2 in axes and whole else None


def _mask_layouts(node: Node, masks: Sequence[Tensor], axis: int) -> list[Layout]:
    query, key = (tensor.type.shape for tensor in node.inputs[:2])
    full = _pairs(query, key)
    return [follow_axis(mask.type.shape, full, 0 if axis == 0 else 1) for mask in masks]


def _attention_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    axis = _cut(ctx, node, operands[:3])
    if axis is None:
        return replicated(ctx, node, *operands)
    cut = [Sharded(axis)] * 3
    if not node.attrs["dropout"]:
        return LayoutPlan([*cut, *_mask_layouts(node, node.inputs[3:], axis)], cut[:1])
    masks = _mask_layouts(node, node.inputs[3:-1], axis)
    kept = Sharded(0 if axis == 0 else 1)
    last = len(operands) - 1
    return LayoutPlan([*cut, *masks, REPLICATED], [*cut[:1], kept], fold_replica=(last,))


def _attention_gradient_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    axis = _cut(ctx, node, operands[:4])
    if axis is None:
        return replicated(ctx, node, *operands)
    masks = _mask_layouts(node, node.inputs[4:], axis)
    biases = [
        SUM if layout == REPLICATED else layout  # each replica has one term
        for layout, mask in zip(masks, node.inputs[4:], strict=True)
        if mask.type.dtype != BOOL
    ]
    cut = [Sharded(axis)] * 4
    fills: dict[int, Fill] = dict.fromkeys(range(4), "sum")  # 0 * NaN would be NaN
    for i, (layout, mask) in enumerate(zip(masks, node.inputs[4:], strict=True), 4):
        if isinstance(layout, Sharded) and mask.type.dtype != BOOL:
            fills[i] = "sum"
    return LayoutPlan([*cut, *masks], [*cut[:3], *biases], fill=fills)


def _products(of_depth: int, of_width: int) -> CostRule:
    """The cost of products over all pairs of queries and keys: so many of the depth of queries, and
    so many of the depth of values."""

    def cost(ctx: CostContext, node: Node) -> int:
        batch, time, heads, depth = dims_of(node.inputs[0])
        _, source, _, width = dims_of(node.inputs[2])
        return 2 * batch * heads * time * source * (of_depth * depth + of_width * width)

    return cost


ATTENTION = define(
    "Attention(query, key, value, *masks) -> y, *kept",
    precision="narrow",
    attrs=_ATTRS,
    infer=_infer_attention,
    lower=_lower_attention,
    gradient=_attention_gradient,
    layout=_attention_layout,
    cost=_products(1, 1),  # of queries and keys, and of weights and values
    doc="softmax(scale * query @ key^T) @ value for each head: query [batch, time, heads, depth], "
    "key and value [batch, source, heads / n, depth], where n heads share one; the result is "
    "[batch, time, heads, depth of value]. Masks broadcast to [batch, heads, time, source]. Bool "
    "masks select the keys that a query sees (if there is none, the result is 0); floating masks "
    "are added before the softmax. With `dropout`, the last operand is a random key, and a second "
    f"result marks the kept weights. Floating dtypes; narrow ones are summed in float32. {_SOURCE}",
)

ATTENTION_GRADIENT = adjoint_of(
    ATTENTION,
    "AttentionGradient(query, key, value, dy, *masks) -> dquery, dkey, dvalue, *dbiases",
    infer=_infer_attention_gradient,
    lower=_lower_attention_gradient,
    layout=_attention_gradient_layout,
    # The weights are recomputed; then their adjoints, and a product for each operand.
    cost=_products(3, 2),
    doc="The adjoints of Attention's floating operands; the weights are recomputed. With "
    "`dropout`, the last operand marks the kept weights.",
)


# -- functions ------------------------------------------------------------------------------


def attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    *,
    mask: TensorLike | None = None,
    bias: TensorLike | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Scaled dot-product attention: averages of the values, weighted by the similarity of each
    query to the keys.

    Args:
        query: [batch, time, heads, depth], floating.
        key: [batch, source, key heads, depth]; each of its heads is shared by heads / key heads
            consecutive heads of `query`.
        value: [batch, source, key heads, depth of the result].
        mask: bool, broadcasting to [batch, heads, time, source]: True where a query sees a key. A
            query that sees no key gives 0. A mask of two axes is rejected: write [batch, source] as
            mask[:, None, None, :], and [time, source] as mask[None, None].
        bias: floating, added before the softmax. Its shape follows the rules for the mask.
        causal: query i sees the keys 0 to i only.
        scale: the factor of the products; 1 / sqrt(depth) by default.
        dropout: the probability that a weight is set to 0. The other weights are scaled up.
        seed: of the dropout, see `gc.random.random_key`.

    Returns:
        [batch, time, heads, depth of value].

    Raises:
        ShapeError: sizes differ, heads cannot be shared, the mask does not broadcast or has two
            axes, or there is no scale and the depth is not known.
        DTypeError: operands or the bias are not floating, or the mask is not bool.
        AttributeValueError: the dropout is out of range.

    Source: Vaswani et al., 2017, arXiv:1706.03762; `jax.nn.dot_product_attention`.

    Examples:
        >>> q = gc.ones((2, 5, 4, 8))  # [batch, time, heads, depth]
        >>> gc.nn.attention(q, q, q, causal=True).shape
        (2, 5, 4, 8)
    """
    operands = (*promote_operands(query, key, value), *_masks(mask, bias))
    attrs = {"scale": _scale(operands[0], scale), "causal": causal, "dropout": dropout}
    if dropout == 0:
        return emit_one(ATTENTION, operands, name=name, **attrs)
    return draw(ATTENTION, operands, (), seed, name, **attrs)[0]


def _masks(mask: Any, bias: Any) -> list[Tensor]:
    """The given ones of mask and bias. The operator distinguishes them by their dtypes."""
    masks = []
    to_add = "compare it, as in mask != 0; to add it to the logits, pass bias="
    to_select = "to select the keys that a query sees, pass mask=, of bools"
    for label, given, fits, words, hint in (
        ("mask", mask, lambda dtype: dtype == BOOL, "bool", to_add),
        ("bias", bias, is_floating, "floating", to_select),
    ):
        if given is None:
            continue
        masks.append(convert(given))
        rows: dict[str, Any] = {label: masks[-1]}
        if not fits(masks[-1].dtype):
            refuse(
                f"Attention: the {label} must be {words}, got {masks[-1].dtype.name}",
                error=DTypeError,
                hint=hint,
                **rows,
            )
        if masks[-1].ndim == 2:  # [batch, source] would broadcast as [time, source]
            refuse(
                f"Attention: a {label} of two axes may be [batch, source] or [time, source]",
                hint=f"say which: {label}[:, None, None, :] if it is [batch, source], "
                f"{label}[None, None] if it is [time, source]",
                **rows,
            )
    return masks


def _scale(query: Tensor, scale: float | None) -> float:
    if scale is not None:
        return float(scale)
    depth = query.shape[-1] if query.ndim else 1
    if isinstance(depth, int):
        return 1 / math.sqrt(depth)
    refuse(
        f"Attention: the scale depends on the depth {depth!s}, which is not known yet",
        query=query,
        hint="give scale=",
    )


OPS: tuple[OpDef, ...] = (ATTENTION, ATTENTION_GRADIENT)
