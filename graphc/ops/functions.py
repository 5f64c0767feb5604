"""Every operator function of every family under one name, for gradient rules."""

from __future__ import annotations

import types
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace


def collect(families: Iterable[ModuleType]) -> SimpleNamespace:
    """The public functions that the families define, as attributes of one object."""
    found = {}
    for family in families:
        for name, value in vars(family).items():
            own = isinstance(value, types.FunctionType) and value.__module__ == family.__name__
            if own and not name.startswith("_"):
                found[name] = value
    return SimpleNamespace(**found)
