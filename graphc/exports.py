"""`__all__` for a module that collects names of other modules with `from ... import *`."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType


def names(namespace: Mapping[str, object]) -> list[str]:
    """The sorted public names of a module's `globals()`, without private names and modules."""
    return sorted(
        name
        for name, value in namespace.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    )
