"""Initializers as data: converts a dataclass to its name and fields, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def initializer_fields(initial: object) -> tuple[str, dict[str, Any]] | None:
    """Class name and fields of an initial value that is a dataclass; None for other initial
    values."""
    if not is_dataclass(initial) or isinstance(initial, type):
        return None
    values = {f.name: getattr(initial, f.name) for f in fields(initial) if f.init}
    return type(initial).__name__, values


def make_initializer(kind: type, values: Mapping[str, Any]) -> Any:
    """The initializer of class `kind` with these fields.

    Raises:
        TypeError, ValueError: `kind` is not a dataclass, or does not accept these fields.
    """
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is not a dataclass")
    known = sorted(f.name for f in fields(kind) if f.init)
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ValueError(f"no field {unknown[0]!r}; its fields are {', '.join(known)}")
    return kind(**values)
