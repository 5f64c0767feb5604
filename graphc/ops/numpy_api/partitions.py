"""TensorFlow's masks, partitions, stitches, reversed sequences and confusion matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim
from graphc.ir.dtypes import INT32
from graphc.ir.node import Tensor
from graphc.ops.arrays.along_axis import take_along_axis
from graphc.ops.arrays.creation import iota, zeros
from graphc.ops.arrays.shape import broadcast_to, reshape
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import refuse, same_shape
from graphc.ops.core.emit import convert, promote_operands, to_dtype
from graphc.ops.core.operands import as_integers
from graphc.ops.elementwise.comparison import equal, less, logical_and, where
from graphc.ops.numpy_api.searching import bincount
from graphc.ops.numpy_api.sized import extract
from graphc.ops.structure.state import identity
from graphc.typing import TensorLike

__all__ = [
    "boolean_mask",
    "confusion_matrix",
    "dynamic_partition",
    "dynamic_stitch",
    "reverse_sequence",
]


def boolean_mask(
    x: TensorLike,
    mask: TensorLike,
    size: Dim,
    fill_value: TensorLike = 0,
    *,
    name: str | None = None,
) -> Tensor:
    """TensorFlow's name for `extract`, with its order of arguments: `x[mask]`.

    How many elements the mask selects is known only in a run, so `size` states how many rows the
    result has. `where(mask, x, 0)` keeps the shape of `x` instead.

    Args:
        x, mask, size, fill_value: see `extract`.

    Raises:
        ShapeError: the shapes do not fit.

    Source: tf.boolean_mask.

    Examples:
        >>> run(gc.boolean_mask([1, 2, 3], [True, False, True], size=2))
        Array([1, 3], dtype=int32)
    """
    return identity(extract(mask, x, size, fill_value), name=name)


def dynamic_partition(x: TensorLike, partitions: TensorLike, count: int, size: Dim) -> list[Tensor]:
    """The rows of `x` in `count` groups: row i is in group `partitions[i]`.

    Args:
        x: any tensor.
        partitions: integers of the shape of the first axes of `x`.
        count: the number of groups.
        size: the rows of each result. A larger group loses its last rows, and a smaller one is
            padded with zeros, because sizes cannot depend on values. The size of `partitions`
            always suffices.

    Returns:
        `count` tensors [size, ...].

    Raises:
        AttributeValueError: `count` is not an int of at least 1.
        DTypeError: `partitions` are not integers.
        ShapeError: the shapes do not fit.

    Source: tf.dynamic_partition.

    Examples:
        >>> run(gc.dynamic_partition([1, 2, 3], [0, 1, 0], count=2, size=2))
        [Array([1, 3], dtype=int32), Array([2, 0], dtype=int32)]
    """
    groups = as_integers("dynamic_partition", "partitions", partitions)
    _check_count("dynamic_partition", "count", count)
    return [extract(equal(groups, i), x, size) for i in np.arange(count).tolist()]


def dynamic_stitch(
    indices: Sequence[TensorLike], data: Sequence[TensorLike], size: Dim, *, name: str | None = None
) -> Tensor:
    """Rows combined into one tensor: row `indices[k][i]` of the result is `data[k][i]`.

    Args:
        indices: tensors of integers. If an index occurs more than once, the later row stays.
        data: a tensor for each of `indices`: of its shape, and then the shape of a row.
        size: the rows of the result. Rows without an index are zeros.

    Raises:
        AttributeValueError: no tensors, or different numbers of data and indices.
        DTypeError: `indices` are not integers.
        ShapeError: the shapes do not fit.

    Source: tf.dynamic_stitch.

    Examples:
        >>> run(gc.dynamic_stitch([[0, 2], [1]], [[10, 30], [20]], size=3))
        Array([10, 20, 30], dtype=int32)
    """
    if not indices or len(data) != len(indices):
        refuse(
            f"dynamic_stitch: takes equal numbers of data and indices, got {len(data)} and "
            f"{len(indices)}",
            error=AttributeValueError,
        )
    places = [as_integers("dynamic_stitch", "indices", i) for i in indices]
    values = promote_operands(*data)
    row = values[0].shape[places[0].ndim :]
    for place, value in zip(places, values, strict=True):
        if not same_shape(value.shape, (*place.shape, *row), value):
            refuse(
                "dynamic_stitch: data must have the shape of the indices, then that of a row",
                indices=place,
                data=value,
            )
    result = zeros((size, *row), values[0].dtype)
    for place, value in zip(places, values, strict=True):  # in order, so that the later row stays
        result = result.at[reshape(place, (-1,))].set(reshape(value, (-1, *row)))
    return identity(result, name=name)


def reverse_sequence(
    x: TensorLike,
    lengths: TensorLike,
    axis: int = 1,
    batch_axis: int = 0,
    *,
    name: str | None = None,
) -> Tensor:
    """`x` with the first `lengths[i]` elements along `axis` of example i in reverse order.

    Args:
        x: any tensor.
        lengths: integers, one for each example.
        axis: the axis of the steps.
        batch_axis: the axis of the examples.

    Raises:
        AttributeValueError: an axis is out of range, or both are the same.
        DTypeError: `lengths` are not integers.
        ShapeError: not one length for each example.

    Source: tf.reverse_sequence.

    Examples:
        >>> run(gc.reverse_sequence([[1, 2, 3], [4, 5, 6]], [2, 3]))
        Array([[2, 1, 3],
               [6, 5, 4]], dtype=int32)
    """
    x, counts = convert(x), as_integers("reverse_sequence", "lengths", lengths)
    axis = normalize_axis("reverse_sequence", x, axis)
    batch_axis = normalize_axis("reverse_sequence", x, batch_axis)
    if axis == batch_axis:
        refuse("reverse_sequence: axis and batch_axis must differ", error=AttributeValueError, x=x)
    if not same_shape(counts.shape, (x.shape[batch_axis],), x):
        refuse("reverse_sequence: there must be one length for each example", x=x, lengths=counts)
    along = [1] * x.ndim
    along[batch_axis] = -1
    counts = reshape(to_dtype(counts, INT32), tuple(along))
    step = iota((*(1,) * axis, x.shape[axis], *(1,) * (x.ndim - axis - 1)), axis)
    places = where(less(step, counts), counts - 1 - step, step)
    return take_along_axis(x, broadcast_to(places, x.shape), axis, name=name)


def confusion_matrix(
    labels: TensorLike,
    predictions: TensorLike,
    classes: int,
    weights: TensorLike | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """Counts of pairs (label, prediction): [labels, predictions], int32 or the dtype of `weights`.

    Args:
        labels, predictions: integers of one shape, from 0 to `classes` - 1. Examples with other
            numbers are not counted.
        classes: the number of classes.
        weights: the weight of each example, of the shape of the labels; 1 by default.

    Raises:
        AttributeValueError: `classes` is not an int of at least 1.
        DTypeError: labels or predictions are not integers.
        ShapeError: the shapes differ.

    Source: sklearn.metrics.confusion_matrix, tf.math.confusion_matrix.

    Examples:
        >>> run(gc.confusion_matrix([0, 1, 1], [0, 1, 0], classes=2))
        Array([[1, 0],
               [1, 1]], dtype=int32)
    """
    _check_count("confusion_matrix", "classes", classes)
    labels = as_integers("confusion_matrix", "labels", labels)
    predictions = as_integers("confusion_matrix", "predictions", predictions)
    _require_shape("confusion_matrix", "predictions", predictions, labels)
    # A narrow dtype may not hold the index of a cell.
    labels, predictions = to_dtype(labels, INT32), to_dtype(predictions, INT32)
    inside = [logical_and(less(-1, t), less(t, classes)) for t in (labels, predictions)]
    cell = where(logical_and(*inside), labels * classes + predictions, classes * classes)
    if weights is not None:
        weights = convert(weights)
        _require_shape("confusion_matrix", "weights", weights, labels)
        weights = reshape(weights, (-1,))
    counts = bincount(reshape(cell, (-1,)), classes * classes + 1, weights)
    return reshape(counts[:-1], (classes, classes), name=name)


def _check_count(function: str, label: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        refuse(
            f"{function}: {label} must be an int of at least 1, got {value!r}",
            error=AttributeValueError,
        )


def _require_shape(function: str, label: str, tensor: Tensor, labels: Tensor) -> None:
    if not same_shape(tensor.shape, labels.shape, labels):
        shown = f"{tensor.type.shown()} and {labels.type.shown()}"
        refuse(f"{function}: {label} must have the shape of the labels, got {shown}", labels=labels)
