"""The kinds of attributes of operators, and which values each kind accepts: see `Attr`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphc.ir.dims import DimExpr
from graphc.ir.sharding import is_spec


def _is_dim(value: Any) -> bool:
    return type(value) is int or isinstance(value, DimExpr)


KINDS: Mapping[str, Callable[[Any], bool]] = {
    "int": lambda v: type(v) is int,
    "float": lambda v: type(v) in (float, int),
    "bool": lambda v: type(v) is bool,
    "str": lambda v: type(v) is str,
    "dtype": lambda v: isinstance(v, np.dtype),
    "dim": _is_dim,
    "ints": lambda v: type(v) is tuple and all(type(i) is int for i in v),
    "dims": lambda v: type(v) is tuple and all(map(_is_dim, v)),
    "pairs": lambda v: (
        type(v) is tuple and all(type(p) is tuple and all(map(_is_dim, p)) for p in v)
    ),
    "spec": is_spec,
    "array": lambda v: isinstance(v, np.ndarray),
    "attrs": lambda v: isinstance(v, Mapping),
    "function": callable,
}

# The kinds whose values contain no dims.
WITHOUT_SIZES = frozenset(("int", "float", "bool", "str", "dtype"))
