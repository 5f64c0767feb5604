"""Converts arrays on devices to another dtype, and rejects numbers that do not fit."""

from __future__ import annotations

import jax
import numpy as np
from jax import numpy as jnp

from graphc.errors import DTypeError
from graphc.ir.dtypes import DType, is_integer
from graphc.ir.host_values import can_overflow


def fitted_on_device(value: jax.Array, dtype: DType) -> jax.Array:
    """`value` in another dtype of its kind, on the devices that hold it.

    If the new dtype is narrower, this waits for the values and checks them by a reduction.

    Raises:
        DTypeError: a number does not fit.
    """
    source = np.dtype(value.dtype)
    with jax.enable_x64(True):
        result = value.astype(dtype)
        if not value.size or not can_overflow(source, dtype):
            return result
        if not is_integer(dtype):
            if bool(_loses_numbers(value, result)):
                raise DTypeError(
                    f"{source} values do not fit {dtype.name}",
                    details=["a finite value would become an infinity or a NaN"],
                )
            return result
        least, most = map(int, _extremes(value))
    limits = jnp.iinfo(dtype)  # type: ignore[no-untyped-call]
    if least < int(limits.min) or most > int(limits.max):
        raise DTypeError(
            f"{source} values do not fit {dtype.name}",
            details=[f"its values run from {least} to {most}"],
        )
    return result


@jax.jit
def _extremes(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    if x.dtype.itemsize == 1:  # some backends lack reductions of 4-bit integers
        x = x.astype(jnp.int16)
    return x.min(), x.max()


@jax.jit
def _loses_numbers(x: jax.Array, result: jax.Array) -> jax.Array:
    nan = jnp.isnan(x) != jnp.isnan(result)
    return (nan | (jnp.isinf(x) != jnp.isinf(result))).any()
