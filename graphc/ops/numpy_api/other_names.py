"""Functions that TensorFlow has and NumPy lacks, and TensorFlow's names for functions of NumPy."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ops.arrays.creation import arange, full
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.shape import expand_dims, moveaxis, reshape
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, promote_operands, to_dtype
from graphc.ops.elementwise.arithmetic import add, clip, multiply, subtract
from graphc.ops.elementwise.comparison import greater, less_equal, logical_and, where
from graphc.ops.elementwise.powers import square
from graphc.ops.matrices.norms import vector_norm
from graphc.ops.structure.state import identity
from graphc.typing import DTypeLike, ShapeLike, TensorLike

__all__ = [
    "add_n",
    "clip_by_norm",
    "clip_by_value",
    "fill",
    "gather",
    "global_norm",
    "matrix_band_part",
    "range",
    "squared_difference",
]


def gather(
    x: TensorLike,
    indices: TensorLike,
    axis: int | None = None,
    batch_dims: int = 0,
    *,
    name: str | None = None,
) -> Tensor:
    """TensorFlow's name for `take`: the slices of `x` at `indices` along `axis`.

    PyTorch's `gather` is `take_along_axis`.

    Args:
        x: any tensor.
        indices: integers.
        axis: by default the first axis after the batch axes.
        batch_dims: how many leading axes `x` and `indices` share. Each example has its own indices.
        name: of the node.

    Returns:
        `x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis + 1:]`.

    Raises:
        DTypeError, ShapeError, AttributeValueError: see `take`; or the axis is a batch axis.

    Source: tf.gather.

    Examples:
        >>> run(gc.gather([[1, 2, 3], [4, 5, 6]], [[2], [0]], batch_dims=1))
        Array([[3],
               [4]], dtype=int32)
    """
    if not batch_dims:
        return take(x, indices, 0 if axis is None else axis, name=name)
    x = convert(x)
    place = batch_dims if axis is None else normalize_axis("gather", x, axis)
    return identity(_gather_in_batch(x, convert(indices), place, batch_dims), name=name)


def _gather_in_batch(x: Tensor, indices: Tensor, place: int, batch_dims: int) -> Tensor:
    """`gather` along the axis `place`, for each example of `batch_dims` leading axes."""
    if not 0 < batch_dims <= min(place, indices.ndim):
        refuse(
            f"gather: batch_dims={batch_dims} must be at most the axis ({place}) and the rank of "
            "the indices",
            error=AttributeValueError,
            x=x,
            indices=indices,
        )
    examples = [
        reshape(arange(size), [-1] + [1] * (indices.ndim - i - 1))
        for i, size in enumerate(x.shape[:batch_dims])
    ]
    found = moveaxis(x, place, batch_dims)[(*examples, indices)]
    new = builtins.range(indices.ndim - batch_dims)  # the axes that come from the indices
    return moveaxis(found, [batch_dims + i for i in new], [place + i for i in new])


def clip_by_value(
    x: TensorLike, lo: TensorLike, hi: TensorLike, *, name: str | None = None
) -> Tensor:
    """TensorFlow's name for `clip`: `x` limited to values from `lo` to `hi`.

    Raises:
        DTypeError, ShapeError: see `clip`.

    Source: tf.clip_by_value.

    Examples:
        >>> run(gc.clip_by_value([-1, 2, 9], 0, 5))
        Array([0, 2, 5], dtype=int32)
    """
    return clip(x, lo, hi, name=name)


def fill(shape: ShapeLike, value: TensorLike, *, name: str | None = None) -> Tensor:
    """TensorFlow's name for `full`: a tensor of `shape` with `value` everywhere.

    Raises:
        ShapeError: the shape is invalid.

    Source: tf.fill.

    Examples:
        >>> run(gc.fill((2, 2), 7))
        Array([[7, 7],
               [7, 7]], dtype=int32)
    """
    return full(shape, value, name=name)


def range(
    start: Dim | float,
    stop: Dim | float | None = None,
    step: float = 1,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """TensorFlow's name for `arange`: `start`, `start + step`, ... before `stop`.

    Raises:
        AttributeValueError: see `arange`.

    Source: tf.range.

    Examples:
        >>> run(gc.range(2, 8, 2))
        Array([2, 4, 6], dtype=int32)
    """
    return arange(start, stop, step, dtype, name=name)


def add_n(tensors: Iterable[TensorLike], *, name: str | None = None) -> Tensor:
    """The sum of several tensors. Dtypes promote and shapes broadcast, as in `add`.

    Raises:
        AttributeValueError: there are no tensors, or it is one tensor instead of several.
        ShapeError, DTypeError: see `add`.

    Source: tf.add_n.

    Examples:
        >>> run(gc.add_n([[1, 2], [3, 4], [5, 6]]))
        Array([ 9, 12], dtype=int32)
    """
    total, *rest = _several("add_n", tensors, "gc.sum adds the elements of one tensor")
    if not rest:
        return identity(total, name=name)
    for term in rest[:-1]:
        total = add(total, term)
    return add(total, rest[-1], name=name)


def squared_difference(x: TensorLike, y: TensorLike, *, name: str | None = None) -> Tensor:
    """`(x - y) ** 2`, elementwise.

    Raises:
        ShapeError, DTypeError: see `subtract`.

    Source: tf.math.squared_difference.

    Examples:
        >>> run(gc.squared_difference([1, 5], 3))
        Array([4, 4], dtype=int32)
    """
    return square(subtract(x, y), name=name)


def global_norm(tensors: Iterable[TensorLike], *, name: str | None = None) -> Tensor:
    """The Euclidean norm of all elements of several tensors, such as gradients: a scalar.

    `optax.clip_by_global_norm` clips by it inside an optimizer.

    Returns:
        A real number; the gradient where all elements are zero is 0.

    Raises:
        AttributeValueError: there are no tensors, or it is one tensor instead of several.

    Source: tf.linalg.global_norm.

    Examples:
        >>> run(gc.global_norm([[3.0], [4.0]]))
        Array(5., dtype=float32)
    """
    several = _several("global_norm", tensors, "gc.linalg.norm is the norm of one tensor")
    norms = promote_operands(*(vector_norm(tensor) for tensor in several))
    return vector_norm(stack(norms), name=name)


def clip_by_norm(
    x: TensorLike,
    limit: TensorLike,
    axis: int | Sequence[int] | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`x`, scaled down where its Euclidean norm over `axis` is above `limit`.

    Args:
        x: floating or complex.
        limit: a scalar, or a tensor that broadcasts with the norms, whose `axis` has size 1.
        axis: the axes of one vector; None for all axes.

    Raises:
        AttributeValueError: an axis is out of range.

    Source: tf.clip_by_norm.

    Examples:
        >>> run(gc.clip_by_norm([3.0, 4.0], 1.0))
        Array([0.6, 0.8], dtype=float32)
    """
    x = convert(x)
    norm = vector_norm(x, axis=axis, keepdims=True)
    limit = to_dtype(convert(limit), norm.dtype)
    over = greater(norm, limit)
    # The divisor is 1 where nothing is clipped: a division by a norm of 0 has no gradient.
    scale = where(over, limit / where(over, norm, 1), 1)
    return multiply(x, scale, name=name)


def matrix_band_part(x: TensorLike, below: int, above: int, *, name: str | None = None) -> Tensor:
    """`x` [..., rows, columns] with zeros outside a band around the diagonal.

    Args:
        x: a tensor of at least two axes.
        below, above: how many diagonals below and above the main one stay; a negative number
            keeps all. `triu(x)` is (0, -1), `tril(x)` is (-1, 0).

    Raises:
        ShapeError: `x` has fewer than two axes.
        AttributeValueError: `below` or `above` is not an int.

    Source: tf.linalg.band_part.

    Examples:
        >>> run(gc.matrix_band_part(gc.ones((3, 3)), 0, 1))
        Array([[1., 1., 0.],
               [0., 1., 1.],
               [0., 0., 1.]], dtype=float32)
    """
    x = convert(x)
    if x.type.rank < 2:
        refuse(f"matrix_band_part: x must have at least two axes, got {x.type.shown()}", x=x)
    for label, count in (("below", below), ("above", above)):
        if type(count) is not int:
            refuse(
                f"matrix_band_part: {label} must be an int, got {count!r}",
                error=AttributeValueError,
            )
    rows, columns = x.type.shape[-2:]
    offset = expand_dims(arange(rows), 1) - expand_dims(arange(columns), 0)  # > 0: below
    keep = less_equal(offset, below) if below >= 0 else None
    if above >= 0:
        upper = less_equal(-offset, above)
        keep = upper if keep is None else logical_and(keep, upper)
    return identity(x, name=name) if keep is None else where(keep, x, 0, name=name)


def _several(function: str, tensors: Any, hint: str) -> list[Tensor]:
    if isinstance(tensors, Operand) or not isinstance(tensors, Iterable):
        _refuse_number(function, tensors, hint)
    found = [convert(tensor) for tensor in tensors]
    if not found:
        _refuse_number(function, tensors, hint)
    return found


def _refuse_number(function: str, tensors: Any, hint: str) -> NoReturn:
    refuse(
        f"{function}: takes a list of at least one tensor, got {tensors!r}",
        error=AttributeValueError,
        hint=hint,
    )
