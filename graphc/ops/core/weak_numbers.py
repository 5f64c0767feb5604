"""Weak numbers: their dtype adapts to that of a tensor in the same operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.dims import DimExpr
from graphc.ir.dtypes import (
    COMPLEX128,
    FLOAT64,
    INT64,
    SCALAR_DEFAULTS,
    SHORT,
    is_complex,
    is_inexact,
    is_integer,
)


def is_weak(value: Any) -> bool:
    """Whether `value` adapts to the dtype of a tensor: a Python number or a NumPy scalar."""
    return scalar_kind(value) is not None


def scalar_kind(value: Any) -> type | None:
    """The Python type of a number: bool, int, float or complex; None for anything else.

    NumPy's scalars are numbers here, because the dtype of `np.sqrt(64)` is not the user's choice.
    An array without axes, `np.array(8.0)`, is an array, as in JAX and NumPy.
    """
    kind = type(value)
    if kind in SCALAR_DEFAULTS:
        return kind
    if kind is DimExpr:  # `x.shape[0]`, a Python int once it is known
        return int
    if not isinstance(value, np.generic):
        return None
    dtype = value.dtype
    if dtype not in SHORT:  # a string or a date
        return None
    if is_inexact(dtype):
        return complex if is_complex(dtype) else float
    return bool if dtype == np.bool_ else int if is_integer(dtype) else None


def has_default(value: np.generic) -> bool:
    """Whether a NumPy scalar is treated as a Python number even if no tensor is involved, because
    its dtype is NumPy's default."""
    return value.dtype in (FLOAT64, COMPLEX128, INT64)
