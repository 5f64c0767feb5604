"""DotGeneral: products summed over any pairs of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from graphc.errors import AttributeValueError
from graphc.ir.costs import dims_of
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import transpose
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import Adjoints, require_one_dtype
from graphc.ops.core.checks import refuse
from graphc.ops.core.defining import define
from graphc.ops.core.emit import emit_one, promote_operands
from graphc.ops.matrices.matrix_costs import product
from graphc.ops.matrices.products import Role, lower_product, product_layout, wide_dtype
from graphc.typing import TensorLike

__all__ = ["dot_general", "tensordot"]

Axes = tuple[int, ...]


def _free(rank: int, *taken: Axes) -> list[int]:
    return [i for i in range(rank) if not any(i in axes for axes in taken)]


def _infer_dot_general(
    ctx: InferContext,
    a: TensorType,
    b: TensorType,
    *,
    lhs_contract: Axes,
    rhs_contract: Axes,
    lhs_batch: Axes,
    rhs_batch: Axes,
) -> TensorType:
    lc, rc, lb, rb = lhs_contract, rhs_contract, lhs_batch, rhs_batch
    require_one_dtype(ctx, a, b)
    for label, type, axes in (("a", a, lc + lb), ("b", b, rc + rb)):
        if len(set(axes)) != len(axes) or not all(0 <= i < len(type.shape) for i in axes):
            ctx.fail(
                f"axes {axes} of {label}: an axis is out of range or named twice",
                hint=f"{label} has {len(type.shape)} axes; name each once",
            )
    if len(lc) != len(rc) or len(lb) != len(rb):
        ctx.fail(
            "a and b must have equal numbers of contracted axes and of batch axes",
            hint="an axis of a is paired with one of b",
        )
    for i, j in zip(lc, rc, strict=True):
        ctx.unify(
            a.shape[i],
            b.shape[j],
            "contracted dimensions",
            hint="axes that are multiplied must have one size; a.T reverses the axes of a",
        )
    batch = [
        ctx.unify(a.shape[i], b.shape[j], "batch dimensions") for i, j in zip(lb, rb, strict=True)
    ]
    free_a = [a.shape[i] for i in _free(len(a.shape), lc, lb)]
    free_b = [b.shape[i] for i in _free(len(b.shape), rc, rb)]
    return TensorType(a.dtype, (*batch, *free_a, *free_b))


def _lower_dot_general(ctx: LowerContext, a: Any, b: Any, **attrs: Axes) -> Any:
    lc, rc, lb, rb = (attrs[k] for k in DOT_GENERAL.attrs)
    leading = tuple(range(len(lc)))
    if len(lc) > 1 and not lb and lc == rc == leading:
        # Merge the contracted axes. For several axes, XLA on CPU would copy an operand to merge
        # them.
        a, b = lax.collapse(a, 0, len(lc)), lax.collapse(b, 0, len(lc))
        lc = rc = (0,)
    return lower_product(ctx, a, b, ((lc, rc), (lb, rb)))


def _dot_general_gradient(ctx: GradientContext, node: Node, dc: Tensor) -> Adjoints:
    a, b = node.inputs
    lc, rc, lb, rb = (node.attrs[k] for k in DOT_GENERAL.attrs)
    batch = tuple(range(len(lb)))
    free_a = _free(a.ndim, lc, lb)
    of_a = tuple(range(len(lb), len(lb) + len(free_a)))  # positions of a's free axes in the result
    of_b = tuple(range(len(lb) + len(free_a), dc.ndim))
    return [
        _dot_adjoint(dc, b, (of_b, _free(b.ndim, rc, rb)), (batch, rb), lb, lc, rc, free_a),
        _dot_adjoint(dc, a, (of_a, free_a), (batch, lb), rb, rc, lc, _free(b.ndim, rc, rb)),
    ]


def _dot_adjoint(
    dc: Tensor,
    other: Tensor,
    contracting: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]],
    own_batch: Axes,
    own_contract: Axes,
    other_contract: Axes,
    own_free: Sequence[int],
) -> Tensor:
    """The adjoint of one operand: `dc` times the `other`, with axes in the order of the operand.

    The product retains the axes of `other` that were contracted, in the order of `other`.
    """
    left = [own_contract[i] for i in np.argsort(other_contract)]
    order = [*own_batch, *left, *own_free]
    if order == sorted(order):
        return dot_general(other, dc, contracting[::-1], batch[::-1])
    product = dot_general(dc, other, contracting, batch)
    order = [*own_batch, *own_free, *left]
    return product if order == sorted(order) else transpose(product, np.argsort(order).tolist())


def _dot_general_layout(ctx: LayoutContext, node: Node, a: Layout, b: Layout) -> LayoutPlan:
    lc, rc, lb, rb = (node.attrs[k] for k in DOT_GENERAL.attrs)
    roles = []
    first = len(lb)
    for tensor, (own_c, other_c), (own_b, other_b) in zip(
        node.inputs, ((lc, rc), (rc, lc)), ((lb, rb), (rb, lb)), strict=True
    ):
        axes = {i: Role(None, j) for i, j in zip(own_c, other_c, strict=True)}
        axes |= {i: Role(k, j) for k, (i, j) in enumerate(zip(own_b, other_b, strict=True))}
        for axis in _free(tensor.ndim, own_c, own_b):
            axes[axis] = Role(first, None)
            first += 1
        roles.append([axes[axis] for axis in sorted(axes)])
    return product_layout(ctx, node, roles, (a, b))


def _fold_dot_general(a: Any, b: Any, **attrs: Axes) -> Any:
    lc, rc, lb, rb = (attrs[k] for k in DOT_GENERAL.attrs)
    wide = wide_dtype(a.dtype)
    of_a = list(range(a.ndim))
    of_b = list(range(a.ndim, a.ndim + b.ndim))
    for i, j in zip(lc + lb, rc + rb, strict=True):
        of_b[j] = i
    out = [*lb, *_free(a.ndim, lc, lb), *(of_b[i] for i in _free(b.ndim, rc, rb))]
    return np.einsum(a.astype(wide), of_a, b.astype(wide), of_b, out).astype(a.dtype)


DOT_GENERAL = define(
    "DotGeneral(a, b) -> c",
    precision="narrow",
    attrs={
        "lhs_contract": Attr("ints"),
        "rhs_contract": Attr("ints"),
        "lhs_batch": Attr("ints", default=()),
        "rhs_batch": Attr("ints", default=()),
    },
    infer=_infer_dot_general,
    lower=_lower_dot_general,
    gradient=_dot_general_gradient,
    layout=_dot_general_layout,
    fold=_fold_dot_general,
    cost=lambda ctx, node: product(
        node, math.prod(dims_of(node.inputs[0])[axis] for axis in node.attrs["lhs_contract"])
    ),
    doc="Products summed over pairs of contracted axes, one axis of each operand. The batch axes "
    "also form pairs. Axes of the result: batch, the others of a, the others of b. One dtype, "
    "any. Source: jax.lax.dot_general.",
)


def dot_general(
    a: TensorLike,
    b: TensorLike,
    contracting: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    *,
    name: str | None = None,
) -> Tensor:
    """Products of `a` and `b` summed over pairs of axes.

    Args:
        a: any tensor.
        b: any tensor; dtypes promote.
        contracting: the axes of `a` and those of `b` to sum over, in pairs.
        batch: the batch axes of `a` and those of `b`, in pairs.
        name: of the node.

    Returns:
        A tensor with the batch axes, then the other axes of `a`, then those of `b`.

    Raises:
        ShapeError: sizes differ, or an axis is named twice.
        AttributeValueError: an axis is out of range.

    Source: jax.lax.dot_general.

    Examples:
        >>> run(gc.dot_general([[1, 2], [3, 4]], [1, 1], contracting=((1,), (0,))))
        Array([3, 7], dtype=int32)
    """
    a, b = promote_operands(a, b)
    return emit_one(
        DOT_GENERAL,
        (a, b),
        name,
        lhs_contract=tuple(normalize_axis("DotGeneral", a, i) for i in contracting[0]),
        rhs_contract=tuple(normalize_axis("DotGeneral", b, i) for i in contracting[1]),
        lhs_batch=tuple(normalize_axis("DotGeneral", a, i) for i in batch[0]),
        rhs_batch=tuple(normalize_axis("DotGeneral", b, i) for i in batch[1]),
    )


def tensordot(
    a: TensorLike,
    b: TensorLike,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    name: str | None = None,
) -> Tensor:
    """Products of `a` and `b` summed over axes.

    Args:
        a: any tensor.
        b: any tensor; dtypes promote.
        axes: the number of last axes of `a` and first axes of `b`; or the axes of each operand.
        name: of the node.

    Raises:
        ShapeError: sizes differ.
        AttributeValueError: more axes than an operand has, or one out of range.

    Source: numpy.tensordot.

    Examples:
        >>> run(gc.tensordot([[1, 2], [3, 4]], [[1, 1], [1, 1]]))
        Array(10, dtype=int32)
    """
    a, b = promote_operands(a, b)
    if isinstance(axes, Sequence):
        pair = [[side] if isinstance(side, int) else list(side) for side in axes]
        if len(pair) != 2:
            refuse(f"DotGeneral: axes must be a number or a pair, got {axes!r}", a=a, b=b)
        return dot_general(a, b, (pair[0], pair[1]), name=name)
    if not 0 <= axes <= min(a.ndim, b.ndim):
        refuse(f"DotGeneral: cannot sum over {axes} axes", error=AttributeValueError, a=a, b=b)
    return dot_general(a, b, (range(a.ndim - axes, a.ndim), range(axes)), name=name)


OPS: tuple[OpDef, ...] = (DOT_GENERAL,)
