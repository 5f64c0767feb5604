"""Operands that hold a stack of matrices or vectors, with equal batch dimensions."""

from __future__ import annotations

from graphc.ir.layouts import LayoutRule
from graphc.ir.opdef import InferContext
from graphc.ir.types import TensorType
from graphc.ops.core.layout_rules import same_axis


def check_stack(ctx: InferContext, *operands: tuple[TensorType, int]) -> None:
    """Raises unless the operands have one dtype and equal batch dimensions before the last axes.
    The operands are pairs (type, number of last axes)."""
    (first, own), *others = operands
    stack = first.shape[: first.rank - own]
    for other, axes in others:
        ctx.require(other.dtype == first.dtype, f"dtypes differ: {first} and {other}", dtype=True)
        ctx.require(
            other.rank - axes == len(stack),
            f"{other} has not as many axes as {first} before its last {axes}",
        )
        for a, b in zip(stack, other.shape, strict=False):
            ctx.unify(a, b, "sizes of the stacks")


def of_each(axes: int) -> LayoutRule:
    """The layout rule of operators whose operands and results all have the same batch dimensions.

    `axes`: how many axes of the first operand follow the batch dimensions.
    """

    return same_axis(lambda node, axis: axis < node.inputs[0].ndim - axes)
