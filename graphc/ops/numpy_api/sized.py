"""Functions whose results in NumPy have sizes that depend on values. Here the size is given.

As in `jax.numpy`, `size` is the number of elements of the result. Additional elements are dropped,
and missing elements are `fill_value`.
"""

from __future__ import annotations

from typing import Any

from graphc.ir.dims import Dim, product
from graphc.ir.dtypes import INT32, is_inexact
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import full, iota, ones, zeros_like
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.scattering import scatter
from graphc.ops.arrays.shape import broadcast_to, ravel, reshape
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.emit import convert, dim_value, promote_operands, to_dtype
from graphc.ops.elementwise.comparison import equal, isnan, not_equal, where
from graphc.ops.numpy_api.grids import unravel_index
from graphc.ops.numpy_api.searching import searchsorted
from graphc.ops.numpy_api.segments import segment_sum
from graphc.ops.reductions.axiswise import cumsum
from graphc.ops.reductions.sorting import argsort, sort
from graphc.typing import TensorLike

__all__ = [
    "argwhere",
    "extract",
    "flatnonzero",
    "intersect1d",
    "isin",
    "nonzero",
    "setdiff1d",
    "setxor1d",
    "union1d",
    "unique",
]


def _true(mask: Any) -> Tensor:
    """`mask` as a vector of bools."""
    tensor = ravel(mask)
    return not_equal(tensor, 0) if tensor.dtype.kind != "b" else tensor


def _numbers(mask: Tensor) -> Tensor:
    """For each true element of a vector, the number of true elements before it."""
    return cumsum(to_dtype(mask, INT32)) - 1


def _packed(mask: Tensor, values: Tensor, size: Any, fill_value: Any) -> Tensor:
    """The first `size` of the `values` where the vector `mask` is true, then `fill_value`."""
    (count,) = as_dims("size", (size,))
    places = where(mask, _numbers(mask), dim_value(count))
    into = broadcast_to(to_dtype(fill_value, values.dtype), (count, *values.shape[1:]))
    return scatter(into, places, values)


# -- places and elements that a mask chooses -------------------------------------------------


def flatnonzero(x: TensorLike, size: Dim, fill_value: int = 0) -> Tensor:
    """The positions (int32) in row-major order of the first `size` elements that are not zero.

    Args:
        x: any tensor.
        size: the number of positions: an int or a named size.
        fill_value: the value of missing positions.

    Source: numpy.flatnonzero, jax.numpy.flatnonzero.

    Examples:
        >>> run(gc.flatnonzero([0, 3, 4], size=2))
        Array([1, 2], dtype=int32)
    """
    mask = _true(x)
    return _packed(mask, iota(mask.shape), size, fill_value)


def nonzero(x: TensorLike, size: Dim, fill_value: int = 0) -> tuple[Tensor, ...]:
    """The indices (int32) along each axis of the first `size` elements that are not zero.

    Args:
        x: any tensor with at least one axis.
        size: the number of indices: an int or a named size.
        fill_value: the value of missing indices.

    Returns:
        A vector [size] for each axis.

    Raises:
        ShapeError: a scalar.

    Source: numpy.nonzero, jax.numpy.nonzero.

    Examples:
        >>> run(gc.nonzero([[0, 3], [4, 0]], size=2))
        (Array([0, 1], dtype=int32), Array([1, 0], dtype=int32))
    """
    x = convert(x)
    if not x.ndim:
        refuse("nonzero: a scalar has no axes", x=x)
    places = flatnonzero(x, size, -1)
    missing = places < 0
    return tuple(where(missing, fill_value, i) for i in unravel_index(places, x.shape))


def argwhere(x: TensorLike, size: Dim, fill_value: int = 0) -> Tensor:
    """The indices of `nonzero` as rows: [size, rank of x]. Source: numpy.argwhere.

    Examples:
        >>> run(gc.argwhere([0, 3, 4], size=2))
        Array([[1],
               [2]], dtype=int32)
    """
    return stack(nonzero(x, size, fill_value), 1)


def extract(condition: TensorLike, x: TensorLike, size: Dim, fill_value: TensorLike = 0) -> Tensor:
    """The first `size` elements or rows of `x` where the condition is true: `x[condition]`.

    Args:
        condition: bool (other dtypes: not zero), of the shape of `x` or of its first axes.
        x: any tensor.
        size: the number of elements: an int or a named size.
        fill_value: the value of missing elements.

    Returns:
        [size, ...], in the dtype of `x`.

    Raises:
        ShapeError: the shapes do not fit.

    Source: numpy's indexing by a mask; jax.numpy.extract.

    Examples:
        >>> run(gc.extract([False, True, True], [1, 2, 3], size=2))
        Array([2, 3], dtype=int32)
    """
    mask, values = convert(condition), convert(x)
    if mask.ndim > values.ndim:
        refuse("extract: the condition has more axes than x", condition=mask, x=values)
    rest = values.shape[mask.ndim :]
    rows = reshape(values, (product(mask.shape), *rest))
    return _packed(_true(mask), rows, size, fill_value)


# -- sets ------------------------------------------------------------------------------------


def _firsts(ordered: Tensor) -> Tensor:
    """Whether each element of a sorted vector is the first of its value."""
    if ordered.shape[0] == 0:
        return zeros_like(ordered, "bool")
    x, y = ordered[1:], ordered[:-1]
    differ = not_equal(x, y)
    if is_inexact(x.dtype):  # NaN equals NaN
        differ = differ & ~(isnan(x) & isnan(y))
    return concatenate([ones((1,), "bool"), differ])


def unique(
    x: TensorLike,
    size: Dim,
    fill_value: TensorLike | None = None,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """The distinct elements of `x` in ascending order, with NaN once at the end.

    Args:
        x: any tensor of a real dtype, not empty; raveled.
        size: the number of elements: an int or a named size. Additional elements are dropped.
        fill_value: the value of missing elements; by default the smallest element.
        return_index: also return the position (int32) of the first occurrence of each in `x`.
        return_inverse: also return the position in the result of each element, in the shape of `x`.
        return_counts: also return how often each occurs in `x`; 0 for missing elements.

    Returns:
        [size], or a tuple of that and the other requested results, in this order.

    Source: numpy.unique, jax.numpy.unique.

    Examples:
        >>> run(gc.unique([3, 1, 3], size=2))
        Array([1, 3], dtype=int32)
    """
    x = convert(x)
    values = ravel(x)
    order = argsort(values)
    ordered = take(values, order)
    first = _firsts(ordered)
    results = [_packed(first, ordered, size, ordered[0] if fill_value is None else fill_value)]
    if return_index:
        results.append(_packed(first, order, size, order[0]))
    if return_inverse:
        number = _numbers(first)
        results.append(reshape(scatter(zeros_like(number), order, number), x.shape))
    if return_counts:
        results.append(segment_sum(ones(values.shape, INT32), _numbers(first), size))
    return results[0] if len(results) == 1 else tuple(results)


def isin(
    x: TensorLike, values: TensorLike, invert: bool = False, *, name: str | None = None
) -> Tensor:
    """Whether each element of `x` is among the `values`, as bool; real dtypes.

    With `invert`, whether it is not. NaN is never among them. Source: numpy.isin.

    Examples:
        >>> run(gc.isin([1, 2, 3], [2, 5]))
        Array([False,  True, False], dtype=bool)
    """
    x, known = promote_operands(x, values)
    known = sort(ravel(known))
    if known.shape[0] == 0:
        return full(x.shape, invert)
    found = take(known, searchsorted(known, x), mode="clip")  # beyond the end: the greatest
    return not_equal(x, found, name=name) if invert else equal(x, found, name=name)


def _chosen(values: Tensor, keep: Tensor, size: Dim, fill_value: Any) -> Tensor:
    """The distinct elements of the vector `values` for which `keep` is true, in ascending order.

    `keep` is the same for equal elements.
    """
    order = argsort(values)
    ordered = take(values, order)
    return _packed(_firsts(ordered) & take(keep, order), ordered, size, fill_value)


def intersect1d(x: TensorLike, y: TensorLike, size: Dim, fill_value: TensorLike = 0) -> Tensor:
    """The distinct elements that are in `x` and in `y`, in ascending order.

    Args:
        x, y: real, raveled; dtypes promote.
        size: the number of elements: an int or a named size.
        fill_value: the value of missing elements.

    Source: numpy.intersect1d, jax.numpy.intersect1d.

    Examples:
        >>> run(gc.intersect1d([1, 2, 3], [2, 3, 4], size=2))
        Array([2, 3], dtype=int32)
    """
    x, y = (ravel(t) for t in promote_operands(x, y))
    return _chosen(x, isin(x, y), size, fill_value)


def setdiff1d(x: TensorLike, y: TensorLike, size: Dim, fill_value: TensorLike = 0) -> Tensor:
    """The distinct elements that are in `x` and not in `y`, in ascending order.

    Arguments as in `intersect1d`. Source: numpy.setdiff1d, jax.numpy.setdiff1d.

    Examples:
        >>> run(gc.setdiff1d([1, 2, 3], [2], size=2))
        Array([1, 3], dtype=int32)
    """
    x, y = (ravel(t) for t in promote_operands(x, y))
    return _chosen(x, isin(x, y, invert=True), size, fill_value)


def union1d(x: TensorLike, y: TensorLike, size: Dim, fill_value: TensorLike = 0) -> Tensor:
    """The distinct elements that are in `x` or in `y`, in ascending order.

    Arguments as in `intersect1d`. Source: numpy.union1d, jax.numpy.union1d.

    Examples:
        >>> run(gc.union1d([1, 2], [2, 3], size=3))
        Array([1, 2, 3], dtype=int32)
    """
    both = concatenate([ravel(t) for t in promote_operands(x, y)])
    return _chosen(both, ones(both.shape, "bool"), size, fill_value)


def setxor1d(x: TensorLike, y: TensorLike, size: Dim, fill_value: TensorLike = 0) -> Tensor:
    """The distinct elements that are in only one of `x` and `y`, in ascending order.

    Arguments as in `intersect1d`. Source: numpy.setxor1d, jax.numpy.setxor1d.

    Examples:
        >>> run(gc.setxor1d([1, 2], [2, 3], size=2))
        Array([1, 3], dtype=int32)
    """
    x, y = (ravel(t) for t in promote_operands(x, y))
    both = concatenate([x, y])
    return _chosen(both, not_equal(isin(both, x), isin(both, y)), size, fill_value)
