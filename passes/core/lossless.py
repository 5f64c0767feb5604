"""Decides which casts preserve all values."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import ml_dtypes
import numpy as np

from graphc.ir.dtypes import (
    KIND_RANKS,
    DType,
    float_info,
    int_range,
    is_inexact,
    is_integer,
    kind_of,
    real_of,
)

_IEEE: Final = {np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)}


@lru_cache(maxsize=4096)
def may_skip(start: DType, between: DType, end: DType) -> bool:
    """Whether the casts start -> between -> end equal the cast start -> end for all values."""
    if not holds_all(between, start):
        return False
    if is_integer(start) and is_inexact(between) and is_integer(end):
        # Integers wrap and floats saturate, so they agree only on values that fit.
        return holds_all(end, start)
    return True


def holds_all(wide: DType, narrow: DType) -> bool:
    """Whether `wide` represents every value of `narrow`, so that a cast to it loses nothing."""
    if wide == narrow:
        return True
    to, of = kind_of(wide), kind_of(narrow)
    if of == "bool":
        return True
    if to == "bool" or KIND_RANKS[to] < KIND_RANKS[of]:
        return False
    if to == "integer":
        (least, greatest), (low, high) = int_range(wide), int_range(narrow)
        return least <= low and high <= greatest
    a = float_info(wide)
    if of == "integer":
        largest = max(*map(abs, int_range(narrow)))
        return bool(largest <= 2 ** (a.nmant + 1) and largest <= float(a.max))
    b = float_info(narrow)
    # The wide type also represents the smallest subnormal of the narrow one, and its special values
    # (an infinity, a NaN, a negative zero).
    return bool(
        a.nmant >= b.nmant
        and float(a.max) >= float(b.max)
        and float(a.smallest_subnormal) <= float(b.smallest_subnormal)
        and real_of(wide) in _IEEE
    )
