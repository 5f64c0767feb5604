"""The Levenshtein distance of sequences, computed by the anti-diagonals of its table."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import CostContext, dims_of
from graphc.ir.dims import Dim
from graphc.ir.dtypes import FLOAT32, INT32, is_integer
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import broadcast_to
from graphc.ops.core.broadcasting import require_one_dtype
from graphc.ops.core.defining import without_gradient
from graphc.ops.core.emit import convert, dim_value, emit_one, promote_operands, to_dtype
from graphc.ops.core.layout_rules import same_axis
from graphc.ops.core.precision import in_wider
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.arithmetic import divide, maximum, minimum
from graphc.ops.elementwise.comparison import equal, where
from graphc.typing import TensorLike

__all__ = ["edit_distance"]


def _infer(
    ctx: InferContext, x: TensorType, y: TensorType, x_lengths: TensorType, y_lengths: TensorType
) -> TensorType:
    ctx.require_dtype([x, y, x_lengths, y_lengths], is_integer, "integers")
    require_one_dtype(ctx, x, y)
    ctx.require(
        x.rank == y.rank == 2 and x_lengths.rank == y_lengths.rank == 1,
        "x and y must be [batch, steps] and their lengths [batch], "
        f"got {x}, {y}, {x_lengths} and {y_lengths}",
    )
    batch: Dim = x.shape[0]
    for other in (y, x_lengths, y_lengths):
        batch = ctx.unify(batch, other.shape[0], "numbers of sequences")
    return TensorType(INT32, (batch,))


def _lower(ctx: LowerContext, x: Any, y: Any, x_lengths: Any, y_lengths: Any) -> Any:
    lengths = [
        jnp.clip(n.astype(np.int32), 0, t.shape[1]) for n, t in ((x_lengths, x), (y_lengths, y))
    ]
    return jax.vmap(_distance)(x, y, *lengths)


def _distance(x: Any, y: Any, n: Any, m: Any) -> Any:
    """The distance between the first n elements of x and the first m of y.

    Element i of anti-diagonal k of the table is the distance between i elements of x and k - i of
    y. A whole anti-diagonal is computed at once from the two previous ones.
    """
    size, other = x.shape[0], y.shape[0]
    i = lax.iota(np.int32, size + 1)
    many = np.int32(2**30)  # outside the table; small enough not to overflow
    turned = jnp.pad(y[::-1], (size, size))
    before_each = jnp.pad(x, (1, 0))

    def turn(k: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        before, last, found = state
        # y[k - 1 - i], which has the index size + other - k + i in the reversed y.
        met = lax.dynamic_slice(turned, (size + other - k,), (size + 1,))
        changed = _next(before) + (before_each != met)
        here = jnp.minimum(jnp.minimum(last, _next(last)) + 1, changed)
        here = jnp.where((i == 0) | (i == k), k, jnp.where(k - i > other, many, here))
        here = jnp.where(i > k, many, here)
        return last, here, jnp.where(k == n + m, here[n], found)

    def _next(row: Any) -> Any:
        return jnp.pad(row[:-1], (1, 0), constant_values=many)

    first = jnp.where(i == 0, 0, many)
    start = (jnp.full_like(first, many), first, jnp.zeros((), np.int32))
    return lax.fori_loop(1, size + other + 1, turn, start)[2]


def _cost(ctx: CostContext, node: Node) -> int:
    """A comparison, three sums and two minima for each pair. Source: Wagner & Fischer, 1974."""
    batch, n = dims_of(node.inputs[0])
    return 6 * batch * n * dims_of(node.inputs[1])[1]


EDIT_DISTANCE = without_gradient(
    "EditDistance(x, y, x_lengths, y_lengths) -> distance",
    infer=_infer,
    lower=in_wider(_lower),
    layout=same_axis(lambda node, axis: axis == 0),
    cost=_cost,
    doc="The least number (int32) of insertions, deletions and substitutions that turn the first "
    "x_lengths [batch] elements of x [batch, steps] into the first y_lengths of y. Integers. "
    "Source: Levenshtein, 1966; Wagner & Fischer, 1974, doi:10.1145/321796.321811.",
)


def edit_distance(
    x: TensorLike,
    y: TensorLike,
    x_lengths: TensorLike | None = None,
    y_lengths: TensorLike | None = None,
    normalize: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """The least number of insertions, deletions and substitutions that turn `x` into `y`.

    Args:
        x: [batch, n], integers: the predictions.
        y: [batch, m], integers: the true sequences.
        x_lengths, y_lengths: [batch], integers: the numbers of valid elements; all by default. A
            value out of range is clamped to the range, and raises an error in runs with
            `CompileOptions(check_numerics=True)`.
        normalize: divide by the length of `y`. The result is infinite if the length is 0 and the
            distance is not.
        name: of the last node.

    Returns:
        [batch], int32; float32 if it is normalised.

    Raises:
        ShapeError: wrong ranks, or batches of different sizes.
        DTypeError: an operand does not hold integers.

    Source: Levenshtein, 1966; TensorFlow's `tf.edit_distance`.

    Examples:
        >>> run(gc.nn.edit_distance([[1, 2, 3]], [[1, 3, 3]]))
        Array([1], dtype=int32)
    """
    x, y = promote_operands(x, y)
    n, m = _lengths(x, x_lengths, "x_lengths"), _lengths(y, y_lengths, "y_lengths")
    if not normalize:
        return emit_one(EDIT_DISTANCE, (x, y, n, m), name)
    distance = to_dtype(emit_one(EDIT_DISTANCE, (x, y, n, m)), FLOAT32)
    m = minimum(maximum(m, 0), dim_value(y.shape[1]))  # as in the operator
    share = divide(distance, to_dtype(maximum(m, 1), FLOAT32))
    endless = where(equal(distance, 0), 0.0, np.float32(np.inf))
    return where(equal(m, 0), endless, share, name=name)


def _lengths(x: Tensor, given: Any, what: str) -> Tensor:
    if x.ndim < 2:  # the operator raises the error
        return to_dtype(0, INT32) if given is None else convert(given)
    if given is not None:
        return in_range(convert(given), 0, x.shape[1] + 1, what, of="edit_distance")
    return broadcast_to(dim_value(x.shape[1]), x.shape[:1])


OPS: tuple[OpDef, ...] = (EDIT_DISTANCE,)
