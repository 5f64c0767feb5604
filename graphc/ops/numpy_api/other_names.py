"""Functions that TensorFlow has and NumPy lacks, and TensorFlow's names for functions of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ops.arrays.creation import arange, full
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.shape import expand_dims, reshape
from graphc.ops.control.branching import cond
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, promote_operands
from graphc.ops.elementwise.arithmetic import add, clip, maximum, multiply, subtract
from graphc.ops.elementwise.comparison import (
    greater,
    less,
    less_equal,
    logical_and,
    logical_or,
    where,
)
from graphc.ops.elementwise.powers import sqrt, square
from graphc.ops.numpy_api.searching import bincount
from graphc.ops.reductions.reduction import reduce_sum
from graphc.ops.structure.state import identity

__all__ = [
    "add_n",
    "case",
    "clip_by_norm",
    "clip_by_value",
    "confusion_matrix",
    "fill",
    "gather",
    "global_norm",
    "matrix_band_part",
    "range",
    "squared_difference",
]


def gather(x: Any, indices: Any, axis: int | None = 0, *, name: str | None = None) -> Tensor:
    """TensorFlow's name for `take`: the slices of `x` at `indices` along `axis`.

    PyTorch's `gather` is `take_along_axis`.

    Raises:
        DTypeError, ShapeError, AttributeValueError: see `take`.

    Source: tf.gather.
    """
    return take(x, indices, axis, name=name)


def clip_by_value(x: Any, lo: Any, hi: Any, *, name: str | None = None) -> Tensor:
    """TensorFlow's name for `clip`: `x` limited to values from `lo` to `hi`.

    Raises:
        DTypeError, ShapeError: see `clip`.

    Source: tf.clip_by_value.
    """
    return clip(x, lo, hi, name=name)


def fill(shape: Any, value: Any, *, name: str | None = None) -> Tensor:
    """TensorFlow's name for `full`: a tensor of `shape` with `value` everywhere.

    Raises:
        ShapeError: the shape is invalid.

    Source: tf.fill.
    """
    return full(shape, value, name=name)


def range(
    start: Dim,
    stop: Dim | None = None,
    step: int = 1,
    dtype: Any = None,
    *,
    name: str | None = None,
) -> Tensor:
    """TensorFlow's name for `arange`: start, start + step, ... below `stop`.

    Raises:
        AttributeValueError, ShapeError: see `arange`.

    Source: tf.range.
    """
    return arange(start, stop, step, dtype, name=name)


def add_n(tensors: Sequence[Any], *, name: str | None = None) -> Tensor:
    """The sum of several tensors. Dtypes promote and shapes broadcast, as in `add`.

    Raises:
        AttributeValueError: there are no tensors, or it is one tensor instead of several.
        ShapeError, DTypeError: see `add`.

    Source: tf.add_n.
    """
    if isinstance(tensors, Operand) or len(tensors) == 0:
        refuse(
            f"add_n: takes a list of at least one tensor, got {tensors!r}",
            error=AttributeValueError,
            hint="gc.sum adds the elements of one tensor",
        )
    total, *rest = map(convert, tensors)
    if not rest:
        return identity(total, name=name)
    for term in rest[:-1]:
        total = add(total, term)
    return add(total, rest[-1], name=name)


def squared_difference(x: Any, y: Any, *, name: str | None = None) -> Tensor:
    """`(x - y) ** 2`, elementwise.

    Raises:
        ShapeError, DTypeError: see `subtract`.

    Source: tf.math.squared_difference.
    """
    return square(subtract(x, y), name=name)


def global_norm(tensors: Sequence[Any], *, name: str | None = None) -> Tensor:
    """The Euclidean norm of all elements of several tensors, such as gradients: a scalar.

    optax.clip_by_global_norm clips by it inside an optimizer.

    Raises:
        AttributeValueError: there are no tensors.
        DTypeError: complex numbers.

    Source: tf.linalg.global_norm.
    """
    if isinstance(tensors, Operand):
        tensors = [tensors]
    return sqrt(add_n([reduce_sum(square(t)) for t in tensors]), name=name)


def clip_by_norm(
    x: Any, limit: Any, axis: int | Sequence[int] | None = None, *, name: str | None = None
) -> Tensor:
    """`x`, scaled down where its Euclidean norm over `axis` is above `limit`.

    Args:
        x: a floating tensor.
        limit: a scalar, or a tensor that broadcasts with the norms.
        axis: the axes of one vector; None for all axes.

    Raises:
        AttributeValueError: an axis is out of range.

    Source: tf.clip_by_norm.
    """
    x, limit = promote_operands(x, limit)
    squares = reduce_sum(square(x), axis, keepdims=True)
    # The gradient of sqrt is infinite at 0, where nothing is clipped.
    norm = sqrt(where(greater(squares, 0), squares, 1))
    return multiply(x, limit / maximum(norm, limit), name=name)


def matrix_band_part(x: Any, below: int, above: int, *, name: str | None = None) -> Tensor:
    """`x` [..., rows, columns] with zeros outside a band around the diagonal.

    Args:
        x: a tensor of at least two axes.
        below, above: how many diagonals below and above the main one are kept; -1 keeps all.
            `triu(x)` is (0, -1), `tril(x)` is (-1, 0).

    Raises:
        ShapeError: `x` has fewer than two axes.
        AttributeValueError: `below` or `above` is not an int.

    Source: tf.linalg.band_part.
    """
    x = convert(x)
    if x.type.rank < 2:
        refuse(f"matrix_band_part: x must have at least two axes, got {x.type}", x=x)
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


def confusion_matrix(
    labels: Any, predictions: Any, classes: int, weights: Any = None, *, name: str | None = None
) -> Tensor:
    """How often each class is predicted as each: [labels, predictions], int32 or as `weights`.

    Args:
        labels, predictions: integers of one shape, from 0 to `classes` - 1. Examples with others
            are not counted.
        classes: the number of classes.
        weights: what each example counts; 1 by default.

    Raises:
        AttributeValueError: `classes` is not an int of at least 1.
        DTypeError: labels or predictions are not integers.
        ShapeError: the shapes differ.

    Source: sklearn.metrics.confusion_matrix, tf.math.confusion_matrix.
    """
    if type(classes) is not int or classes < 1:
        refuse(
            f"confusion_matrix: classes must be an int of at least 1, got {classes!r}",
            error=AttributeValueError,
        )
    labels, predictions = promote_operands(labels, predictions)
    outside = logical_or(
        logical_or(less(labels, 0), less(predictions, 0)),
        logical_or(greater(labels, classes - 1), greater(predictions, classes - 1)),
    )
    cell = where(outside, classes * classes, labels * classes + predictions)
    if weights is not None:
        weights = convert(weights).reshape(-1)
    counts = bincount(cell.reshape(-1), classes * classes + 1, weights)
    return reshape(counts[:-1], (classes, classes), name=name)


def case(pairs: Sequence[tuple[Any, Callable[[], Any]]], default: Callable[[], Any]) -> Any:
    """What the function of the first true condition gives, or else what `default` gives.

    Args:
        pairs: conditions (scalars of bool), each with a function without arguments.
        default: called if no condition is true.

    Returns:
        What the functions return, all of one structure, with equal types; see `cond`.

    Raises:
        ShapeError, DTypeError, GraphError: see `cond`.

    Source: tf.case.
    """
    if not pairs:
        return default()
    (condition, function), *rest = pairs
    return cond(condition, function, lambda: case(rest, default))
