"""Tensors of evenly spaced numbers and of indices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim, product
from graphc.ir.dtypes import FLOAT64, INT32, as_dtype, is_complex, is_integer
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.shape import broadcast_to, reshape
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.emit import constant, convert, dim_value, promote_inexact, to_dtype
from graphc.ops.core.precision import wide, wide_integer
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.arithmetic import floor_divide, multiply, remainder
from graphc.ops.elementwise.comparison import equal, less, where
from graphc.ops.elementwise.powers import power
from graphc.ops.elementwise.rounding import floor
from graphc.ops.elementwise.transcendental import exp, log
from graphc.typing import DTypeLike, ShapeLike, TensorLike

__all__ = [
    "geomspace",
    "indices",
    "linspace",
    "logspace",
    "meshgrid",
    "ravel_multi_index",
    "unravel_index",
]


def linspace(
    start: TensorLike,
    stop: TensorLike,
    num: Dim = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """`num` evenly spaced numbers from `start` to `stop`, along a new first axis.

    Args:
        start, stop: numbers or tensors, which broadcast together; integers give float32.
        num: the number of elements: an int or a named size.
        endpoint: whether `stop` is the last of them.
        dtype: of the result; by default the dtype of `start` and `stop`. Integers are rounded down.

    Source: numpy.linspace.

    Examples:
        >>> run(gc.linspace(0.0, 1.0, 5))
        Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    if dtype is not None and as_dtype(dtype) == FLOAT64:  # numbers of Python keep their digits
        start, stop = (convert(e, FLOAT64) if isinstance(e, float) else e for e in (start, stop))
    given = promote_inexact(start, stop)
    wanted = given[0].dtype if dtype is None else as_dtype(dtype)
    first, last = (to_dtype(end, wide(end.dtype)) for end in given)
    (count,) = as_dims("linspace", (num,))
    rank = max(first.ndim, last.ndim)
    steps = iota((count, *(1,) * rank), 0, INT32)
    number = dim_value(count - 1 if endpoint else count)
    past, whole = (to_dtype(n, first.dtype) for n in (steps, where(equal(number, 0), 1, number)))
    if is_integer(wanted):  # dividing last keeps integers exact
        return to_dtype(floor(first + past * (last - first) / whole), wanted)
    # XLA may multiply by 1 / whole, but the last number must be exactly `stop`.
    share = where(equal(past, whole), 1, past / whole)
    return to_dtype(first * (1 - share) + last * share, wanted)


def logspace(
    start: TensorLike,
    stop: TensorLike,
    num: Dim = 50,
    endpoint: bool = True,
    base: float = 10.0,
    *,
    name: str | None = None,
) -> Tensor:
    """`base` to the powers of `linspace`. Source: numpy.logspace.

    Examples:
        >>> run(gc.logspace(0.0, 2.0, 3))
        Array([  1.,  10., 100.], dtype=float32)
    """
    return power(base, linspace(start, stop, num, endpoint), name=name)


def geomspace(
    start: TensorLike,
    stop: TensorLike,
    num: Dim = 50,
    endpoint: bool = True,
    *,
    name: str | None = None,
) -> Tensor:
    """`num` numbers of the same sign from `start` to `stop` with equal ratios.

    NaN if the signs differ. Source: numpy.geomspace.

    Examples:
        >>> run(gc.geomspace(1.0, 100.0, 3))
        Array([  1.,  10., 100.], dtype=float32)
    """
    given = promote_inexact(start, stop)
    first, last = (to_dtype(end, wide(end.dtype)) for end in given)
    sign = 1 if is_complex(first.dtype) else where(less(first, 0), -1, 1)
    sizes = exp(linspace(log(first * sign), log(last * sign), num, endpoint))
    return to_dtype(multiply(sizes, sign, name=name), given[0].dtype)


def meshgrid(*xs: TensorLike, indexing: str = "xy", sparse: bool = False) -> tuple[Tensor, ...]:
    """The vectors repeated to grids, one for each: coordinates of all points.

    Args:
        xs: vectors or scalars.
        indexing: "xy" exchanges the first two axes, as plots do; "ij" does not.
        sparse: keep axes of size 1 instead of repeating.

    Raises:
        AttributeValueError: another `indexing`.

    Source: numpy.meshgrid.

    Examples:
        >>> run(gc.meshgrid([1, 2], [3, 4]))
        (Array([[1, 2],
               [1, 2]], dtype=int32), Array([[3, 3],
               [4, 4]], dtype=int32))
    """
    if indexing not in ("xy", "ij"):
        refuse(
            f'meshgrid: indexing must be "xy" or "ij", got {indexing!r}', error=AttributeValueError
        )
    vectors = [reshape(x, (-1,)) for x in xs]
    axes = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        axes[:2] = [1, 0]
    open_ones = [
        reshape(v, [v.shape[0] if i == axis else 1 for i in range(len(xs))])
        for v, axis in zip(vectors, axes, strict=True)
    ]
    if sparse:
        return tuple(open_ones)
    shape: list[Dim] = [1] * len(xs)
    for vector, axis in zip(vectors, axes, strict=True):
        shape[axis] = vector.shape[0]
    return tuple(broadcast_to(x, shape) for x in open_ones)


def indices(shape: ShapeLike, dtype: DTypeLike = INT32, *, name: str | None = None) -> Tensor:
    """Each point's index along each axis of a grid of `shape`: [rank, *shape].

    Source: numpy.indices.

    Examples:
        >>> rows, columns = gc.indices((2, 3))
        >>> run(columns)
        Array([[0, 1, 2],
               [0, 1, 2]], dtype=int32)
    """
    dims = as_dims("indices", shape)
    return stack([iota(dims, axis, dtype) for axis in range(len(dims))], name=name)


def _index(value: Any, end: Dim, what: str, function: str) -> Tensor:
    tensor = in_range(convert(value), 0, end, what, of=function)
    return to_dtype(tensor, wide_integer(tensor.dtype))


def unravel_index(places: TensorLike, shape: ShapeLike) -> tuple[Tensor, ...]:
    """The indices along each axis of `shape`, from positions in row-major order.

    Positions out of range give indices out of range along the first axis, and raise an error in
    runs with `CompileOptions(check_numerics=True)`.

    Source: numpy.unravel_index, for positions in range.

    Examples:
        >>> run(gc.unravel_index([1, 5], (2, 3)))
        (Array([0, 1], dtype=int32), Array([1, 2], dtype=int32))
    """
    dims = as_dims("unravel_index", shape)
    if not dims:
        return ()  # the place in a scalar has no index, so no run can check it
    rest = _index(places, product(dims), "places", "unravel_index")
    found = []
    for size in dims[:0:-1]:
        length = dim_value(size, rest.dtype)
        found.append(remainder(rest, length))
        rest = floor_divide(rest, length)
    return (rest, *found[::-1])


def ravel_multi_index(index: Iterable[TensorLike], shape: ShapeLike) -> Tensor:
    """The positions in row-major order, from indices along each axis of `shape`.

    Indices out of range give the position of another element or an invalid position, and raise an
    error in runs with `CompileOptions(check_numerics=True)`.

    Source: numpy.ravel_multi_index, for indices in range.

    Examples:
        >>> run(gc.ravel_multi_index(([0, 1], [1, 2]), (2, 3)))
        Array([1, 5], dtype=int32)
    """
    dims = as_dims("ravel_multi_index", shape)
    given = list(index)
    if len(given) != len(dims):
        refuse(f"ravel_multi_index: {len(given)} indices for {len(dims)} axes")
    parts = [
        _index(part, size, "indices", "ravel_multi_index")
        for part, size in zip(given, dims, strict=True)
    ]
    place = parts[0] if parts else constant(0)
    for part, size in zip(parts[1:], dims[1:], strict=True):
        place = multiply(place, dim_value(size, place.dtype)) + part
    return place
