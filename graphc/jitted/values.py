"""Python values as plain data that identifies them: different values have different data, also in
another process."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from graphc.errors import SerialError

_HEAP_TYPE = 1 << 9  # the flag of classes that a class statement created
_NUMBERS = (bool, int, float, complex, str, bytes)


def stated(value: Any) -> Any:
    """Data that identifies a static argument or the metadata of a pytree.

    `repr` is not enough: for many classes it shows an address, which another object may have later,
    or omits a part of the value.

    Raises:
        SerialError: only the object itself identifies it.
    """
    kind = type(value)
    if value is None or value is Ellipsis or kind in _NUMBERS:
        return [kind.__name__, repr(value)]
    if kind in (tuple, list):
        return [kind.__name__, _all(value)]
    if kind in (set, frozenset):
        return [kind.__name__, sorted(_all(value), key=repr)]
    if kind is dict:
        return ["dict", [[stated(key), stated(item)] for key, item in value.items()]]
    if isinstance(value, np.dtype):
        return ["dtype", value.str, value.name]
    if isinstance(value, np.generic):
        return ["number", stated(value.dtype), value.tobytes().hex()]
    if isinstance(value, Enum):
        return ["enum", _imported(kind), value.name, stated(value.value)]
    if kind is partial:
        return ["partial", stated(value.func), _all(value.args), stated(value.keywords)]
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return ["named", _imported(kind), _all(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ["dataclass", _imported(kind), _fields(value)]
    if not isinstance(value, type) and getattr(value, "__module__", None) == "__main__":
        raise _unknown(value)  # a notebook may define another function under this name
    return _single(value) or ["import", _imported(value)]


def _all(values: Iterable[Any]) -> list[Any]:
    return [stated(value) for value in values]


def _fields(value: Any) -> list[Any]:
    """The fields of a dataclass. Raises an error if it has other attributes."""
    names = [field.name for field in dataclasses.fields(value)]
    if not getattr(value, "__dict__", {}).keys() <= set(names):
        raise _unknown(value)
    return [[name, stated(getattr(value, name))] for name in names]


def _single(value: Any) -> list[Any] | None:
    """The name of a sentinel: an object without content that the module of its class holds."""
    kind = type(value)
    kinds = kind.__mro__[:-1]
    is_plain = all(k.__flags__ & _HEAP_TYPE and not getattr(k, "__slots__", ()) for k in kinds)
    if not is_plain or getattr(value, "__dict__", None):
        return None
    for name, found in list(vars(sys.modules.get(kind.__module__, sys)).items()):
        if found is value:
            return ["global", kind.__module__, name]
    return None


def _imported(value: Any) -> list[str]:
    """The module and the name under which a class or a function can be imported."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split(".") if isinstance(name, str) and found is not None else ():
        found = getattr(found, part, None)
    if found is not value or not isinstance(module, str) or not isinstance(name, str):
        raise _unknown(value)
    return [module, name]


def _unknown(value: Any) -> SerialError:
    return SerialError(
        f"nothing identifies {value!r} in another process",
        hint="use numbers, texts, tuples, enums, dataclasses of them, or functions of modules",
    )
