"""`Value`: a tensor of the ONNX graph that is being written."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Value(NamedTuple):
    """A name in the ONNX graph, with what the writer must know of the tensor."""

    name: str
    dtype: np.dtype[Any]
    rank: int


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    return tuple(perm.index(axis) for axis in range(len(perm)))
