"""Gathering and scattering."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import numpy as jnp

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.values import plain
from graphc.jaxpr.function import from_jax
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.scattering_nd import scatter_at


def _gather_elements(call: Call) -> Any:
    x, indices = call.x(0), call.x(1)
    axis = call.attr("axis", 0) % x.ndim
    # The indices may have fewer elements along the other axes.
    where = [slice(None) if i == axis else slice(0, n) for i, n in enumerate(indices.shape)]
    return ops.take_along_axis(x[tuple(where)], indices, axis=axis)


def _gather_nd(call: Call) -> Any:
    return ops.gather_nd(call.x(0), call.x(1), batch_dims=call.attr("batch_dims", 0))


_KINDS: Final = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _kind(call: Call) -> str:
    return _KINDS[call.attr("reduction", "none")]


def _scatter_elements(call: Call) -> Any:
    x, indices, updates = (call.x(i) for i in range(3))
    axis, shape = call.attr("axis", 0) % x.ndim, indices.shape
    if indices.dtype.itemsize < 4:
        indices = ops.cast(indices, "int32")
    columns = [indices if i == axis else iota(shape, i, indices.dtype) for i in range(x.ndim)]
    places = ops.stack(columns, axis=-1)
    return scatter_at(x, places, updates, _kind(call), tuple(range(x.ndim)))


def _scatter_nd(call: Call) -> Any:
    x, indices, updates = (call.x(i) for i in range(3))
    count = indices.shape[-1]
    if not isinstance(count, int):
        raise Refused("needs index vectors of known size")
    if not count:  # each update is for the whole tensor
        raise Refused("has index vectors of size 0")
    return scatter_at(x, indices, updates, _kind(call), tuple(range(count)))


def _one_hot(call: Call) -> Any:
    indices, depth = call.x(0), int(plain(call.need(1, "the depth")).reshape(-1)[0])
    values, axis = call.x(2), call.attr("axis", -1)
    places = ops.cast(indices, "int64") if indices.dtype.kind == "f" else indices
    places = ops.where(places < 0, places + depth, places)
    hot = ops.one_hot(places, depth, "bool", axis=axis)
    return ops.where(hot, values[1], values[0])


def _compress(call: Call) -> Any:
    x, chosen, axis = call.x(0), call.need(1, "the condition"), call.attr("axis")
    places = np.flatnonzero(chosen)
    if axis is None:
        return ops.take(ops.ravel(x), places)
    return ops.take(x, places, axis=axis)


def _tensor_scatter(call: Call) -> Any:
    """New keys or values are written into a cache."""
    past, update = call.x(0), call.x(1)
    axis, mode = call.attr("axis", -2) % past.ndim, call.attr("mode", "linear")
    start = call.x(2) if call.has(2) else ops.zeros((past.shape[0],), "int64")

    def write(past: Any, update: Any, start: Any) -> Any:
        length = past.shape[axis]
        places = start[:, None] + jnp.arange(update.shape[axis])
        if mode == "circular":
            places = places % length
        rows = jnp.arange(past.shape[0])[:, None]
        moved = jnp.moveaxis(past, axis, 1).at[rows, places].set(jnp.moveaxis(update, axis, 1))
        return jnp.moveaxis(moved, 1, axis)

    return from_jax(write, name=call.op)(past, update, start)


def _strings(call: Call) -> Any:
    raise Refused("works on strings, which must be known at import", needs=True)


RULES: Final[dict[str, Rule]] = {
    "Compress": _compress,
    "Gather": lambda call: ops.take(call.x(0), call.x(1), axis=call.attr("axis", 0), mode="clip"),
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "RegexFullMatch": _strings,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "StringConcat": _strings,
    "StringNormalizer": _strings,
    "StringSplit": _strings,
    "TensorScatter": _tensor_scatter,
}
