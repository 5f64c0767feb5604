"""Conversion between the parameters of JAX's primitives and attributes of kind `attrs`.

Numbers, strings, dtypes, sizes, arrays and tuples are unchanged. Enumeration members and records of
JAX's public classes become mappings that name their class.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from jax import export, lax

from graphc.ir.dims import Dim, DimExpr
from graphc.ir.dtypes import as_dtype

_CLASS = "class"
(_SYMBOLIC,) = export.symbolic_shape("n")  # JAX's class of symbolic dims has no public name
_CLASSES: Mapping[str, type] = {
    cls.__name__: cls
    for module in (lax, lax.linalg)
    for cls in vars(module).values()
    if isinstance(cls, type)
}


class NotPlain(Exception):
    """A parameter that cannot be encoded, such as a function or a jaxpr. The text names it."""


def encode(params: Mapping[str, Any], dim: Callable[[Any], Dim]) -> dict[str, Any]:
    """The parameters as plain data. `dim` converts JAX's dims to graphc's.

    Raises:
        NotPlain: a parameter cannot be encoded.
    """
    return {name: _encode(name, value, dim) for name, value in params.items()}


def _encode(name: str, value: Any, dim: Callable[[Any], Dim]) -> Any:
    if value is None or type(value) in (bool, int, float, complex, str):
        return value
    if isinstance(value, (np.bool_, np.integer)):
        return value.item()
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return as_dtype(value)
    if _CLASSES.get(type(value).__name__) is type(value):
        return {_CLASS: type(value).__name__, **encode(_parts(value), dim)}
    if type(value) in (tuple, list):
        return tuple([_encode(name, item, dim) for item in value])
    if isinstance(value, type(_SYMBOLIC)):
        return dim(value)
    raise NotPlain(f"its parameter {name} is a {type(value).__name__}")


def _parts(value: Any) -> Mapping[str, Any]:
    """The values from which an enumeration member or a record can be rebuilt."""
    if isinstance(value, enum.Enum):
        return {"member": value.name}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    record: Mapping[str, Any] = value._asdict()  # a NamedTuple
    return record


def decode(params: Mapping[str, Any], dim: Callable[[Dim], Any]) -> dict[str, Any]:
    """Undoes `encode`. `dim` converts graphc's dims to JAX's."""
    return {name: _decode(value, dim) for name, value in params.items()}


def _decode(value: Any, dim: Callable[[Dim], Any]) -> Any:
    if isinstance(value, DimExpr):
        return dim(value)
    if isinstance(value, tuple):
        return tuple([_decode(item, dim) for item in value])
    if not isinstance(value, Mapping):
        return value
    parts = decode({name: item for name, item in value.items() if name != _CLASS}, dim)
    cls = _CLASSES[value[_CLASS]]
    return cls[parts["member"]] if issubclass(cls, enum.Enum) else cls(**parts)
