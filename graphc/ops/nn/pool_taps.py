"""Pooling and its gradients written out, tap by tap of the window."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import is_floating

Ints = tuple[int, ...]


def lowest(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The lowest value of `dtype`, which max pooling uses as padding."""
    return np.array(-np.inf if is_floating(dtype) else np.iinfo(dtype).min, dtype)


def max_by_taps(x: Any, attrs: dict[str, Any]) -> Any:
    """The maximum of each window of x [batch, ..., channels]; any dilation."""
    return functools.reduce(lax.max, _taps(_padded(x, attrs, lowest(x.dtype)), attrs))


def sum_by_taps(x: Any, attrs: dict[str, Any]) -> Any:
    """The sum of each window of x [batch, ..., channels]; padding counts as zeros."""
    padded = _padded(x, attrs, np.zeros((), x.dtype))
    return functools.reduce(lax.add, _taps(padded, attrs))


def max_gradient_by_taps(x: Any, dy: Any, attrs: dict[str, Any]) -> Any:
    """`dy` [batch, ..., channels] at the first tap of each window that holds its maximum.

    Args:
        attrs: window, strides, padding and dilation of the pooling.

    Returns:
        Of the shape of x.
    """
    zero = np.zeros((), dy.dtype)
    numbers = _first_largest(_padded(x, attrs, lowest(x.dtype)), attrs)

    def part(tap: int, dy: Any, numbers: Any) -> Any:
        return jnp.where(numbers == tap, dy, zero)

    given = {"dy": (dy, zero), "numbers": (numbers, np.array(-1, numbers.dtype))}
    return _back(x.shape, attrs, given, part)


def sum_gradient_by_taps(dy: Any, shape: Ints, attrs: dict[str, Any]) -> Any:
    """`dy` [batch, ..., channels] at each tap of its window. `shape` is that of the result."""
    return _back(shape, attrs, {"dy": (dy, np.zeros((), dy.dtype))}, lambda tap, dy: dy)


def _back(
    shape: Ints,
    attrs: dict[str, Any],
    given: dict[str, tuple[Any, Any]],
    part: Callable[..., Any],
) -> Any:
    """The sum over all taps of what each of them adds to the elements that it covers.

    The elements that a tap covers are `strides` apart. So the elements of x are divided into
    classes by their position modulo the strides. Each class is the sum of its shifted taps, and the
    classes are interleaved at the end. All operations are elementwise, and nothing is scattered.

    Args:
        shape: of x.
        given: arrays with an element for each window, and what they have where no window is.
        part: what tap number n adds, from the elements of these arrays.
    """
    strides, dilation = attrs["strides"], _dilation(attrs)
    starts = [_start(tap, dilation) for tap in np.ndindex(*attrs["window"])]
    extents = [n + sum(pads) for n, pads in zip(shape[1:-1], attrs["padding"], strict=True)]
    sizes = [-(-n // step) for n, step in zip(extents, strides, strict=True)]
    most = [last // step for last, step in zip(starts[-1], strides, strict=True)]
    arrays = {}
    # Padded once and sliced for each tap, because XLA would materialize each of several paddings.
    for name, (array, outside) in given.items():
        rows = zip(most, sizes, array.shape[1:-1], strict=True)
        sides = [(0, 0, 0), *((shift, size - n, 0) for shift, size, n in rows), (0, 0, 0)]
        arrays[name] = lax.pad(array, outside, sides)
    classes: dict[Ints, Any] = {}
    for tap, start in enumerate(starts):
        shifts = [first // step for first, step in zip(start, strides, strict=True)]
        froms = [last - shift for last, shift in zip(most, shifts, strict=True)]
        there = [slice(first, first + size) for first, size in zip(froms, sizes, strict=True)]
        added = part(tap, **{name: array[:, *there, :] for name, array in arrays.items()})
        rest = tuple(first % step for first, step in zip(start, strides, strict=True))
        classes[rest] = classes[rest] + added if rest in classes else added
    return sum(_spread(each, rest, shape, attrs) for rest, each in classes.items())


def _spread(part: Any, rest: Ints, shape: Ints, attrs: dict[str, Any]) -> Any:
    """The elements of a class at their positions in x, which has the shape `shape`, with zeros
    between."""
    sides = []
    rows = zip(rest, attrs["strides"], attrs["padding"], part.shape[1:-1], shape[1:-1], strict=True)
    for first, step, (low, _), count, size in rows:
        before = first - low
        sides.append((before, size - before - (count - 1) * step - 1, step - 1))
    return lax.pad(part, np.zeros((), part.dtype), [(0, 0, 0), *sides, (0, 0, 0)])


def _first_largest(padded: Any, attrs: dict[str, Any]) -> Any:
    """The index of the first tap of each window that holds its maximum."""
    largest: Any = None
    numbers: Any = None
    dtype = np.int8 if np.prod(attrs["window"]) < 128 else np.int32
    for tap, values in enumerate(_taps(padded, attrs)):
        if largest is None:
            largest, numbers = values, jnp.zeros(values.shape, dtype)
            continue
        more = ~(largest >= values)  # as in JAX: true if either side is NaN
        largest = jnp.where(more, values, largest)
        numbers = jnp.where(more, np.array(tap, dtype), numbers)
    # The barrier keeps the indices: otherwise XLA searches the window again for each tap (7 times
    # slower).
    return lax.optimization_barrier(numbers)


def _padded(x: Any, attrs: dict[str, Any], value: Any) -> Any:
    sides = [(0, 0), *attrs["padding"], (0, 0)]
    return lax.pad(x, value, [(low, high, 0) for low, high in sides])


def _dilation(attrs: dict[str, Any]) -> Ints:
    """The steps between the taps: average pooling has no such attribute."""
    return tuple(attrs.get("dilation", (1,) * len(attrs["window"])))


def _start(tap: Ints, dilation: Ints) -> Ints:
    """The first position of a tap."""
    return tuple(i * d for i, d in zip(tap, dilation, strict=True))


def _taps(padded: Any, attrs: dict[str, Any]) -> Iterator[Any]:
    """The values of each tap of the window at all positions."""
    dilation = _dilation(attrs)
    reach = [(w - 1) * d for w, d in zip(attrs["window"], dilation, strict=True)]
    for tap in np.ndindex(*attrs["window"]):
        start = _start(tap, dilation)
        end = [n - r + s for n, r, s in zip(padded.shape[1:-1], reach, start, strict=True)]
        limits = [padded.shape[0], *end, padded.shape[-1]]
        yield lax.slice(padded, (0, *start, 0), limits, (1, *attrs["strides"], 1))
