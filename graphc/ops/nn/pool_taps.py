"""Pooling and its gradients written out, tap by tap of the window."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ops.core.precision import lowest
from graphc.ops.nn.windows import Ints, outside_space, views


def max_by_taps(x: Any, attrs: dict[str, Any]) -> Any:
    """The maximum of each window of x [batch, ..., channels]; any dilation."""
    return functools.reduce(lax.max, _taps(x, attrs, lowest(x.dtype)))


def sum_by_taps(x: Any, attrs: dict[str, Any]) -> Any:
    """The sum of each window of x [batch, ..., channels]; padding counts as zeros."""
    return functools.reduce(lax.add, _taps(x, attrs, np.zeros((), x.dtype)))


def max_gradient_by_taps(x: Any, dy: Any, attrs: dict[str, Any]) -> Any:
    """`dy` [batch, ..., channels] at the first tap of each window that holds its maximum.

    Args:
        attrs: window, strides, padding and dilation of the pooling.

    Returns:
        Of the shape of x.
    """
    zero = np.zeros((), dy.dtype)
    numbers = _first_largest(x, attrs)

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
    starts = [np.multiply(tap, dilation).tolist() for tap in np.ndindex(*attrs["window"])]
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


def _first_largest(x: Any, attrs: dict[str, Any]) -> Any:
    """The index of the first tap of each window that holds its maximum."""
    largest: Any = None
    numbers: Any = None
    dtype = np.int8 if np.prod(attrs["window"]) < 128 else np.int32
    for tap, values in enumerate(_taps(x, attrs, lowest(x.dtype))):
        if largest is None:
            largest, numbers = values, jnp.zeros(values.shape, dtype)
            continue
        more = ~(largest >= values)  # as in JAX: true if either side is NaN
        largest = jnp.where(more, values, largest)
        numbers = jnp.where(more, np.array(tap, dtype), numbers)
    # The barrier keeps the indices: otherwise XLA searches the window again for each tap (7 times
    # slower).
    return lax.optimization_barrier(numbers)


def _dilation(attrs: dict[str, Any]) -> Ints:
    """The steps between the taps: average pooling has no such attribute."""
    return tuple(attrs.get("dilation", (1,) * len(attrs["window"])))


def _taps(x: Any, attrs: dict[str, Any], outside: Any) -> Iterator[Any]:
    """The values of each tap of the window at all positions, and `outside` in the padding."""
    padded = lax.pad(x, outside, outside_space(attrs["padding"]))
    found = views(padded, attrs["window"], {**attrs, "dilation": _dilation(attrs)})
    return (values for _, values in found)
