"""Rules of gather and scatter: the forms that JAX uses for indexing with values.

graphc's operators replace the forms of `x[i]`, `x[i, j]`, `jnp.take`, `jnp.take_along_axis`,
`x.at[i].add(y)`, `.set`, `.multiply`, `.min`, `.max` and their `jax.vmap`s, and of windows at one
computed position. All other forms, such as several windows (`x.at[i, 1:3]`), stay primitives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from graphc.ir.dims import Dim, Shape, product
from graphc.ir.dtypes import INT32, UINT32, is_64bit
from graphc.ir.node import Tensor
from graphc.jaxpr import calls
from graphc.jaxpr.equation import Equation, Results, Rule
from graphc.jaxpr.opaque import opaque
from graphc.jaxpr.primitives import primitive
from graphc.jaxpr.shapes import inverse, transposed
from graphc.jaxpr.windows import dynamic_slice, dynamic_update_slice, in_range
from graphc.ops.arrays.along_axis import scatter_add_along_axis, take_along_axis
from graphc.ops.arrays.creation import iota, zeros_like
from graphc.ops.arrays.gathering import fill_value_of
from graphc.ops.arrays.index_frames import frame_of, index_vectors
from graphc.ops.arrays.indexing import scatter_add, take
from graphc.ops.arrays.scattering_nd import scatter_at
from graphc.ops.arrays.shape import broadcast_to, reshaped
from graphc.ops.arrays.slicing import slice_
from graphc.ops.core.emit import constant, dim_value, to_dtype
from graphc.ops.elementwise.arithmetic import clip, maximum
from graphc.ops.elementwise.comparison import greater_equal, less, logical_and, where

Axes = tuple[int, ...]
_Label = tuple[str, int]

_CLIP = lax.GatherScatterMode.CLIP
_FILL = lax.GatherScatterMode.FILL_OR_DROP


class _Form(NamedTuple):
    """A gather or a scatter, by the roles of the operand's axes.

    Attributes:
        chosen: axes along which an index selects. The result does not have them.
        windows: axes that the result keeps.
        starts: the chosen axis of each column of the indices.
        batching: (axis of the operand, axis of the indices) that are paired.
        target: the origin of each axis of the gather's result: ("window", axis of the operand) or
            ("index", axis of the indices).
    """

    chosen: Axes
    windows: Axes
    starts: Axes
    batching: tuple[tuple[int, int], ...]
    target: tuple[_Label, ...]


# The fields of JAX's dimension numbers that `_form` reads.
_OF_GATHER = (
    *("start_index_map", "collapsed_slice_dims", "operand_batching_dims"),
    *("start_indices_batching_dims", "offset_dims"),
)
_OF_SCATTER = (
    *("scatter_dims_to_operand_dims", "inserted_window_dims", "operand_batching_dims"),
    *("scatter_indices_batching_dims", "update_window_dims"),
)


def _form(eqn: Equation, x: Tensor, indices: Tensor, fields: Sequence[str]) -> _Form:
    numbers = eqn.params["dimension_numbers"]
    starts, dropped, batching, of_indices, kept = (
        tuple([int(i) for i in getattr(numbers, field)]) for field in fields
    )
    chosen = tuple(sorted({*dropped, *batching}))
    windows = tuple(i for i in range(x.ndim) if i not in chosen)
    window, index = iter(windows), iter(range(indices.ndim - 1))
    target = tuple(
        ("window", next(window)) if i in kept else ("index", next(index))
        for i in range(len(kept) + indices.ndim - 1)
    )
    return _Form(chosen, windows, starts, tuple(zip(batching, of_indices, strict=True)), target)


def _mode(eqn: Equation, of_promised: lax.GatherScatterMode) -> Any:
    """The mode of a gather or a scatter; `of_promised` if indices are promised to be in range.
    Those that JAX's indexing makes are not always: XLA's gather clips them, its scatter drops
    them."""
    mode = eqn.params["mode"]
    return of_promised if mode == lax.GatherScatterMode.PROMISE_IN_BOUNDS else mode


# -- indices -----------------------------------------------------------------------------------


def _column(indices: Tensor, j: int) -> Tensor:
    """Column j of the indices, without the last axis."""
    shape = indices.shape
    if shape[-1] != 1:
        lead = [0] * (len(shape) - 1)
        indices = slice_(indices, (*lead, j), (*shape[:-1], j + 1))
    return reshaped(indices, shape[:-1])


def _guarded(index: Tensor, mode: Any) -> Tensor:
    """Makes negative indices out of range, as in JAX's primitive. In graphc's operators they count
    from the end."""
    if index.dtype.kind == "u":
        return index
    if mode == _CLIP:
        index = maximum(index, 0)
    return to_dtype(index, np.dtype(np.uint64) if is_64bit(index.dtype) else UINT32)


def _flat_index(x: Tensor, indices: Tensor, form: _Form, mode: Any) -> tuple[Tensor, Tensor | None]:
    """One index into the merged chosen axes, and which indices are in range (None: all)."""
    dtype = indices.dtype if is_64bit(indices.dtype) else INT32
    shape = indices.shape[:-1]
    columns: dict[int, Tensor] = {}
    for axis, index_axis in form.batching:
        columns[axis] = iota(shape, index_axis, dtype)
    valid: Tensor | None = None
    for j, axis in enumerate(form.starts):
        column = to_dtype(_column(indices, j), dtype)
        last = dim_value(x.shape[axis] - 1, dtype)
        if mode == _FILL:
            inside = logical_and(greater_equal(column, 0), less(column, last + 1))
            valid = inside if valid is None else logical_and(valid, inside)
        columns[axis] = clip(column, 0, last)
    flat: Tensor | None = None
    for axis in form.chosen:
        if flat is not None:
            flat = flat * dim_value(x.shape[axis], dtype)
        if axis in columns:
            flat = columns[axis] if flat is None else flat + columns[axis]
    return constant(np.zeros((), dtype)) if flat is None else flat, valid


def _along(x: Tensor, indices: Tensor, form: _Form) -> tuple[Tensor, tuple[_Label, ...]] | None:
    """The equivalent indices of `take_along_axis`, and the origins of its result's axes.

    None if the indices have more than one axis that is not paired with an axis of the operand.
    """
    if len(form.starts) != 1 or len(form.chosen) != len(form.batching) + 1:
        return None
    paired = dict(form.batching)
    free = [i for i in range(indices.ndim - 1) if i not in paired.values()]
    if len(free) > 1:
        return None
    (axis,) = form.starts
    paired[axis] = free[0] if free else -1
    order = [paired[a] for a in form.chosen if paired[a] >= 0]
    column = transposed(_column(indices, 0), tuple(order))
    sizes = iter(column.shape)
    shape: list[Dim] = [next(sizes) if paired.get(a, -1) >= 0 else 1 for a in range(x.ndim)]
    labels = tuple(
        ("window", a) if a in form.windows else ("index", paired[a]) for a in range(x.ndim)
    )
    return reshaped(column, tuple(shape)), labels


def _arranged(y: Tensor, labels: Sequence[_Label], form: _Form, shape: Shape) -> Tensor:
    """`y`, whose axes are `labels`, as the gather's result; an axis ("index", -1) is dropped."""
    kept = [label for label in labels if label != ("index", -1)]
    sizes = {label: size for label, size in zip(labels, y.shape, strict=True)}
    y = reshaped(y, tuple([sizes[label] for label in kept]))
    return reshaped(transposed(y, tuple([kept.index(t) for t in form.target])), shape)


def _disarranged(updates: Tensor, labels: Sequence[_Label], form: _Form) -> Tensor:
    """The inverse: `updates`, which has the axes of the gather's result, with the axes `labels`."""
    kept = [label for label in labels if label != ("index", -1)]
    updates = transposed(updates, tuple([form.target.index(label) for label in kept]))
    sizes = dict(zip(kept, updates.shape, strict=True))
    return reshaped(updates, tuple([sizes.get(label, 1) for label in labels]))


def _taken_labels(form: _Form, index_rank: int, axis: int) -> tuple[_Label, ...]:
    """The origins of the axes of `take(x, indices, axis)`."""
    index = tuple(("index", i) for i in range(index_rank))
    before = tuple(("window", a) for a in form.windows if a < axis)
    after = tuple(("window", a) for a in form.windows if a > axis)
    return (*before, *index, *after)


# -- gather ------------------------------------------------------------------------------------


def _gather(eqn: Equation, x: Tensor, indices: Tensor) -> Results:
    mode, form = _mode(eqn, _CLIP), _form(eqn, x, indices, _OF_GATHER)
    sizes = eqn.symbols.dims(eqn.params["slice_sizes"])
    fill = _fill(eqn, x) if mode == _FILL else None
    windows = not set(form.starts) <= set(form.chosen)
    if (windows and indices.ndim != 1) or not _is_ours(fill, x):
        return primitive(eqn, x, indices)
    if windows:
        return _gather_window(eqn, x, indices, form, sizes, fill)
    if any(sizes[a] != x.shape[a] for a in form.windows):
        x = slice_(
            x, [0] * x.ndim, [sizes[a] if a in form.windows else d for a, d in enumerate(x.shape)]
        )
    ours = "clip" if fill is None else "zero" if fill == 0 else "fill"
    if len(form.chosen) == 1 and not form.batching and form.starts:
        (axis,) = form.chosen
        y = take(x, _guarded(_column(indices, 0), mode), axis, ours)
        return _arranged(y, _taken_labels(form, indices.ndim - 1, axis), form, eqn.type.shape)
    along = _along(x, indices, form)
    if along is not None:
        y = take_along_axis(x, _guarded(along[0], mode), form.starts[0], ours)
        return _arranged(y, along[1], form, eqn.type.shape)
    return _gather_flat(eqn, x, indices, form, fill)


def _gather_flat(eqn: Equation, x: Tensor, indices: Tensor, form: _Form, fill: Any) -> Tensor:
    """A gather along several chosen axes, which are merged into one."""
    flat, valid = _flat_index(x, indices, form, _CLIP if fill is None else _FILL)
    y = take(_merged(x, form), flat, 0, "clip")
    if valid is not None:
        mask = reshaped(valid, (*valid.shape, *[1] * len(form.windows)))
        y = where(mask, y, constant(fill, x.dtype))
    labels = (*_taken_labels(form, indices.ndim - 1, -1),)
    return _arranged(y, labels, form, eqn.type.shape)


def _merged(x: Tensor, form: _Form) -> Tensor:
    """`x` with the chosen axes merged into a first one."""
    moved = transposed(x, (*form.chosen, *form.windows))
    count = len(form.chosen)
    return reshaped(moved, (product(moved.shape[:count]), *moved.shape[count:]))


def _fill(eqn: Equation, x: Tensor) -> Any:
    """The value that replaces an element out of range."""
    given = eqn.params["fill_value"]
    return fill_value_of(x.dtype, "fill") if given is None else np.asarray(given).astype(x.dtype)


def _is_ours(fill: Any, x: Tensor) -> bool:
    """Whether graphc's operators support this value for elements out of range (None: no value)."""
    default = fill_value_of(x.dtype, "fill")
    both_nan = fill != fill and default != default
    return bool(fill is None or fill == 0 or fill == default or both_nan)


def _starts(x: Tensor, indices: Tensor, form: _Form) -> list[Tensor]:
    """The start of the single window along each axis."""
    zero = constant(np.zeros((), indices.dtype))
    found = {axis: _column(indices, j) for j, axis in enumerate(form.starts)}
    return [found.get(axis, zero) for axis in range(x.ndim)]


def _gather_window(
    eqn: Equation, x: Tensor, indices: Tensor, form: _Form, sizes: Shape, fill: Any
) -> Tensor:
    starts = _starts(x, indices, form)
    y = reshaped(dynamic_slice(x, starts, sizes), eqn.type.shape)
    inside = None if fill is None else in_range(x, starts, sizes)
    return y if inside is None else where(inside, y, constant(fill, x.dtype))


# -- scatter -----------------------------------------------------------------------------------


def _scatter_add(eqn: Equation, x: Tensor, indices: Tensor, updates: Tensor) -> Results:
    form, mode = _form(eqn, x, indices, _OF_SCATTER), _mode(eqn, _FILL)
    kept = {a: updates.shape[form.target.index(("window", a))] for a in form.windows}
    whole = all(kept[a] == x.shape[a] for a in form.windows)
    if not whole or not set(form.starts) <= set(form.chosen):
        if indices.ndim != 1:
            return primitive(eqn, x, indices, updates)
        added = _update_window(zeros_like(x), indices, updates, form, mode)
        return x + added
    ours = "drop" if mode == _FILL else "clip"
    if len(form.chosen) == 1 and not form.batching and form.starts:
        (axis,) = form.chosen
        labels = _taken_labels(form, indices.ndim - 1, axis)
        index = _guarded(_column(indices, 0), mode)
        return scatter_add(x, index, _disarranged(updates, labels, form), axis, ours)
    along = _along(x, indices, form)
    if along is not None and not form.windows:
        index, labels = _guarded(along[0], mode), along[1]
        added = _disarranged(updates, labels, form)
        return scatter_add_along_axis(x, index, added, form.starts[0], ours)
    return _scatter_flat(x, indices, updates, form, mode)


def _scatter_flat(x: Tensor, indices: Tensor, updates: Tensor, form: _Form, mode: Any) -> Tensor:
    flat, valid = _flat_index(x, indices, form, mode)
    merged = _merged(x, form)
    if valid is not None:
        flat = where(valid, flat, dim_value(merged.shape[0], flat.dtype))  # dropped
    flat = broadcast_to(flat, indices.shape[:-1])
    labels = _taken_labels(form, indices.ndim - 1, -1)
    result = scatter_add(merged, flat, _disarranged(updates, labels, form), 0, "drop")
    order = (*form.chosen, *form.windows)
    return transposed(reshaped(result, tuple([x.shape[a] for a in order])), inverse(order))


def _scatter(eqn: Equation, x: Tensor, indices: Tensor, updates: Tensor) -> Results:
    if eqn.params["update_jaxpr"] is not None:  # x.at[i].apply
        return calls.differentiated(eqn, (x, indices, updates), opaque(eqn, x, indices, updates))
    if indices.ndim != 1:
        return _scatter_at(eqn, x, indices, updates, "set")
    form = _form(eqn, x, indices, _OF_SCATTER)
    # Only a user promises here: no select of all of `x`, so that loops update it in place.
    return _update_window(x, indices, updates, form, eqn.params["mode"])


def _combining(op: str) -> Rule:
    return lambda eqn, x, indices, updates: _scatter_at(eqn, x, indices, updates, op)


def _scatter_at(eqn: Equation, x: Tensor, indices: Tensor, updates: Tensor, op: str) -> Results:
    """A scatter of whole windows at index vectors."""
    form, mode = _form(eqn, x, indices, _OF_SCATTER), _mode(eqn, _FILL)
    of_windows = [updates.shape[form.target.index(("window", a))] for a in form.windows]
    whole = of_windows == [x.shape[a] for a in form.windows]
    if not whole or not form.chosen or not set(form.starts) <= set(form.chosen):
        return primitive(eqn, x, indices, updates)
    # Axes that are paired with those of the indices are a batch if they come first in both.
    batch = len(form.batching)
    if sorted(form.batching) != [(i, i) for i in range(batch)] or batch == len(form.chosen):
        batch = 0
    axes = form.chosen[batch:]
    dtype = indices.dtype if indices.dtype.itemsize >= INT32.itemsize else INT32
    columns = {a: to_dtype(_column(indices, j), dtype) for j, a in enumerate(form.starts)}
    columns |= {a: iota(indices.shape[:-1], i, dtype) for a, i in form.batching}
    zero = constant(np.zeros((), dtype))
    places = [_guarded(columns.get(axis, zero), mode) for axis in axes]
    frame = frame_of(x.ndim, indices.ndim, axes, batch)
    labels = {frame.of_operand(a): ("index" if a < batch else "window", a) for a in frame.kept}
    labels |= {frame.of_indices(i): ("index", i) for i in range(batch, indices.ndim - 1)}
    changes = _disarranged(updates, [labels[i] for i in range(updates.ndim)], form)
    ours = "drop" if mode == _FILL else "clip"
    vectors = index_vectors(places, indices.shape[:-1])
    return scatter_at(x, vectors, changes, op, axes, batch, ours)


def _update_window(x: Tensor, indices: Tensor, updates: Tensor, form: _Form, mode: Any) -> Tensor:
    kept = {a: updates.shape[form.target.index(("window", a))] for a in form.windows}
    sizes = tuple([kept.get(a, 1) for a in range(x.ndim)])
    starts = _starts(x, indices, form)
    result = dynamic_update_slice(x, reshaped(updates, sizes), starts)
    inside = in_range(x, starts, sizes) if mode == _FILL else None
    return result if inside is None else where(inside, result, x)


RULES: dict[str, Rule] = {
    "gather": _gather,
    "scatter": _scatter,
    "scatter-add": _scatter_add,
    "scatter_add": _scatter_add,
    **{f"scatter-{op}": _combining(op) for op in ("mul", "min", "max")},
}
