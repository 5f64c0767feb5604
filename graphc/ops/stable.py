"""What lowerings share to stay within the range and precision of their dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import FLOAT32, DType


def wide(dtype: DType) -> DType:
    """The dtype to compute in: float32 for narrower floating dtypes."""
    return FLOAT32 if dtype.itemsize < FLOAT32.itemsize else dtype


def shifted(x: Any, axis: int) -> Any:
    """`x` less its maximum along `axis`: its exponentials do not overflow.

    No derivative flows through the maximum: what the softmax family computes does not depend on
    it.
    """
    return x - lax.stop_gradient(jnp.max(x, axis=axis, keepdims=True))


def row_index(labels: Any, classes: Any) -> Any:
    """Class numbers as signed indices; negative ones become `classes` and do not wrap."""
    wide_enough = np.int64 if labels.dtype.itemsize == 8 else np.int32
    index = lax.convert_element_type(labels, wide_enough)
    return jnp.where(index < 0, jnp.asarray(classes, wide_enough), index)
