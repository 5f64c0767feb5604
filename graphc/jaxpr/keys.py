"""Rules of random numbers. A key of JAX, of any shape, is represented by its words: u32[..., 2].

Only JAX's default generator threefry2x32 is supported, which graphc's random operators use too.
Primitives that reshape and select keys have their own rules here, because of the axis of the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from graphc.errors import JaxImportError
from graphc.ir.dtypes import INT32, UINT32, Array, as_dtype, is_64bit
from graphc.ir.node import Tensor
from graphc.jax_internals import KEY_DTYPE
from graphc.jaxpr.equation import Equation, Results, Rule
from graphc.jaxpr.shapes import transposed
from graphc.jaxpr.windows import dynamic_slice
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import broadcast_to, reshaped
from graphc.ops.arrays.slicing import slice_
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import constant, emit_one, to_dtype
from graphc.ops.draws.random_keys import FOLD_IN, RANDOM_BITS, SPLIT_KEY, as_jax_key
from graphc.ops.elementwise.bits import bitcast, right_shift


@cache
def is_key(dtype: Any) -> bool:
    """Whether `dtype` is the dtype of random keys.

    Raises:
        JaxImportError: the keys belong to another generator.
    """
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return False
    if str(dtype) != KEY_DTYPE:
        refuse(
            f"the JAX function draws random numbers from another generator: {dtype}",
            hint='make its keys with impl="threefry2x32", which is what graphc draws from',
            error=JaxImportError,
        )
    return True


def with_keys(values: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Values of variables of a jaxpr, with keys in place of their words."""
    pairs = zip(values, variables, strict=True)
    return [as_jax_key(x) if is_key(v.aval.dtype) else x for x, v in pairs]


def words_of(keys: Any) -> Array:
    """The words of JAX's keys."""
    return np.asarray(jax.random.key_data(keys))


def _seed(eqn: Equation, seed: Tensor) -> Tensor:
    """The key of a number: its upper and its lower 32 bits."""
    if is_64bit(seed.dtype):
        upper = right_shift(bitcast(seed, np.uint64), 32)
        words = [to_dtype(upper, UINT32), to_dtype(bitcast(seed, np.uint64), UINT32)]
    else:
        lower = to_dtype(seed, UINT32)
        words = [broadcast_to(constant(0, UINT32), seed.shape), lower]
    column = (*seed.shape, 1)
    return concatenate([reshaped(word, column) for word in words], -1)


def _fold_in(eqn: Equation, keys: Tensor, numbers: Tensor) -> Tensor:
    shape = eqn.type.shape[:-1]
    if keys.shape != eqn.type.shape:
        keys = broadcast_to(keys, eqn.type.shape)
    if numbers.shape != shape:
        numbers = broadcast_to(numbers, shape)
    return emit_one(FOLD_IN, (keys, to_dtype(numbers, INT32)))  # the same bits


def _split(eqn: Equation, keys: Tensor) -> Tensor:
    return emit_one(SPLIT_KEY, (keys,), shape=eqn.symbols.dims(eqn.params["shape"]))


def _bits(eqn: Equation, keys: Tensor) -> Tensor:
    shape = eqn.symbols.dims(eqn.params["shape"])
    return emit_one(RANDOM_BITS, (keys,), shape=shape, dtype=as_dtype(eqn.type.dtype))


RULES: dict[str, Rule] = {
    "random_bits": _bits,
    "random_clone": lambda eqn, x: x,
    "random_fold_in": _fold_in,
    "random_seed": _seed,
    "random_split": _split,
    "random_unwrap": lambda eqn, x: x,
    "random_wrap": lambda eqn, x: x,
}

# -- arrays of keys ----------------------------------------------------------------------------


def _slice(eqn: Equation, keys: Tensor) -> Tensor:
    params, dims = eqn.params, eqn.symbols.dims
    strides = params["strides"] or (1,) * (keys.ndim - 1)
    return slice_(
        keys,
        (*dims(params["start_indices"]), 0),
        (*dims(params["limit_indices"]), 2),
        (*[int(s) for s in strides], 1),
    )


def _dynamic_slice(eqn: Equation, keys: Tensor, *starts: Tensor) -> Tensor:
    return dynamic_slice(keys, (*starts, constant(0, INT32)), eqn.type.shape)


def _broadcast(eqn: Equation, keys: Tensor) -> Tensor:
    shape = eqn.type.shape
    spread: list[Any] = [1] * len(shape)
    places = (*eqn.ints("broadcast_dimensions"), len(shape) - 1)
    for place, dim in zip(places, keys.shape, strict=True):
        spread[place] = dim
    keys = reshaped(keys, tuple(spread))
    return keys if keys.shape == shape else broadcast_to(keys, shape)


def _on_words(eqn: Equation, *operands: Tensor) -> Results:
    """A primitive that moves keys but does not look at them, applied to each word of the keys."""
    axes = [-1 if is_key(v.aval.dtype) else None for v in eqn.eqn.invars]

    def each(*words: Any) -> Any:
        return eqn.eqn.primitive.bind(*words, **eqn.params)

    jaxpr = jax.make_jaxpr(jax.vmap(each, in_axes=axes, out_axes=-1))(
        *[eqn.symbols.struct(t.type) for t in operands]
    )
    return eqn.inline(jaxpr, operands, eqn.used)


_OF_KEYS: dict[str, Rule] = {
    "broadcast_in_dim": _broadcast,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _on_words,
    "gather": _on_words,
    "rev": _on_words,
    "scatter": _on_words,
    "select_n": _on_words,
    "slice": _slice,
    "transpose": lambda eqn, keys: transposed(keys, (*eqn.ints("permutation"), keys.ndim - 1)),
}
# Primitives whose rules apply to the words unchanged.
_AS_THEY_ARE = {
    *("checkpoint", "closed_call", "concatenate", "copy", "copy_p", "core_call", "cond"),
    *("custom_jvp_call", "custom_linear_solve", "custom_vjp_call", "expand_dims", "jit"),
    *("optimization_barrier", "pjit", "remat2", "reshape", "scan", "split", "squeeze", "stack"),
    *("unstack", "while", "debug_callback", "debug_print", "io_callback", "pure_callback"),
}


def for_keys(name: str, rule: Rule) -> Rule:
    """`rule` of the primitive `name`, extended to random keys among the results."""
    if name in RULES or name in _AS_THEY_ARE:
        return rule
    own = _OF_KEYS.get(name, _refuse)

    def chosen(eqn: Equation, *operands: Tensor) -> Any:
        keys = any(is_key(v.aval.dtype) for v in eqn.eqn.outvars)
        return (own if keys else rule)(eqn, *operands)

    return chosen


def _refuse(eqn: Equation, *operands: Tensor) -> Tensor:
    eqn.refuse("of random keys is not imported", "move keys by indices: keys[order]")
