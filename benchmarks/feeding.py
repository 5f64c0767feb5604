"""Feeds that neither graphc nor JAX copies."""

from __future__ import annotations

from typing import Any

import numpy as np


def unchanging(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values in read-only memory. graphc copies all other arrays."""
    values = np.frombuffer(array.tobytes(), array.dtype)
    return values.reshape(array.shape)
