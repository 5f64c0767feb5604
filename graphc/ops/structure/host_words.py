"""64-bit values between a program and the host, as pairs of uint32.

JAX calls a callback in its own threads, where 64-bit mode is off and 64-bit arguments would be
truncated to 32 bits. A complex128 is two pairs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import Array, DType, is_64bit, is_complex
from graphc.jax_internals import CALLBACK_LOGGER


def through_words(
    call: Callable[..., Sequence[Any]],
    function: Callable[..., Sequence[Array]],
    results: Sequence[jax.ShapeDtypeStruct],
    operands: Sequence[Any],
) -> tuple[Any, ...]:
    """`call(function, results, *operands)`, with 64-bit values passed as words.

    Args:
        call: one of JAX's callbacks.
        function: takes and returns arrays of the types of `operands` and `results`.
    """
    given = [np.dtype(x.dtype) for x in operands]

    def of_words(*values: Any) -> list[Array]:
        arrays = [_joined(np.asarray(v), t) for v, t in zip(values, given, strict=True)]
        return [_cut(np.asarray(y)) for y in function(*arrays)]

    found = call(of_words, [_narrow(s) for s in results], *map(_words, operands))
    return tuple([_wide(y, s.dtype) for y, s in zip(found, results, strict=True)])


def _is_of_others(record: logging.LogRecord) -> bool:
    """Whether JAX logs the failure of a callback that is not graphc's. The run that called it
    reports the failures of graphc's."""
    step = record.exc_info[2] if record.exc_info else None
    while step is not None:
        if step.tb_frame.f_code.co_filename == __file__:
            return False
        step = step.tb_next
    return True


logging.getLogger(CALLBACK_LOGGER).addFilter(_is_of_others)


def _extra(dtype: DType) -> tuple[int, ...]:
    """The additional axes of the words of a value."""
    if not is_64bit(dtype):
        return ()
    return (2, 2) if is_complex(dtype) else (2,)


# -- in the program ----------------------------------------------------------------------------


def _narrow(struct: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    extra = _extra(struct.dtype)
    return jax.ShapeDtypeStruct((*struct.shape, *extra), np.uint32) if extra else struct


def _words(x: Any) -> Any:
    if not is_64bit(x.dtype):
        return x
    parts = jnp.stack([x.real, x.imag], -1) if is_complex(x.dtype) else x
    return lax.bitcast_convert_type(parts, np.uint32)


def _wide(y: Any, dtype: DType) -> Any:
    if not is_64bit(dtype):
        return y
    if not is_complex(dtype):
        return lax.bitcast_convert_type(y, dtype)
    parts = lax.bitcast_convert_type(y, np.float64)
    return lax.complex(parts[..., 0], parts[..., 1])


# -- on the host -------------------------------------------------------------------------------


def _joined(words: Array, dtype: DType) -> Array:
    extra = _extra(dtype)
    if not extra:
        return words
    shape = words.shape[: words.ndim - len(extra)]
    return np.frombuffer(words.tobytes(), dtype).reshape(shape)


def _cut(array: Array) -> Array:
    extra = _extra(array.dtype)
    if not extra:
        return array
    return np.frombuffer(array.tobytes(), np.uint32).reshape((*array.shape, *extra))
