"""`__all__` of a module that collects the names of others by `from ... import *`."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType


def names(namespace: Mapping[str, object]) -> list[str]:
    """The public names of a module's `globals()`, sorted: without private ones and modules."""
    return sorted(
        name
        for name, value in namespace.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    )
