"""Broadcasting of types and of JAX values, and its reversal in gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from jax import lax

from graphc.ir.dims import Dim, Shape
from graphc.ir.dtypes import DType, is_floating, is_inexact, is_integer
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext
from graphc.ir.types import TensorType

Adjoints = list[Tensor | None]


def infer_broadcast(ctx: InferContext, *operands: TensorType) -> TensorType:
    """One dtype, shapes that broadcast."""
    first = operands[0]
    for other in operands[1:]:  # the common cases: one type, and scalars on the right
        if other != first and (other.shape or other.dtype != first.dtype):
            break
    else:
        return first
    require_one_dtype(ctx, *operands)
    return TensorType(first.dtype, ctx.broadcast(*[t.shape for t in operands]))


def infer_of(allowed: Callable[[DType], bool], words: str) -> Callable[..., TensorType]:
    """`infer_broadcast` for operands whose dtype is `allowed`. `words` describe these dtypes."""

    def infer(ctx: InferContext, *operands: TensorType) -> TensorType:
        if not allowed(operands[0].dtype):
            ctx.require_dtype(operands, allowed, words)
        return infer_broadcast(ctx, *operands)

    return infer


def is_numeric(dtype: DType) -> bool:
    """Whether values of `dtype` are numbers: all dtypes except bool."""
    return dtype.kind != "b"


def is_real(dtype: DType) -> bool:
    """Whether values of `dtype` are ordered: all dtypes except complex ones."""
    return dtype.kind != "c"


infer_numeric = infer_of(is_numeric, "numeric")
infer_ordered = infer_of(is_real, "real or bool")
infer_real = infer_of(lambda dtype: dtype.kind not in "bc", "integer or floating")
infer_integer = infer_of(is_integer, "integers")
infer_inexact = infer_of(is_inexact, "floating or complex")
infer_floating = infer_of(is_floating, "floating")


def joint_shape(shapes: Sequence[Shape]) -> Shape | None:
    """The shape that the shapes broadcast to, or None. A named size never counts as 1.

    Of two names, the first is used; `broadcast_to` then requires that they are equal.
    """
    result: list[Dim] = []
    for sizes in zip_longest(*[shape[::-1] for shape in shapes], fillvalue=1):
        others = [size for size in dict.fromkeys(sizes) if size != 1]
        known = [size for size in others if isinstance(size, int)]
        if len(known) > 1:
            return None
        result.insert(0, (known or others or [1])[0])
    return tuple(result)


def require_one_dtype(ctx: InferContext, *operands: TensorType) -> None:
    """Raises `DTypeError` unless all operands have one dtype."""
    dtype = operands[0].dtype
    for other in operands[1:]:
        if other.dtype != dtype:
            names = " and ".join(t.dtype.name for t in operands)
            ctx.require(False, f"operands must have one dtype, got {names}", dtype=True)


def align(x: Any, y: Any) -> tuple[Any, Any]:
    """Two JAX values as `jax.lax` requires them: with the same rank, or one of them a scalar.

    `jax.lax` broadcasts scalars and axes of size 1 itself. Calling it instead of `jax.numpy` halves
    the tracing time.
    """
    rank, other = len(x.shape), len(y.shape)
    if rank == other or rank == 0 or other == 0:
        return x, y
    if rank < other:
        return lax.broadcast_to_rank(x, other), y
    return x, lax.broadcast_to_rank(y, rank)


def broadcast_all(*values: Any) -> list[Any]:
    """JAX values broadcast to their common shape."""
    shapes = [value.shape for value in values]
    if all(shape == shapes[0] for shape in shapes):
        return list(values)
    result = lax.broadcast_shapes(*shapes)
    rank = len(result)
    return [
        value
        if value.shape == result
        else lax.broadcast_in_dim(value, result, range(rank - len(value.shape), rank))
        for value in values
    ]


def unbroadcast(ctx: GradientContext, adjoint: Tensor, like: Tensor) -> Tensor:
    """`adjoint` summed to the shape of `like`, which had been broadcast to the adjoint's shape."""
    if adjoint.type.shape == like.type.shape:
        return adjoint
    axes = broadcast_axes(like.type.shape, adjoint.type.shape)
    if not axes:  # equal sizes under two names
        return adjoint
    lead = len(adjoint.type.shape) - len(like.type.shape)
    summed: Tensor = ctx.ops.reduce_sum(adjoint, axis=axes, keepdims=lead == 0)
    if 0 < lead < len(axes):
        summed = ctx.ops.reshape(summed, like.type.shape)
    return summed


def or_zeros(ctx: GradientContext, node: Node, adjoints: Sequence[Tensor | None]) -> list[Tensor]:
    """The adjoints of the node's results, with zeros in place of None."""
    pairs = zip(node.outputs, adjoints, strict=True)
    return [ctx.ops.zeros_like(y) if dy is None else dy for y, dy in pairs]


def broadcast_axes(small: Shape, large: Shape) -> tuple[int, ...]:
    """The axes of `large` along which `small` is repeated."""
    lead = len(large) - len(small)
    repeated = [i + lead for i, dim in enumerate(small) if dim == 1 and large[i + lead] != 1]
    return (*range(lead), *repeated)


def unary_gradient(
    rule: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Callable[[GradientContext, Node, Tensor], Adjoints]:
    """The gradient rule of an operator of one operand, from `rule(adjoint, x, y)`."""
    return lambda ctx, node, dy: [rule(dy, node.inputs[0], node.outputs[0])]
