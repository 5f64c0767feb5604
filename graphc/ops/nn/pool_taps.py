"""Max pooling and its gradient written out, tap by tap of the window."""

from __future__ import annotations

import functools
from collections.abc import Iterator
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
    return functools.reduce(lax.max, [values for values, _ in _taps(_padded(x, attrs), attrs)])


def max_gradient_by_taps(x: Any, dy: Any, attrs: dict[str, Any]) -> Any:
    """`dy` [batch, ..., channels] at the first tap of each window that holds its maximum.

    The elements that a tap covers are `strides` apart. So the elements of x are divided into
    classes by their position modulo the strides. Each class is the sum of its shifted taps, and the
    classes are interleaved at the end. All operations are elementwise, and nothing is scattered.

    Args:
        attrs: window, strides, padding and dilation of the pooling.

    Returns:
        Of the shape of x.
    """
    padded, strides = _padded(x, attrs), attrs["strides"]
    numbers, starts = _first_largest(padded, attrs)
    sizes = [-(-n // step) for n, step in zip(padded.shape[1:-1], strides, strict=True)]
    most = [last // step for last, step in zip(starts[-1], strides, strict=True)]
    rows = zip(most, sizes, dy.shape[1:-1], strict=True)
    sides = [(0, 0, 0), *((shift, size - n, 0) for shift, size, n in rows), (0, 0, 0)]
    # Padded once and sliced for each tap, because XLA would materialize each of several paddings.
    zero = np.zeros((), dy.dtype)
    dy, numbers = lax.pad(dy, zero, sides), lax.pad(numbers, np.array(-1, numbers.dtype), sides)
    classes: dict[Ints, Any] = {}
    for tap, start in enumerate(starts):
        shifts = [first // step for first, step in zip(start, strides, strict=True)]
        froms = [last - shift for last, shift in zip(most, shifts, strict=True)]
        there = [slice(first, first + size) for first, size in zip(froms, sizes, strict=True)]
        part = jnp.where(numbers[:, *there, :] == tap, dy[:, *there, :], zero)
        rest = tuple(first % step for first, step in zip(start, strides, strict=True))
        classes[rest] = classes[rest] + part if rest in classes else part
    return sum(_spread(part, rest, x.shape, attrs) for rest, part in classes.items())


def _spread(part: Any, rest: Ints, shape: Ints, attrs: dict[str, Any]) -> Any:
    """The elements of a class at their positions in x, which has the shape `shape`, with zeros
    between."""
    sides = []
    rows = zip(rest, attrs["strides"], attrs["padding"], part.shape[1:-1], shape[1:-1], strict=True)
    for first, step, (low, _), count, size in rows:
        before = first - low
        sides.append((before, size - before - (count - 1) * step - 1, step - 1))
    return lax.pad(part, np.zeros((), part.dtype), [(0, 0, 0), *sides, (0, 0, 0)])


def _first_largest(padded: Any, attrs: dict[str, Any]) -> tuple[Any, list[Ints]]:
    """The index of the first tap of each window that holds its maximum, and the starts of the
    taps."""
    starts: list[Ints] = []
    largest: Any = None
    numbers: Any = None
    dtype = np.int8 if np.prod(attrs["window"]) < 128 else np.int32
    for tap, (values, start) in enumerate(_taps(padded, attrs)):
        starts.append(start)
        if largest is None:
            largest, numbers = values, jnp.zeros(values.shape, dtype)
            continue
        more = ~(largest >= values)  # as in JAX: true if either side is NaN
        largest = jnp.where(more, values, largest)
        numbers = jnp.where(more, np.array(tap, dtype), numbers)
    # The barrier keeps the indices: otherwise XLA searches the window again for each tap (7 times
    # slower).
    return lax.optimization_barrier(numbers), starts


def _padded(x: Any, attrs: dict[str, Any]) -> Any:
    sides = [(0, 0), *attrs["padding"], (0, 0)]
    return lax.pad(x, lowest(x.dtype), [(low, high, 0) for low, high in sides])


def _taps(padded: Any, attrs: dict[str, Any]) -> Iterator[tuple[Any, Ints]]:
    """For each tap of the window: its values at all positions, and its first position."""
    dilation = attrs["dilation"]
    reach = [(w - 1) * d for w, d in zip(attrs["window"], dilation, strict=True)]
    for tap in np.ndindex(*attrs["window"]):
        start = tuple(i * d for i, d in zip(tap, dilation, strict=True))
        end = [n - r + s for n, r, s in zip(padded.shape[1:-1], reach, start, strict=True)]
        limits = [padded.shape[0], *end, padded.shape[-1]]
        yield lax.slice(padded, (0, *start, 0), limits, (1, *attrs["strides"], 1)), start
