"""Gathering, embeddings, masks, searches; parts of a tensor in place of others."""

from __future__ import annotations

from typing import Any, Final

from jax import numpy as jnp

from graphc import ops
from graphc.importers.torch.call import Call, Refused, Rule, axis_of
from graphc.importers.torch.families.reductions import vector_norm
from graphc.importers.torch.families.scattering import is_mask
from graphc.ir.dims import DimExpr
from graphc.ir.node import Tensor
from graphc.jaxpr.function import from_jax
from graphc.lowering.vectorize import vmap
from graphc.ops.arrays.creation import iota


def _embedding(
    call: Call, w: Any, places: Any, padding: int = -1, scale: bool = False, sparse: bool = False
) -> Any:
    rows = ops.take(w, places, axis=0)
    if scale:  # a row's gradient is the mean over its uses, not their sum
        ones = ops.ones_like(rows[..., 0])
        uses = ops.scatter_add(ops.zeros((w.shape[0],), w.dtype), places, ones)
        share = ops.expand_dims(ops.reciprocal(ops.take(uses, places)), -1)
        rows = ops.stop_gradient(rows * (1 - share)) + rows * share
    if padding >= 0:  # the row of the padding does not train
        padded = ops.expand_dims(ops.equal(places, padding), -1)
        rows = ops.where(padded, ops.stop_gradient(rows), rows)
    return rows


def _index(call: Call, x: Any, indices: Any) -> Any:
    """x[indices], where None leaves an axis as it is."""
    where: list[Any] = []
    for index in indices:
        if index is None:
            where.append(slice(None))
        elif is_mask(index):
            raise Refused("by a mask has a result whose size depends on values")
        else:
            where.append(index)
    if len(where) == 1:
        return ops.take(x, where[0], axis=0)
    return x[tuple(where)]


def _gather(call: Call, x: Any, dim: int, index: Any, **options: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        return ops.broadcast_to(x, index.shape)
    where = [slice(None) if i == axis else slice(0, n) for i, n in enumerate(index.shape)]
    return ops.take_along_axis(x[tuple(where)], index, axis=axis)


def _places_of_truth(call: Call, x: Any, *, size: int, fill_value: int = -1) -> Any:
    if not x.ndim:
        return ops.zeros((size, 0), "int64")
    return ops.cast(ops.stack(ops.nonzero(x, size, fill_value), axis=-1), "int64")


def _renorm_rows(call: Call, w: Any, places: Any, most: float, p: float) -> Any:
    """The table whose rows at the places have no larger norm than `most`.

    PyTorch changes the rows of the table in place, behind a `detach`: gradients pass to the table
    as if nothing had happened.
    """
    if p <= 0:
        raise Refused("with a norm of order 0 is not supported")
    table = w.node.inputs[0] if w.node.op.name == "StopGradient" else w
    norms = vector_norm(w, p, (1,), True)
    ones = ops.ones((places.size,), "int32")
    used = ops.scatter_add(ops.zeros((w.shape[0],), "int32"), ops.ravel(places), ones) > 0
    longer = ops.logical_and(ops.expand_dims(used, 1), norms > most)
    shorter = ops.stop_gradient(w * (most / (norms + 1e-7)))
    return ops.where(longer, shorter + (table - ops.stop_gradient(table)), table)


def _put(name: str, x: Any, axis: int, index: Any, values: Any) -> Any:
    """x with values in place of those at an index of an axis.

    Args:
        index: a tensor, a slice or a number.
    """
    lead = [slice(None)] * axis
    if isinstance(index, Tensor):
        return from_jax(lambda x, i, v: x.at[(*lead, i)].set(v), name=name)(x, index, values)
    return from_jax(lambda x, v: x.at[(*lead, index)].set(v), name=name)(x, values)


def _index_select(call: Call, x: Any, dim: int, index: Any) -> Any:
    index = ops.reshape(index, (-1,))
    if not x.ndim:
        return ops.reshape(ops.take(ops.reshape(x, (1,)), index), ())
    return ops.take(x, index, axis=dim)


def _index_copy(call: Call, x: Any, dim: int, index: Any, source: Any) -> Any:
    if not x.ndim:
        return ops.reshape(source, ()) if index.size else x
    return _put("index_copy", x, axis_of(dim, x.ndim), index, source)


def _index_fill(call: Call, x: Any, dim: int, index: Any, value: Any) -> Any:
    if not x.ndim:
        return ops.reshape(call.own(value), ()) if index.size else x
    return _put("index_fill", x, axis_of(dim, x.ndim), index, call.own(value))


def _masked_fill(call: Call, x: Any, mask: Any, value: Any) -> Any:
    return ops.where(mask, call.own(value), x)


def _slice_scatter(
    call: Call, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """x with the source in place of x[start:end:step]. How many elements that are, the source
    says."""
    axis = axis_of(dim, x.ndim)
    source, start = call.own(source), _from_front(start or 0, x.shape[axis])
    count = source.shape[axis]
    if all(isinstance(size, int) for size in (x.shape[axis], start, count)):
        return _put("slice_scatter", x, axis, slice(start, start + count * step, step), source)
    if step == 1:
        return _replaced(x, source, axis, start)

    def put(x: Any, source: Any, start: Any) -> Any:
        places = start + step * jnp.arange(source.shape[axis])
        return x.at[(*[slice(None)] * axis, places)].set(source)

    return from_jax(put, name="slice_scatter")(x, source, call.tensor(start, "int32"))


def _from_front(place: Any, size: Any) -> Any:
    """A bound of a slice, or an index, counted from the front."""
    if isinstance(place, int):
        if isinstance(size, int):
            return min(max(place + size, 0) if place < 0 else place, size)
        return size + place if place < 0 else place
    return place


def _replaced(x: Any, source: Any, axis: int, start: Any) -> Any:
    """x with the source in place of neighbours along an axis."""
    lead, stop = (slice(None),) * axis, start + source.shape[axis]
    before = [x[(*lead, slice(0, start))]] if start != 0 else []
    after = [x[(*lead, slice(stop, None))]] if stop != x.shape[axis] else []
    parts = [*before, source, *after]
    return ops.concatenate(parts, axis) if len(parts) > 1 else source


def _select_scatter(call: Call, x: Any, source: Any, dim: int, index: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    source = call.own(source)
    if isinstance(index, DimExpr):
        return _replaced(x, ops.expand_dims(source, axis), axis, index)
    return _put("select_scatter", x, axis, index, source)


def _diagonal_scatter(
    call: Call, x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    """x with the source as a diagonal of the matrices of two axes. It has the last axis."""
    axes = [axis_of(dim, x.ndim) for dim in (dim1, dim2)]
    rows, columns = (x.shape[axis] for axis in axes)
    source = call.own(source)
    lead = source.ndim - 1
    whole = rows if offset >= 0 else columns  # the axis in which the diagonal begins at 0
    widths = [(0, 0)] * lead + [(0, whole - source.shape[-1])]
    spread = ops.expand_dims(ops.pad(source, widths), -1 if offset >= 0 else -2)
    places = iota((rows, columns), 1) - iota((rows, columns), 0)
    moved = ops.moveaxis(x, axes, (-2, -1))
    return ops.moveaxis(ops.where(ops.equal(places, offset), spread, moved), (-2, -1), axes)


def _bucketize(
    call: Call, x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False
) -> Any:
    return ops.searchsorted(boundaries, call.tensor(x), side="right" if right else "left")


def _searchsorted(
    call: Call, ordered: Any, x: Any, *, side: str | None = None, sorter: Any = None, **options: Any
) -> Any:
    if sorter is not None:
        ordered = ops.take_along_axis(ordered, sorter, -1)
    if side == "right":
        options["right"] = True
    if ordered.ndim == 1:
        return _bucketize(call, x, ordered, **options)

    def find(x: Any, ordered: Any) -> Any:
        return _bucketize(call, x, ordered, **options)

    for _ in range(ordered.ndim - 1):  # each row has its own values
        find = vmap(find)
    return find(call.tensor(x), ordered)


def _take(call: Call, x: Any, index: Any) -> Any:
    return ops.take(ops.ravel(x), index)


def _take_along(call: Call, x: Any, index: Any, dim: int | None = None) -> Any:
    """Along all other axes, x and the index are broadcast against each other."""
    if dim is None:
        return _take(call, x, ops.ravel(index))
    axis = dim % x.ndim
    own, other = list(x.shape), list(index.shape)
    own[axis] = other[axis] = 1
    both = list(ops.broadcast_shapes(tuple(own), tuple(other)))
    x, index = (
        ops.broadcast_to(t, (*both[:axis], t.shape[axis], *both[axis + 1 :])) for t in (x, index)
    )
    return ops.take_along_axis(x, index, axis=axis)


RULES: Final[dict[str, Rule]] = {
    "aten.bucketize.Tensor": _bucketize,
    "aten.diagonal_scatter.default": _diagonal_scatter,
    "aten.embedding.default": _embedding,
    "aten.gather.default": _gather,
    "aten.index.Tensor": _index,
    "aten.index_copy.default": _index_copy,
    "aten.index_fill.int_Scalar": _index_fill,
    "aten.index_fill.int_Tensor": _index_fill,
    "aten._unsafe_index.Tensor": _index,
    "aten.embedding_renorm.default": _renorm_rows,
    "aten.index_select.default": _index_select,
    "aten.nonzero_static.default": _places_of_truth,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten.searchsorted.Scalar": _searchsorted,
    "aten.searchsorted.Tensor": _searchsorted,
    "aten.select_scatter.default": _select_scatter,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.take.default": _take,
    "aten.take_along_dim.default": _take_along,
}
