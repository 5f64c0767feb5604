"""Values while a model is imported: tensors of the graph, and what is known before it runs.

A value is one of:

- a `Tensor` of the graph;
- a NumPy array that is known at import: constants, and what is computed from them. An array of
  dtype object holds strings, or sizes of which some are named (`is_dims`);
- a `WeightRef`, an initializer that becomes a variable where it is used as a tensor;
- a list of values, for a sequence; None for an optional value that is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphc.errors import GraphError
from graphc.ir.dims import Dim, DimExpr
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.ir.scopes import current_graph
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.emit import CAST, DIM_VALUE, constant, dim_value


@dataclass(frozen=True, eq=False)
class WeightRef:
    """An initializer that is a weight: a variable where it is used as a tensor.

    Attributes:
        name: of the weight.
        array: its value in the file.
    """

    name: str
    array: Array


Value: TypeAlias = Any
"""See the module's docstring."""


def is_known(value: Value) -> bool:
    """Whether it is an array that is known at import and not a weight."""
    return isinstance(value, np.ndarray)


def is_dims(value: Value) -> bool:
    """Whether it is an array of sizes of which some are named."""
    if not isinstance(value, np.ndarray) or value.dtype != object:
        return False
    return any(isinstance(item, DimExpr) for item in value.reshape(-1))


def is_strings(value: Value) -> bool:
    """Whether it is an array of strings."""
    if not isinstance(value, np.ndarray):
        return False
    items = value.reshape(-1) if value.dtype == object else ()
    return value.dtype.kind in "US" or (
        value.dtype == object and all(isinstance(item, (str, bytes)) for item in items)
    )


def array_of(dims: Iterable[Dim]) -> Array:
    """Sizes as an array: int64 if all are numbers."""
    items = list(dims)
    if all(isinstance(item, int) for item in items):
        return np.array(items, np.int64)
    found = np.empty(len(items), object)
    found[:] = items
    return found


def size_behind(tensor: Tensor) -> Dim | None:
    """The size that a scalar holds, also after casts; None if it holds something else."""
    graph = current_graph()
    while True:
        try:
            node = graph.producer(tensor)
        except GraphError:
            return None  # an input of a body
        if node.op is DIM_VALUE:
            dim: Dim = node.attrs["dim"]
            return dim
        if node.op is not CAST:
            return None
        (tensor,) = node.inputs


def plain(array: Array) -> Array:
    """An array of objects as int64, if no item is a named size."""
    if array.dtype != object or is_dims(array) or is_strings(array):
        return array
    return array.astype(np.int64)


def as_dims(array: Array) -> list[Dim]:
    """The items of an array of sizes."""
    flat = array.reshape(-1)
    return [item if isinstance(item, DimExpr) else int(item) for item in flat]


def tensor_of_dims(dims: Array) -> Tensor:
    """An array of sizes as an int64 tensor of its shape."""
    items = [dim_value(item, np.dtype(np.int64)) for item in as_dims(dims)]
    if dims.ndim == 0:
        return items[0]
    stacked: Tensor = stack(items)
    return stacked if dims.ndim == 1 else stacked.reshape(dims.shape)


def tensor_of_array(array: Array) -> Tensor:
    """A known array as a tensor."""
    if is_dims(array):
        return tensor_of_dims(array)
    return constant(array)


def flattened(values: Sequence[Value]) -> Iterator[Value]:
    """The values, with the elements of sequences in their places."""
    for value in values:
        if isinstance(value, list):
            yield from flattened(value)
        else:
            yield value
