"""Inclusive prefix results of an associative function, in a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from graphc.errors import AttributeValueError, DTypeError
from graphc.ir.node import Tensor
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import reshape
from graphc.ops.arrays.slicing import flip, slice_
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import refuse, same_shape
from graphc.ops.core.emit import convert
from graphc.typing import TensorTree

__all__ = ["associative_scan"]

Leaves = Sequence[Tensor]
Combine = Callable[[Leaves, Leaves], list[Tensor]]


def associative_scan(
    f: Callable[[TensorTree, TensorTree], TensorTree],
    elems: TensorTree,
    *,
    reverse: bool = False,
    axis: int = 0,
) -> TensorTree:
    """The inclusive prefix results of an associative function: e0, f(e0, e1), ...

    `scan` takes n steps. This function takes about 2 log2(n) steps, each over many elements at
    once, and does about twice the work. It is meant for recurrences over long sequences.

    Args:
        f: a function of two nests like `elems`. It combines them element by element along `axis`
            and returns such a nest. f(a, f(b, c)) = f(f(a, b), c) must hold. It is called about
            2 log2(n) times, while the graph is built.
        elems: a nest (tuples, lists, dicts) of tensors of one known size n along `axis`.
        reverse: combine from each element to the last. The result for the later elements is then
            the first argument of `f`.
        axis: the axis to combine along.

    Returns:
        A nest like `elems`.

    Raises:
        AttributeValueError: there is no tensor, the axis is out of range, or `f` returns another
            nest.
        ShapeError: sizes along the axis differ or are not known, or `f` returns other shapes.
        DTypeError: `f` returns other dtypes.

    Source: Blelloch, Prefix sums and their applications, CMU-CS-90-190, 1990;
    jax.lax.associative_scan.

    Examples:
        >>> run(gc.associative_scan(gc.multiply, gc.constant([1, 2, 3, 4])))
        Array([ 1,  2,  6, 24], dtype=int32)
    """
    leaves, tree = jax.tree.flatten(elems)
    tensors = [convert(leaf) for leaf in leaves]
    if not tensors:
        refuse("associative_scan: there are no elements", error=AttributeValueError)
    axes = [normalize_axis("associative_scan", x, axis) for x in tensors]
    _check_sizes(tensors, axes)
    if reverse:
        tensors = [flip(x, i) for x, i in zip(tensors, axes, strict=True)]
    totals: Leaves = _totals(_on_leaves(f, tree), tensors, axes)
    if reverse:
        totals = [flip(x, i) for x, i in zip(totals, axes, strict=True)]
    return jax.tree.unflatten(tree, totals)


def _on_leaves(f: Callable[[TensorTree, TensorTree], TensorTree], tree: Any) -> Combine:
    """`f` as a function of the leaves of two nests. It checks what `f` returns."""

    def combine(a: Leaves, b: Leaves) -> list[Tensor]:
        found, found_tree = jax.tree.flatten(
            f(jax.tree.unflatten(tree, a), jax.tree.unflatten(tree, b))
        )
        if found_tree != tree:
            refuse(
                f"associative_scan: the elements are {tree}, and f gives {found_tree}",
                error=AttributeValueError,
            )
        results = [convert(x) for x in found]
        for x, y in zip(a, results, strict=True):
            _check_alike(x, y)
        return results

    return combine


def _check_sizes(tensors: Leaves, axes: Sequence[int]) -> None:
    sizes = [x.shape[i] for x, i in zip(tensors, axes, strict=True)]
    for x, size in zip(tensors, sizes, strict=True):
        if not isinstance(size, int):
            refuse(
                f"associative_scan: the size {size} along the axis must be known",
                hint="gc.scan takes named sizes",
                x=x,
            )
        if size != sizes[0]:
            refuse(
                f"associative_scan: sizes along the axis differ, {sizes[0]} and {size}",
                first=tensors[0],
                other=x,
            )


def _check_alike(given: Tensor, made: Tensor) -> None:
    if not same_shape(given.shape, made.shape, given):
        refuse("associative_scan: f gives another shape than it takes", takes=given, gives=made)
    if given.dtype != made.dtype:
        refuse(
            "associative_scan: f gives another dtype than it takes",
            error=DTypeError,
            takes=given,
            gives=made,
        )


def _totals(combine: Combine, xs: Leaves, axes: Sequence[int]) -> Leaves:
    """The prefix results. Those of pairs are computed first; they are the results at odd positions.
    Each other result takes one more call of `combine`."""

    def cut(xs: Leaves, start: int, stop: int, step: int = 1) -> list[Tensor]:
        return [_cut(x, i, start, stop, step) for x, i in zip(xs, axes, strict=True)]

    size: Any = xs[0].shape[axes[0]]
    if size < 2:
        return xs
    pairs = combine(cut(xs, 0, size - 1, 2), cut(xs, 1, size, 2))
    odd = _totals(combine, pairs, axes)
    even = cut(xs, 0, 1)
    if size > 2:
        later = combine(cut(odd, 0, (size - 1) // 2), cut(xs, 2, size, 2))
        even = [concatenate([x, y], i) for x, y, i in zip(even, later, axes, strict=True)]
    return [_interleaved(x, y, i) for x, y, i in zip(even, odd, axes, strict=True)]


def _cut(x: Tensor, axis: int, start: int, stop: int, step: int) -> Tensor:
    if (start, stop, step) == (0, x.shape[axis], 1):
        return x
    starts = [start if i == axis else 0 for i in range(x.ndim)]
    limits = [stop if i == axis else size for i, size in enumerate(x.shape)]
    return slice_(x, starts, limits, [step if i == axis else 1 for i in range(x.ndim)])


def _interleaved(even: Tensor, odd: Tensor, axis: int) -> Tensor:
    """The elements of the two, alternating. `even` has as many as `odd`, or one more."""
    count: Any = odd.shape[axis]
    front = _cut(even, axis, 0, count, 1)
    shape = [2 * count if i == axis else size for i, size in enumerate(odd.shape)]
    both = reshape(stack([front, odd], axis + 1), shape)
    if even.shape[axis] == count:
        return both
    return concatenate([both, _cut(even, axis, count, count + 1, 1)], axis)
