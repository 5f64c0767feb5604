"""Gathering and scattering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from jax import numpy as jnp

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.values import plain
from graphc.jaxpr.function import from_jax


def _gather(call: Call) -> Any:
    return ops.take(call.x(0), call.x(1), axis=call.attr("axis", 0), mode="clip")


def _gather_elements(call: Call) -> Any:
    return ops.take_along_axis(call.x(0), call.x(1), axis=call.attr("axis", 0))


def _gather_nd(call: Call) -> Any:
    return ops.gather_nd(call.x(0), call.x(1), batch_dims=call.attr("batch_dims", 0))


_UPDATES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "none": lambda at, updates: at.set(updates),
    "add": lambda at, updates: at.add(updates),
    "mul": lambda at, updates: at.multiply(updates),
    "max": lambda at, updates: at.max(updates),
    "min": lambda at, updates: at.min(updates),
}


def _scatter_elements(call: Call) -> Any:
    x, indices, updates = (call.x(i) for i in range(3))
    axis, kind = call.attr("axis", 0) % x.ndim, call.attr("reduction", "none")

    def scatter(x: Any, indices: Any, updates: Any) -> Any:
        places = list(jnp.indices(indices.shape, sparse=True))
        places[axis] = jnp.where(indices < 0, indices + x.shape[axis], indices)
        return _UPDATES[kind](x.at[tuple(places)], updates)

    return from_jax(scatter, name=call.op)(x, indices, updates)


def _scatter_nd(call: Call) -> Any:
    kind = call.attr("reduction", "none")
    found = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}[kind]

    def scatter(x: Any, indices: Any, updates: Any) -> Any:
        places = tuple(jnp.moveaxis(indices, -1, 0))
        return _UPDATES[kind](x.at[places], updates)

    del found
    return from_jax(scatter, name=call.op)(call.x(0), call.x(1), call.x(2))


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
    "Gather": _gather,
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
