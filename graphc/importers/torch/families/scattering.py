"""Values put, added or combined at places of a tensor: by indices and by masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.torch.call import Call, Refused, Rule, axis_of
from graphc.ir.dtypes import is_floating
from graphc.ir.node import Tensor
from graphc.jaxpr.function import from_jax
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.scattering_nd import scatter_at


def is_mask(index: Any) -> bool:
    """PyTorch takes uint8 as masks too."""
    return isinstance(index, Tensor) and (index.dtype.kind == "b" or index.dtype == np.uint8)


def _index_put(call: Call, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    values = call.own(values)
    kept = [i for i in indices if i is not None]
    places = [i is None for i in indices]
    if any(map(is_mask, kept)):
        if len(kept) > 1:
            raise Refused("by a mask and other indices is not supported")
        return _put_by_mask(x, kept[0], places.index(False), values, accumulate)

    def put(x: Any, values: Any, *kept: Any) -> Any:
        given = iter(kept)
        where = tuple(slice(None) if absent else next(given) for absent in places)
        return _added(x.at[where], values) if accumulate else x.at[where].set(values)

    return from_jax(put, name="index_put")(x, values, *kept)


def _added(part: Any, values: Any) -> Any:
    """Part of an array of JAX, such as `x.at[0]`, with values added; of bools, True and True is
    True."""
    return part.max(values) if values.dtype == bool else part.add(values)


def _put_by_mask(x: Any, mask: Any, lead: int, values: Any, accumulate: bool) -> Any:
    """x with values at the places where a mask is true.

    Args:
        lead: the number of axes before those of the mask.
        values: they broadcast to [*leading axes, places, *further axes].
    """
    mask = ops.cast(mask, "bool")
    rest = x.ndim - lead - mask.ndim
    values = ops.reshape(values, (*(1,) * (lead + 1 + rest - values.ndim), *values.shape))
    count = values.shape[lead]
    if isinstance(count, int) and count == 0:
        return x
    each = (1,) * mask.ndim
    if not isinstance(count, int) or count > 1:  # one for each place
        number = ops.cumsum(ops.cast(ops.ravel(mask), "int32")) - 1
        values, each = ops.take(values, ops.maximum(number, 0), axis=lead), mask.shape
    values = ops.reshape(values, (*values.shape[:lead], *each, *values.shape[lead + 1 :]))
    mask = ops.reshape(mask, (*mask.shape, *(1,) * rest))
    if accumulate:
        values = ops.logical_or(x, values) if x.dtype.kind == "b" else x + values
    return ops.where(mask, values, x)


_OF_BOOLS: Final = {"add": "max", "mul": "min"}  # True + True is True


def _of_numbers(call: Call) -> Call:
    """The call with numbers instead of bools, which have no largest and least one to begin with."""
    return replace(call, dtypes=(np.dtype("int8"),))


def _scatter(kind: str) -> Rule:
    def rule(call: Call, x: Any, dim: int, index: Any, source: Any, **options: Any) -> Any:
        given, values = x, call.own(source)
        if not x.ndim:  # PyTorch takes scalars as rows of one element
            x, index, values = ops.ravel(x), ops.ravel(index), ops.ravel(values)
        if x.dtype.kind == "b" and kind != "set":
            how = _OF_BOOLS.get(kind, kind)
            found = _scatter(how)(_of_numbers(call), ops.cast(x, "int8"), dim, index, values)
            return ops.reshape(ops.cast(found, "bool"), given.shape)
        axis, shape = axis_of(dim, x.ndim), index.shape
        if values.ndim:
            values = values[tuple(slice(0, n) for n in shape)]
        columns = [index if i == axis else iota(shape, i, index.dtype) for i in range(x.ndim)]
        y = scatter_at(x, ops.stack(columns, axis=-1), values, kind, tuple(range(x.ndim)))
        return ops.reshape(y, given.shape) if not given.ndim else y

    return rule


_KINDS: Final = {
    "sum": "add",
    "add": "add",
    "mean": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


def _neutral(kind: str, dtype: np.dtype[Any]) -> Any:
    """The value that changes no result."""
    if kind in ("add", "mul"):
        return 0 if kind == "add" else 1
    if is_floating(dtype):
        return -np.inf if kind == "max" else np.inf
    return np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max


def _scatter_with(call: Call, x: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Any:
    return _scatter(_KINDS[reduce])(call, x, dim, index, source)


def _scatter_reduce(
    call: Call, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    kind = _KINDS[reduce]
    if x.dtype.kind == "b":
        how = {"add": "amax", "mul": "amin"}.get(kind, reduce)
        given = _of_numbers(call), ops.cast(x, "int8"), dim, index, source, how
        return ops.cast(_scatter_reduce(*given, include_self=include_self), "bool")

    def scattered(kind: str, x: Any, values: Any) -> Any:
        return _scatter(kind)(call, x, dim, index, values)

    begin = x if include_self else scattered("set", x, _neutral(kind, x.dtype))
    y = scattered(kind, begin, source)
    if reduce != "mean":
        return y
    counts = ops.ones_like(x) if include_self else scattered("set", ops.ones_like(x), 0)
    counts = scattered("add", counts, ops.ones_like(source))
    return y / counts if is_floating(x.dtype) else y // counts


def _index_reduce(
    call: Call, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    axis = axis_of(dim, x.ndim)
    shape = [n if i == axis else 1 for i, n in enumerate(source.shape)]
    places = ops.broadcast_to(ops.reshape(index, shape), source.shape)
    return _scatter_reduce(call, x, dim, places, source, reduce, include_self=include_self)


def _put_flat(call: Call, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """x with values at places of its elements in one row."""

    def put(x: Any, index: Any, source: Any) -> Any:
        row = x.reshape(-1).at[index.reshape(-1)]
        values = source.reshape(-1)
        return (_added(row, values) if accumulate else row.set(values)).reshape(x.shape)

    return from_jax(put, name="put")(x, index, source)


def _index_add(call: Call, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    source = source * alpha if alpha != 1 else source
    if x.dtype.kind == "b":
        return _index_reduce(call, x, dim, index, source, "amax")
    if not x.ndim:
        return x + ops.reduce_sum(source)
    return ops.scatter_add(x, index, source, axis=dim)


RULES: Final[dict[str, Rule]] = {
    "aten.index_add.default": _index_add,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
    "aten.index_reduce.default": _index_reduce,
    "aten.put.default": _put_flat,
    "aten.scatter.reduce": _scatter_with,
    "aten.scatter.value_reduce": _scatter_with,
    "aten.scatter.src": _scatter("set"),
    "aten.scatter.value": _scatter("set"),
    "aten.scatter_add.default": _scatter("add"),
    "aten.scatter_reduce.two": _scatter_reduce,
}
