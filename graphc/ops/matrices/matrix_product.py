"""MatMul, with NumPy's batching, and functions that use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from graphc.ir.costs import CostContext, dims_of
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import expand_dims, ravel, reshape
from graphc.ops.core.broadcasting import Adjoints, broadcast_axes, require_one_dtype, unbroadcast
from graphc.ops.core.checks import known_alike, refuse
from graphc.ops.core.defining import define
from graphc.ops.core.emit import emit_one, promote_operands
from graphc.ops.elementwise.arithmetic import multiply
from graphc.ops.matrices.contraction import dot_general
from graphc.ops.matrices.matrix_costs import product
from graphc.ops.matrices.products import Role, lower_product, product_layout, wide_dtype
from graphc.typing import TensorLike

__all__ = ["matmul", "outer"]


def _matrix_axes(rank: int, transposed: bool, *, left: bool) -> tuple[int, int]:
    """The free and the contracted axis of an operand."""
    free, contracted = (rank - 2, rank - 1) if left else (rank - 1, rank - 2)
    return (contracted, free) if transposed else (free, contracted)


def _infer_matmul(
    ctx: InferContext, a: TensorType, b: TensorType, *, transpose_a: bool, transpose_b: bool
) -> TensorType:
    require_one_dtype(ctx, a, b)
    if len(a.shape) < 2 or len(b.shape) < 2:
        ctx.fail(
            "both operands need two axes or more",
            hint="x[:, None] is a column, x[None] a row; gc.dot multiplies vectors",
        )
    free_a, inner_a = _matrix_axes(len(a.shape), transpose_a, left=True)
    free_b, inner_b = _matrix_axes(len(b.shape), transpose_b, left=False)
    columns, rows = a.shape[inner_a], b.shape[inner_b]
    hint = f"b needs {columns} rows to follow a; gc.transpose or gc.reshape one of them"
    ctx.unify(columns, rows, "inner dimensions", hint=hint)
    batch = ctx.broadcast(a.shape[:-2], b.shape[:-2])
    return TensorType(a.dtype, (*batch, a.shape[free_a], b.shape[free_b]))


def _repeated(own: Sequence[Any], other: Sequence[Any]) -> list[int]:
    """The batch axes of `own` with size 1 for which `other` has a larger size."""
    shift = len(other) - len(own)
    return [i for i, dim in enumerate(own) if i + shift >= 0 and dim == 1 and other[i + shift] != 1]


def _lower_matmul(
    ctx: LowerContext, a: Any, b: Any, *, transpose_a: bool, transpose_b: bool
) -> Any:
    """A single dot: batch axes that only one operand has become free axes of that operand."""
    batch_a, batch_b = a.shape[:-2], b.shape[:-2]
    a = lax.squeeze(a, dropped_a) if (dropped_a := _repeated(batch_a, batch_b)) else a
    b = lax.squeeze(b, dropped_b) if (dropped_b := _repeated(batch_b, batch_a)) else b
    rank = max(len(batch_a), len(batch_b))
    # The batch axes of the result that each operand holds, in the order of the operand.
    of_a = [i + rank - len(batch_a) for i in range(len(batch_a)) if i not in dropped_a]
    of_b = [i + rank - len(batch_b) for i in range(len(batch_b)) if i not in dropped_b]
    both = [o for o in of_a if o in of_b]
    _, inner_a = _matrix_axes(a.ndim, transpose_a, left=True)
    _, inner_b = _matrix_axes(b.ndim, transpose_b, left=False)
    batch = ([of_a.index(o) for o in both], [of_b.index(o) for o in both])
    result = lower_product(ctx, a, b, (([inner_a], [inner_b]), batch))
    only_a, only_b = ([o for o in of if o not in both] for of in (of_a, of_b))
    order = [*both, *only_a, rank, *only_b, rank + 1]
    return result if order == sorted(order) else lax.transpose(result, np.argsort(order))


def _matmul_gradient(ctx: GradientContext, node: Node, dc: Tensor) -> Adjoints:
    a, b = node.inputs
    ta, tb = node.attrs["transpose_a"], node.attrs["transpose_b"]
    return [
        _matmul_adjoint(ctx, a, b, (b, tb), (dc, True))
        if ta
        else _matmul_adjoint(ctx, a, b, (dc, False), (b, not tb)),
        _matmul_adjoint(ctx, b, a, (dc, True), (a, ta))
        if tb
        else _matmul_adjoint(ctx, b, a, (a, not ta), (dc, False)),
    ]


def _matmul_adjoint(
    ctx: GradientContext,
    target: Tensor,
    other: Tensor,
    left: tuple[Tensor, bool],
    right: tuple[Tensor, bool],
) -> Tensor:
    """The product of `left` and `right`, each (tensor, transposed), summed to the target."""
    (p, tp), (q, tq) = left, right
    full = (q if p is other else p).type.shape[:-2]
    summed = broadcast_axes(target.type.shape[:-2], full)
    if not summed or not known_alike(other.type.shape[:-2], full, other):
        return unbroadcast(ctx, matmul(p, q, transpose_a=tp, transpose_b=tq), target)
    # Contract over the axes along which the target was repeated, instead of summing later.
    _, inner_p = _matrix_axes(p.ndim, tp, left=True)
    _, inner_q = _matrix_axes(q.ndim, tq, left=False)
    kept = [i for i in range(len(full)) if i not in summed]
    product = dot_general(p, q, ((*summed, inner_p), (*summed, inner_q)), (kept, kept))
    if product.ndim == target.ndim:
        return product
    return reshape(product, target.type.shape)


def _matmul_layout(ctx: LayoutContext, node: Node, a: Layout, b: Layout) -> LayoutPlan:
    shapes = [t.type.shape for t in node.inputs]
    flags = (node.attrs["transpose_a"], node.attrs["transpose_b"])
    rank = max(map(len, shapes))
    roles = []
    for i, shape in enumerate(shapes):
        other = shapes[1 - i]
        shift = len(other) - len(shape)
        axes: list[Role] = []
        for axis in range(len(shape) - 2):
            matched = axis + shift >= 0 and other[axis + shift] != 1
            axes.append(Role(axis + rank - len(shape), axis + shift if matched else None))
        free, inner = _matrix_axes(len(shape), flags[i], left=i == 0)
        _, inner_other = _matrix_axes(len(other), flags[1 - i], left=i == 1)
        matrix = {free: Role(rank - 2 + i, None), inner: Role(None, inner_other)}
        roles.append([*axes, *(matrix[axis] for axis in sorted(matrix))])
    return product_layout(ctx, node, roles, (a, b))


def _fold_matmul(a: Any, b: Any, *, transpose_a: bool, transpose_b: bool) -> Any:
    wide = wide_dtype(a.dtype)
    left = np.swapaxes(a, -1, -2) if transpose_a else a
    right = np.swapaxes(b, -1, -2) if transpose_b else b
    return np.matmul(left.astype(wide), right.astype(wide)).astype(a.dtype)


def _matmul_cost(ctx: CostContext, node: Node) -> int:
    shape = dims_of(node.inputs[0])
    return product(node, shape[-2 if node.attrs["transpose_a"] and len(shape) > 1 else -1])


MATMUL = define(
    "MatMul(a, b) -> c",
    precision="narrow",
    attrs={"transpose_a": Attr("bool", default=False), "transpose_b": Attr("bool", default=False)},
    infer=_infer_matmul,
    lower=_lower_matmul,
    gradient=_matmul_gradient,
    layout=_matmul_layout,
    fold=_fold_matmul,
    cost=_matmul_cost,
    doc="The matrix products of the last two axes, transposed first according to the flags; the "
    "axes before them broadcast. One dtype, any. Source: numpy.matmul.",
)


def matmul(
    a: TensorLike,
    b: TensorLike,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """The matrix product `a @ b`; axes before the last two broadcast.

    Args:
        a: [..., m, k], or [k]; [..., k, m] with `transpose_a`.
        b: [..., k, n], or [k]; [..., n, k] with `transpose_b`.
        transpose_a, transpose_b: exchange the last two axes first; no effect on one axis.
        name: of the node.

    Returns:
        [..., m, n], without the axis m or n that an operand of one axis lacks. Dtypes promote.

    Raises:
        ShapeError: the inner dimensions differ, or a scalar.

    Source: numpy.matmul.

    Examples:
        >>> run(gc.matmul([[1, 2], [3, 4]], [[1], [1]]))
        Array([[3],
               [7]], dtype=int32)
    """
    a, b = promote_operands(a, b)
    if a.ndim >= 2 and b.ndim >= 2:
        return emit_one(MATMUL, (a, b), name, transpose_a=transpose_a, transpose_b=transpose_b)
    if not a.ndim or not b.ndim:
        refuse("MatMul: an operand is a scalar", a=a, b=b, hint="use a * b")
    inner_a = 0 if a.ndim == 1 else _matrix_axes(a.ndim, transpose_a, left=True)[1]
    inner_b = 0 if b.ndim == 1 else _matrix_axes(b.ndim, transpose_b, left=False)[1]
    return dot_general(a, b, ((inner_a,), (inner_b,)), name=name)


def outer(a: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """The product of each element of `a` and each element of `b`, both raveled. Source:
    numpy.outer.

    Examples:
        >>> run(gc.outer([1, 2], [3, 4]))
        Array([[3, 4],
               [6, 8]], dtype=int32)
    """
    a, b = ravel(a), ravel(b)
    return multiply(expand_dims(a, 1), expand_dims(b, 0), name=name)


OPS: tuple[OpDef, ...] = (MATMUL,)
