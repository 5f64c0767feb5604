"""What operators on stacks of matrices [..., m, n] share: checks, layouts, small helpers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from graphc.ir.dims import Dim
from graphc.ir.dtypes import DType, is_complex
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.shape import swapaxes
from graphc.ops.core.declaring import Declaration, operator
from graphc.ops.core.defining import Fields, Record, define
from graphc.ops.core.layout_rules import SUM, follow_axis, output_axis, replicated
from graphc.ops.elementwise.comparison import equal
from graphc.ops.elementwise.complex_parts import conj
from graphc.ops.matrices.batch_dims import of_each
from graphc.typing import TensorLike

__all__ = ["matrix_transpose"]

DTYPES = "float32, float64 and complex dtypes."


def has_lapack(dtype: DType) -> bool:
    """Whether there are linear algebra routines for `dtype`."""
    return dtype.name in ("float32", "float64", "complex64", "complex128")


def check_matrices(ctx: InferContext, *types: TensorType) -> None:
    """Raises unless each operand is a stack of matrices of a dtype with routines."""
    for position, type in enumerate(types):
        label = ctx.op.operand_label(position)
        ctx.require(
            has_lapack(type.dtype),
            f"{label} must be float32, float64 or complex, got {type.dtype.name}",
            hint='gc.cast(x, "float32") first',
            dtype=True,
        )
        ctx.require(type.rank >= 2, f"{label} must be a matrix [..., m, n], got {type}")


def check_square(ctx: InferContext, a: TensorType) -> Dim:
    """The side of the square matrices `a`. Raises if they are not square."""
    check_matrices(ctx, a)
    return ctx.unify(
        a.shape[-2],
        a.shape[-1],
        "the sides of a matrix that must be square",
        hint="gc.linalg.lstsq, pinv and svd take matrices that are not square",
    )


def infer_square(ctx: InferContext, a: TensorType) -> TensorType:
    """Inference for operators that map each square matrix to a square matrix."""
    check_square(ctx, a)
    return a


def lesser(ctx: InferContext, m: Dim, n: Dim) -> Dim:
    """The lesser of two sizes. Raises if a named size leaves it open."""
    m, n = ctx.constraints.find(m), ctx.constraints.find(n)
    if m == n:
        return m
    if not (isinstance(m, int) and isinstance(n, int)):
        ctx.fail(
            f"the result has min({m}, {n}) columns, which a named size leaves open",
            hint="declare both sizes of the matrix as ints",
        )
    return min(m, n)


def matrix_transpose(x: TensorLike, *, name: str | None = None) -> Tensor:
    """`x` [..., m, n] with its last two axes exchanged. Source: numpy.linalg.matrix_transpose.

    Examples:
        >>> run(gc.linalg.matrix_transpose([[1, 2], [3, 4]]))
        Array([[1, 3],
               [2, 4]], dtype=int32)
    """
    return swapaxes(x, -1, -2, name=name)


def adjoint(a: Tensor) -> Tensor:
    """The conjugate transpose of each matrix."""
    transposed = matrix_transpose(a)
    return conj(transposed) if is_complex(a.type.dtype) else transposed


def on_diagonal(a: Tensor) -> Tensor:
    """A mask of the diagonal of the matrices `a`: bool [m, n]."""
    sides = a.type.shape[-2:]
    return equal(iota(sides, 0), iota(sides, 1))


def matrix_operator(schema: str, **fields: Unpack[Record]) -> OpDef:
    """The record of an operator on matrices [..., m, n] that works on each matrix of the stack by
    itself. It computes in float32 at least. The arguments are those of `define`."""
    fields["layout"] = of_each(2)
    return define(schema, precision="wide", **fields)


def matrix_function(
    name: str,
    signature: str = "",
    *,
    infer: Callable[..., Any],
    lower: Callable[..., Any],
    **fields: Unpack[Fields],
) -> Declaration:
    """Declares an operator like those of `matrix_operator`, of the dtypes with routines. The
    arguments are those of `operator`."""
    fields["layout"] = of_each(2)
    return operator(
        name, signature, infer=infer, lower=lower, precision="wide", dtypes=DTYPES, **fields
    )


def solve_layout(ctx: LayoutContext, node: Node, a: Layout, b: Layout) -> LayoutPlan:
    """The layout of x in `a x = b`: the batch axes broadcast, and the columns of b are
    independent."""
    layouts: Sequence[Layout] = (a, b)
    shapes = [t.type.shape for t in node.inputs]
    result = node.outputs[0].type.shape
    if b == SUM and a == REPLICATED:
        return LayoutPlan([a, b], [SUM])
    if b == Sharded(len(shapes[1]) - 1):
        return LayoutPlan([REPLICATED, b], [Sharded(len(result) - 1)])
    axis = output_axis(layouts, shapes, result)
    if axis is None or axis >= len(result) - 2:
        return replicated(ctx, node, a, b)
    return LayoutPlan([follow_axis(s, result, axis) for s in shapes], [Sharded(axis)])
