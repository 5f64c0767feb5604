"""What a TensorFlow edge can be while a graph is built: tensors, and values known at import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.core.words import Words
from graphc.ir.dims import Dim, DimExpr
from graphc.ir.dtypes import Array, DType
from graphc.ir.node import Tensor
from graphc.ops.core.emit import dim_value

Value = Any
"""A Tensor, an array (a constant, which may be of strings), or one of the classes below."""


@dataclass(frozen=True)
class Sizes:
    """Integers of which some are named sizes.

    Attributes:
        items: an array of objects: ints and named sizes.
        dtype: what TensorFlow computes them in.
    """

    items: Array
    dtype: DType

    @classmethod
    def of(cls, dims: Any, dtype: DType) -> Sizes | Array:
        """Nested dims as Sizes; as a plain array if all are ints."""
        items = np.empty(np.shape(dims), object)
        items[...] = dims
        flat = [int(d) if isinstance(d, np.integer) else d for d in items.reshape(-1)]
        if not any(isinstance(d, DimExpr) for d in flat):
            return np.array(flat, np.int64).astype(dtype).reshape(items.shape)
        whole = np.empty(len(flat), object)
        whole[:] = flat
        return cls(whole.reshape(items.shape), dtype)


@dataclass(frozen=True)
class Counting:
    """The numbers 0, 1, ... below a named size."""

    length: Dim
    dtype: DType


@dataclass(frozen=True)
class WeightValue:
    """A constant of a frozen graph that is a weight of the model: its name, and its array."""

    name: str
    array: Array


@dataclass(frozen=True)
class VariableRef:
    """A variable of TensorFlow, as the operators that read and assign it take it.

    Attributes:
        name: of the weight.
    """

    name: str


@dataclass(frozen=True, eq=False)
class Table:
    """A lookup table with constant keys: a mutable cell, which its initializer fills."""

    name: str
    key_dtype: DType
    value_dtype: DType
    content: list[tuple[Array, Array]]


@dataclass(frozen=True)
class TensorStack:
    """A TensorArray or a list of tensors: one tensor with a leading axis for the elements.

    Attributes:
        size: the number of elements.
        dtype: of the elements.
        element: the shape of an element, None if it is not known yet.
        data: the elements, None if nothing is written yet.
    """

    size: Dim
    dtype: DType
    element: tuple[Dim, ...] | None
    data: Tensor | None = None

    def filled(self) -> Tensor:
        """The elements; zeros where nothing is written.

        Raises:
            ValueError: the shape of the elements is not known.
        """
        if self.data is not None:
            return self.data
        if self.element is None:
            raise ValueError("the shape of its elements is not known before the first is written")
        return ops.zeros((self.size, *self.element), self.dtype)

    def with_data(self, data: Tensor) -> TensorStack:
        """The stack with these elements."""
        return replace(self, data=data, element=data.shape[1:], size=data.shape[0])


@dataclass(frozen=True)
class Nothing:
    """The result of an operator without meaning here, such as a summary."""


class Refused:
    """The result of an operator that cannot be imported."""


REFUSED = Refused()
NOTHING = Nothing()


def is_host(value: Value) -> bool:
    """Whether the value is known at import, and is no weight."""
    return isinstance(value, (np.ndarray, Sizes))


def is_strings(value: Value) -> bool:
    """Whether the value is an array of strings."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def as_tensor(value: Value) -> Tensor:
    """A value that is known at import as a tensor.

    Raises:
        TypeError: it is neither a tensor nor numeric.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return ops.constant(value, value.dtype)
    if isinstance(value, Counting):
        return ops.arange(value.length, dtype=value.dtype)
    if isinstance(value, Sizes):
        flat = [dim_value(dim, value.dtype) for dim in value.items.reshape(-1)]
        if value.items.ndim == 0:
            return flat[0]
        return ops.reshape(ops.stack(flat), value.items.shape)
    raise TypeError(f"takes a tensor, got {shown(value)}")


def shown(value: Value) -> str:
    """What a value is, for errors."""
    if isinstance(value, np.ndarray):
        return "strings" if value.dtype.kind == "O" else f"a constant of {value.dtype.name}"
    names = {
        Words: "strings that are known only in a run",
        VariableRef: "a variable",
        Table: "a table",
        TensorStack: "a list of tensors",
    }
    return names.get(type(value), type(value).__name__.lower())
