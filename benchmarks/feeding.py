"""Feeds that neither side copies."""

from __future__ import annotations

from typing import Any

import numpy as np


def unchanging(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values in memory that nobody can ever write to: graphc copies any other."""
    values = np.frombuffer(array.tobytes(), array.dtype)
    return values.reshape(array.shape)
