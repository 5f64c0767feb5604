"""Convolution and correlation of vectors."""

from __future__ import annotations

from jax import numpy as jnp

from graphc.ir.costs import CostContext, size_of
from graphc.ir.dims import Dim
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.slicing import flip
from graphc.ops.core.broadcasting import infer_inexact, require_one_dtype
from graphc.ops.core.declaring import Given, Operands, declared, operator
from graphc.ops.core.defining import one_of
from graphc.ops.core.emit import promote_inexact
from graphc.ops.core.layout_rules import replicated
from graphc.ops.core.precision import in_wider
from graphc.ops.elementwise.complex_parts import conj
from graphc.typing import TensorLike

__all__ = ["convolve", "correlate"]


def _infer_convolve(ctx: InferContext, x: TensorType, y: TensorType, *, mode: str) -> TensorType:
    infer_inexact(ctx, x)
    require_one_dtype(ctx, x, y)
    ctx.require(x.rank == y.rank == 1, f"x and y must be vectors, got ranks {x.rank} and {y.rank}")
    return TensorType(x.dtype, (_size(ctx, x.shape[0], y.shape[0], mode),))


def _size(ctx: InferContext, n: Dim, m: Dim, mode: str) -> Dim:
    ctx.require(n != 0 and m != 0, "there are no elements")
    if mode == "full":
        return n + m - 1
    if not isinstance(n, int) or not isinstance(m, int):
        ctx.fail(f'mode "{mode}" needs known sizes, got {n} and {m}', hint='use "full" and slice')
    return max(n, m) if mode == "same" else max(n, m) - min(n, m) + 1


def _cost(ctx: CostContext, node: Node) -> int:
    """A product and a sum for each pair of elements that contributes to a result."""
    n, m, results = (size_of(t) for t in (*node.inputs, *node.outputs))
    longer, shorter = max(n, m), min(n, m)
    if node.attrs["mode"] == "valid":
        return 2 * results * shorter
    cut = n + m - 1 - results  # results of the full convolution that are omitted, at both ends
    low, high = cut // 2, cut - cut // 2
    return 2 * longer * shorter - low * (low + 1) - high * (high + 1)


@operator(
    "Convolve",
    infer=_infer_convolve,
    lower=in_wider(lambda ctx, x, y, *, mode: jnp.convolve(x, y, mode=mode, precision="highest")),
    precision="wide",
    attrs={"mode": one_of("full", "same", "valid", default="full")},
    layout=replicated,
    cost=_cost,
)
def convolve(x: TensorLike, y: TensorLike, mode: str = "full", *, name: str | None = None) -> Given:
    """The convolution of the vectors `x` and `y`: the sum over i of x[i] * y[k - i] for each k.

    `mode` selects the range of k. Floating and complex dtypes.

    Args:
        x: [n]; integers give float32.
        y: [m].
        mode: "full" gives n + m - 1 elements, "same" max(n, m), and "valid" only those for which
            one vector is completely inside the other.
        name: the name of the node.

    Raises:
        ShapeError: an operand is not a vector, or sizes are named and the mode is not "full".
        AttributeValueError: the mode is unknown.

    Source: numpy.convolve.

    Examples:
        >>> run(gc.convolve([1.0, 2.0], [1.0, 1.0]))
        Array([1., 3., 2.], dtype=float32)
    """
    return Operands(*promote_inexact(x, y), mode=mode)


def correlate(
    x: TensorLike, y: TensorLike, mode: str = "valid", *, name: str | None = None
) -> Tensor:
    """The sums over i of `x[i + k] * conj(y[i])`. Arguments and errors are those of `convolve`.

    Source: numpy.correlate.

    Examples:
        >>> run(gc.correlate([1.0, 2.0, 3.0], [1.0, 1.0]))
        Array([3., 5.], dtype=float32)
    """
    x, y = promote_inexact(x, y)
    if mode == "same" and x.ndim == y.ndim == 1 and _is_less(x.shape[0], y.shape[0]):
        # NumPy then reverses the correlation of y with x: if x has an even size, its middle differs
        return flip(convolve(conj(y), flip(x), mode), name=name)
    return convolve(x, flip(conj(y)), mode, name=name)


def _is_less(n: Dim, m: Dim) -> bool:
    return isinstance(n, int) and isinstance(m, int) and n < m


OPS: tuple[OpDef, ...] = declared(__name__)
