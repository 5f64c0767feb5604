"""Products of groups of rows with one matrix for each group: mixtures of experts."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import CostContext, dims_of
from graphc.ir.dtypes import is_floating, is_integer
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Replicated, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.defining import define
from graphc.ops.core.emit import convert, emit_one, promote_operands
from graphc.ops.core.jvp_override import with_slope_of
from graphc.ops.core.layout_rules import SUM, replicated
from graphc.ops.core.precision import in_wider, wide_integer
from graphc.ops.core.ranges import in_range
from graphc.ops.matrices.matrix_checks import matrix_transpose
from graphc.typing import TensorLike

__all__ = ["ragged_dot"]


def _check(
    ctx: InferContext, a: TensorType, b: TensorType, rank: int, group_sizes: TensorType
) -> None:
    ctx.require_dtype(
        (a, b), lambda d: is_floating(d) or is_integer(d), "floating or integers (JAX's limit)"
    )
    ctx.require(a.dtype == b.dtype, f"dtypes differ: {a} and {b}", dtype=True)
    whole = is_integer(group_sizes.dtype)
    ctx.require(whole, f"group_sizes must be integers, got {group_sizes}", dtype=True)
    ctx.require(a.rank == 2, f"a must be a matrix [m, k], got {a}")
    ctx.require(b.rank == rank, f"b must have {rank} axes, got {b}")
    ctx.require(group_sizes.rank == 1, f"group_sizes must be a vector [g], got {group_sizes}")


def _infer_dot(
    ctx: InferContext, a: TensorType, b: TensorType, group_sizes: TensorType
) -> TensorType:
    _check(ctx, a, b, 3, group_sizes)
    ctx.unify(a.shape[1], b.shape[1], "inner dimensions")
    ctx.unify(b.shape[0], group_sizes.shape[0], "the numbers of matrices and of groups")
    return TensorType(a.dtype, (a.shape[0], b.shape[2]))


def _counts(group_sizes: Any) -> Any:
    """The group sizes, in a dtype wide enough for their sum."""
    return group_sizes.astype(wide_integer(np.dtype(group_sizes.dtype)))


def _dot_gradient(ctx: GradientContext, node: Node, dc: Tensor) -> Adjoints:
    a, b, sizes = node.inputs
    da = emit_one(RAGGED_DOT, (dc, matrix_transpose(b), sizes))
    return [da, emit_one(RAGGED_OUTER, (a, dc, sizes)), None]


def _dot_layout(
    ctx: LayoutContext, node: Node, a: Layout, b: Layout, group_sizes: Layout
) -> LayoutPlan:
    """Columns of b are independent, and contracted axes give partial sums. Rows are not sharded,
    because groups would cross the boundaries."""
    if b == Sharded(2):
        return LayoutPlan([REPLICATED, b, REPLICATED], [Sharded(1)])
    if a == Sharded(1) or b == Sharded(1):
        fill = {0: "sum", 1: "sum"}
        return LayoutPlan([Sharded(1), Sharded(1), REPLICATED], [SUM], fill=fill)
    return _of_sums(ctx, node, a, b, group_sizes)


def _of_sums(
    ctx: LayoutContext, node: Node, a: Layout, b: Layout, group_sizes: Layout
) -> LayoutPlan:
    """A product is linear in each operand while the other is replicated."""
    whole = isinstance(group_sizes, Replicated)
    if whole and SUM in (a, b) and REPLICATED in (a, b):
        return LayoutPlan([a, b, group_sizes], [SUM])
    return replicated(ctx, node, a, b, group_sizes)


def _dot_cost(ctx: CostContext, node: Node) -> int:
    """Each row is multiplied by one matrix only: 2 m k n, as if all rows were in groups."""
    m, k = dims_of(node.inputs[0])
    return 2 * m * k * dims_of(node.inputs[1])[-1]


RAGGED_DOT = define(
    "RaggedDot(a, b, group_sizes) -> c",
    precision="narrow",
    infer=_infer_dot,
    lower=in_wider(lambda ctx, a, b, group_sizes: lax.ragged_dot(a, b, _counts(group_sizes))),
    gradient=_dot_gradient,
    layout=_dot_layout,
    cost=_dot_cost,
    doc="Rows of a [m, k] times matrices of b [g, k, n]: the first group_sizes[0] rows times the "
    "first matrix, the next times the second, ...; rows beyond the groups give zeros. Floats and "
    "integers. Source: jax.lax.ragged_dot; Gale et al., MegaBlocks, MLSys 2023.",
)


def _infer_outer(
    ctx: InferContext, a: TensorType, b: TensorType, group_sizes: TensorType
) -> TensorType:
    _check(ctx, a, b, 2, group_sizes)
    ctx.unify(a.shape[0], b.shape[0], "the numbers of rows")
    return TensorType(a.dtype, (group_sizes.shape[0], a.shape[1], b.shape[1]))


_BY_GROUPS_OF_ROWS = lax.RaggedDotDimensionNumbers(
    dot_dimension_numbers=(((0,), (0,)), ((), ())),
    lhs_ragged_dimensions=(0,),
    rhs_group_dimensions=(),
)


def _by_masks(a: Any, b: Any, group_sizes: Any) -> Any:
    ends = jnp.cumsum(group_sizes)
    rows = jnp.arange(a.shape[0])[:, None]
    member = (rows >= ends - group_sizes) & (rows < ends)
    return jnp.einsum("mg,mk,mn->gkn", member.astype(a.dtype), a, b)


def _by_groups(a: Any, b: Any, group_sizes: Any) -> Any:
    return lax.ragged_dot_general(a, b, group_sizes, _BY_GROUPS_OF_ROWS)


# JAX lacks a derivative of this mode, which is needed to differentiate this lowering.
_outer = with_slope_of(_by_masks, _by_groups)


def _outer_gradient(ctx: GradientContext, node: Node, dc: Tensor) -> Adjoints:
    a, b, sizes = node.inputs
    da = emit_one(RAGGED_DOT, (b, matrix_transpose(dc), sizes))
    return [da, emit_one(RAGGED_DOT, (a, dc, sizes)), None]


def _outer_layout(
    ctx: LayoutContext, node: Node, a: Layout, b: Layout, group_sizes: Layout
) -> LayoutPlan:
    """Columns of a and of b are independent. Rows are not sharded, because groups would cross the
    boundaries."""
    if a == Sharded(1):
        return LayoutPlan([a, REPLICATED, REPLICATED], [Sharded(1)])
    if b == Sharded(1):
        return LayoutPlan([REPLICATED, b, REPLICATED], [Sharded(2)])
    return _of_sums(ctx, node, a, b, group_sizes)


RAGGED_OUTER = define(
    "RaggedOuter(a, b, group_sizes) -> c",
    precision="narrow",
    infer=_infer_outer,
    lower=in_wider(lambda ctx, a, b, group_sizes: _outer(a, b, _counts(group_sizes))),
    gradient=_outer_gradient,
    layout=_outer_layout,
    cost=_dot_cost,
    doc="a^T b [g, k, n] for each group of rows of a [m, k] and b [m, n]; group i has "
    "group_sizes[i] rows. This is the gradient of RaggedDot with respect to its matrices. Floats "
    "and integers. Source: jax.lax.ragged_dot_general.",
)


def ragged_dot(
    a: TensorLike, b: TensorLike, group_sizes: TensorLike, *, name: str | None = None
) -> Tensor:
    """Rows, sorted by group, times the matrix of their group, as in a mixture of experts.

    Args:
        a: [m, k]: the rows of group 0, then those of group 1, ...
        b: [g, k, n]: a matrix for each group; dtypes promote.
        group_sizes: integers [g], not negative: how many rows each group has. Rows beyond all
            groups give zeros.
        name: of the node.

    Returns:
        [m, n].

    Raises:
        ShapeError: sizes that do not fit.
        DTypeError: complex numbers or bools, or group sizes that are not integers.

    Source: jax.lax.ragged_dot.

    Examples:
        >>> run(gc.ragged_dot([[1.0], [2.0], [3.0]], [[[1.0]], [[10.0]]], [1, 2]))
        Array([[ 1.],
               [20.],
               [30.]], dtype=float32)
    """
    a, b = promote_operands(a, b)
    sizes = convert(group_sizes)
    if a.ndim:  # else the operator rejects it
        sizes = in_range(sizes, 0, a.shape[0] + 1, "group_sizes", of="ragged_dot")
    return emit_one(RAGGED_DOT, (a, b, sizes), name)


OPS: tuple[OpDef, ...] = (RAGGED_DOT, RAGGED_OUTER)
