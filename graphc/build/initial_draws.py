"""The values that random initializers draw, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import AttributeValueError, DTypeError
from graphc.ir.dtypes import Array, is_floating

Shape = tuple[int, ...]
DType = np.dtype[Any]


def require(initializer: object, condition: bool, what: str) -> None:
    """Raises `AttributeValueError` unless the condition holds."""
    if not condition:
        raise AttributeValueError.here(f"{initializer}: {what}")


def working_dtype(initializer: object, dtype: DType) -> Any:
    """The dtype in which values are drawn."""
    if not is_floating(dtype):
        raise DTypeError(
            f"{type(initializer).__name__} creates floating values, not {dtype.name}",
            hint="pass an array, or a function (rng, shape, dtype) -> array",
        )
    return np.float64 if dtype == np.float64 else np.float32


def uniform(
    initializer: object,
    rng: np.random.Generator,
    shape: Shape,
    dtype: DType,
    low: float,
    high: float,
) -> Array:
    """Values of the uniform distribution over [low, high)."""
    values = rng.random(shape, working_dtype(initializer, dtype))
    return (values * (high - low) + low).astype(dtype)


def truncated(
    initializer: object,
    rng: np.random.Generator,
    shape: Shape,
    dtype: DType,
    mean: float,
    stddev: float,
) -> Array:
    """Values of the normal distribution at most two standard deviations from the mean."""
    working = working_dtype(initializer, dtype)
    values = np.asarray(rng.standard_normal(shape, working)).reshape(-1)
    far = np.flatnonzero(np.abs(values) > 2)
    while far.size:  # each draw is rejected with a probability of about 1 in 22
        values[far] = rng.standard_normal(far.size, working)
        far = far[np.abs(values[far]) > 2]
    return (values.reshape(shape) * stddev + mean).astype(dtype)
