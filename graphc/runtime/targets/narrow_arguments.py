"""Arguments of 4-bit integers, which compiled programs may have to take from the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import jax
import numpy as np

from graphc.ir.dtypes import as_dtype

_NARROW: Final = (as_dtype("int4"), as_dtype("uint4"))
# A program that JAX 0.10 compiled ahead of time for CPUs refuses arrays of these dtypes in JAX's
# own layout, which does not pack two values in a byte.
_REFUSED: Final = jax.__version_info__ < (0, 11)


def narrow_places(dtypes: Iterable[Any], platform: str) -> tuple[int, ...]:
    """The positions of the arguments that a compiled program takes from the host only.

    Args:
        dtypes: those of all its arguments.
        platform: of its devices.
    """
    if not _REFUSED or platform != "cpu":
        return ()
    return tuple([i for i, dtype in enumerate(dtypes) if dtype in _NARROW])


def from_host(values: Sequence[Any], places: Iterable[int]) -> list[Any]:
    """The arguments, with those at `places` as NumPy arrays."""
    found = list(values)
    for i in places:
        found[i] = np.asarray(found[i])
    return found
