"""Trees of Python values and NumPy arrays as JSON, with the arrays beside it.

A tree is a nest of dicts with str keys, lists, str, int, float, bool, None and NumPy arrays: what
the `state()` of pipelines and callbacks returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import SHORT, Array

_ARRAY = "$array"  # {"$array": 3} stands for the array with this number
_ESCAPE = "$"  # keys of the user's that begin so get another one in front
_DEEPEST = 200  # levels: JSON is read by recursion


def encode(tree: Any, where: str) -> tuple[Any, list[Array]]:
    """The tree as JSON values, and its arrays.

    Args:
        where: how the user calls the tree, for errors.

    Raises:
        AttributeValueError: it holds something else, or is too deep.
    """
    arrays: list[Array] = []
    return _encoded(tree, where, arrays, 0), arrays


def _encoded(value: Any, where: str, arrays: list[Array], depth: int) -> Any:
    if depth > _DEEPEST:
        raise AttributeValueError.here(f"{where[:200]}: nested more than {_DEEPEST} levels deep")
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {
            _key(key, where): _encoded(item, f"{where}[{key!r}]", arrays, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_encoded(v, f"{where}[{i}]", arrays, depth + 1) for i, v in enumerate(value)]
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        arrays.append(_array(value, where))
        return {_ARRAY: len(arrays) - 1}
    raise AttributeValueError.here(
        f"{where} is of type {type(value).__name__}, which a checkpoint cannot store",
        hint="use dicts with str keys, lists, str, int, float, bool, None and arrays",
    )


def _array(value: Any, where: str) -> Array:
    typed_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    if typed_key or np.dtype(value.dtype) not in SHORT:
        raise AttributeValueError.here(
            f"{where} is an array of {value.dtype}, which a checkpoint cannot store",
            hint="store jax.random.key_data(key)" if typed_key else "store numbers",
        )
    return np.array(value)  # a copy: the user may change theirs while a thread writes


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise AttributeValueError.here(
            f"{where}: the key {key!r} is not a str", hint="use str(key)"
        )
    return _ESCAPE + key if key.startswith(_ESCAPE) else key


def decode(value: Any, arrays: list[Array]) -> Any:
    """The tree of `encode`.

    Raises:
        KeyError, IndexError, TypeError: `encode` cannot have made the values.
    """
    if isinstance(value, list):
        return [decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_ARRAY}:
        number = value[_ARRAY]
        if type(number) is not int or number < 0:
            raise TypeError(number)
        return arrays[number]
    return {key.removeprefix(_ESCAPE): decode(item, arrays) for key, item in value.items()}
