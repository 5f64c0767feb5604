"""Random keys: u32[2] values that random operators take as operands.

`FoldIn`, `SplitKey` and `RandomBits` take a key, or an array of keys [..., 2] that are processed
independently.

`RandomKey(seed)` represents the run's own key with the seed folded in; `functionalize` makes it
explicit. The generator is always threefry2x32 (Salmon et al., Parallel random numbers: as easy as
1, 2, 3, SC 2011), so streams do not depend on JAX's configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
from jax import lax

from graphc.errors import AttributeValueError, GraphError
from graphc.ir.dims import Shape
from graphc.ir.dtypes import INT32, UINT32, as_dtype
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, Effects, InferContext, LowerContext, OpDef
from graphc.ir.operand import Operand
from graphc.ir.types import TensorType
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.cost_rules import moves_only, times_result
from graphc.ops.core.defining import without_gradient
from graphc.ops.core.emit import constant, convert, emit_one, graph_of
from graphc.ops.core.layout_rules import replicated
from graphc.ops.core.sizes import SHAPE
from graphc.ops.core.weak_numbers import is_weak
from graphc.typing import DTypeLike, Seed, ShapeLike, TensorLike

__all__ = ["fold_in", "random_key"]

KEY = TensorType(UINT32, (2,))

# Operations for each random word of 32 bits: 20 rounds of five operations on two words, and five
# additions of the key. Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
HASH = 20 * 5 // 2 + 5


def as_jax_key(words: Any) -> Any:
    """A JAX key with these u32[2] words and a fixed generator."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def check_key(ctx: InferContext, key: TensorType) -> None:
    """Raises `ShapeError` or `DTypeError` unless `key` is u32[2]."""
    ctx.require(
        key == KEY,
        f"key must be {KEY}, got {key}",
        hint="gc.random.random_key(seed) makes one, gc.random.fold_in(key, n) another from it",
        dtype=key.dtype != KEY.dtype,
    )


def _check_keys(ctx: InferContext, keys: TensorType) -> Shape:
    """The shape of an array of keys; raises unless `keys` is u32[..., 2]."""
    fits = keys.dtype == UINT32 and keys.rank > 0 and keys.shape[-1] == 2
    ctx.require(
        fits,
        f"key must be {KEY}, or an array of keys, got {keys}",
        hint="gc.random.random_key(seed) makes one, gc.random.split(key) others from it",
        dtype=keys.dtype != UINT32,
    )
    return keys.shape[:-1]


def _each(function: Callable[..., Any], keys: Any, *others: Any) -> Any:
    """`function(key, *others)` for each JAX key in an array [..., 2] of words."""
    for _ in range(keys.ndim - 1):
        function = jax.vmap(function)
    return function(as_jax_key(keys), *others)


def _infer_random_key(ctx: InferContext, seed: TensorType) -> TensorType:
    ctx.require(seed == TensorType(INT32, ()), f"seed must be an int32 scalar, got {seed}")
    return KEY


def _not_lowered(ctx: LowerContext, seed: Any) -> Any:
    raise GraphError("RandomKey must be removed before lowering: run functionalize")


def _infer_fold_in(ctx: InferContext, key: TensorType, data: TensorType) -> TensorType:
    shape = _check_keys(ctx, key)
    ctx.require(
        data == TensorType(INT32, shape),
        f"data must be an int32 for each key, {TensorType(INT32, shape)}, got {data}",
    )
    return key


def _lower_fold_in(ctx: LowerContext, key: Any, data: Any) -> Any:
    number = lax.bitcast_convert_type(data, UINT32)  # also negative ones
    return jax.random.key_data(_each(jax.random.fold_in, key, number))


def random_operator(schema: str, **fields: Any) -> OpDef:
    """An operator that derives its result from random keys. It has no gradient, and each replica
    computes the whole result."""
    return without_gradient(schema, layout=replicated, **fields)


RANDOM_KEY = without_gradient(
    "RandomKey(seed) -> key",
    infer=_infer_random_key,
    lower=_not_lowered,
    effects=Effects.RANDOM,
    cost=moves_only,
    doc="The run's random key with `seed` (int32 scalar) folded in: u32[2]. It differs in every "
    "run and in every iteration of a loop.",
)

FOLD_IN = random_operator(
    "FoldIn(key, data) -> key",
    infer=_infer_fold_in,
    lower=_lower_fold_in,
    cost=times_result(HASH),
    doc="A key (u32[2]) derived from a key and a number (int32 scalar). Different numbers give "
    "independent keys. Also elementwise on arrays of keys and numbers.",
)

SPLIT_KEY = random_operator(
    "SplitKey(key) -> keys",
    attrs={"shape": replace(SHAPE, doc="the shape of the array of new keys")},
    infer=lambda ctx, key, *, shape: TensorType(UINT32, (*_check_keys(ctx, key), *shape, 2)),
    lower=lambda ctx, key, *, shape: jax.random.key_data(
        _each(lambda k: jax.random.split(k, ctx.shape(shape)), key)
    ),
    cost=times_result(HASH),
    doc="New keys (u32[*shape, 2]) derived from a key, independent of it and of each other.",
)

RANDOM_BITS = random_operator(
    "RandomBits(key) -> x",
    attrs={
        "shape": replace(SHAPE, doc="the shape of the result for each key"),
        "dtype": Attr(
            "dtype",
            default=UINT32,
            check=lambda d: d.kind == "u" and d.name != "uint4",
            must="be an unsigned integer of 8 bits or more",
        ),
    },
    infer=lambda ctx, key, *, shape, dtype: TensorType(dtype, (*_check_keys(ctx, key), *shape)),
    lower=lambda ctx, key, *, shape, dtype: _each(
        lambda k: jax.random.bits(k, ctx.shape(shape), dtype), key
    ),
    cost=times_result(HASH),
    doc="Words of random bits. Unsigned integer dtypes.",
)


def random_key(seed: Seed = None, *, name: str | None = None) -> Tensor:
    """A random key, u32[2], new in every run.

    Args:
        seed: operators with the same seed draw the same numbers within a run: an int of 0 to
            2^31 - 1, or an int32 scalar tensor. By default a seed that no other operator has.

    Raises:
        AttributeValueError: the seed is out of range.

    Examples:
        >>> key = gc.random.random_key()
        >>> key.type
        TensorType(dtype=dtype('uint32'), shape=(2,))
    """
    if seed is None:
        # Negative, so that it differs from all seeds of the user.
        seed = -graph_of([]).next_draw()
    elif isinstance(seed, Operand):
        seed = convert(seed)
    elif type(seed) is not int or not 0 <= seed < 2**31:
        refuse(
            f"RandomKey: seed must be an int from 0 to 2**31 - 1, got {seed!r}",
            error=AttributeValueError,
        )
    operand = seed if isinstance(seed, Tensor) else constant(seed, INT32)
    return emit_one(RANDOM_KEY, (operand,), name=name)


def fold_in(key: TensorLike, data: TensorLike, *, name: str | None = None) -> Tensor:
    """A key derived from `key` (u32[2]) and a number (int, or int32 scalar tensor).

    Examples:
        >>> key = gc.random.random_key(0)
        >>> run(gc.reduce_any(gc.random.fold_in(key, 1) != gc.random.fold_in(key, 2)))
        Array(True, dtype=bool)
    """
    number = constant(data, INT32) if is_weak(data) else convert(data)
    return emit_one(FOLD_IN, (convert(key), number), name=name)


def split_key(key: TensorLike, num: ShapeLike = 2, *, name: str | None = None) -> Tensor:
    """`num` new keys derived from `key`, which should not be used any more.

    Args:
        key: u32[2].
        num: the number of keys, or the shape of an array of keys.

    Returns:
        u32[num, 2]; a row is a key.

    Source: jax.random.split.

    Examples:
        >>> gc.random.split(gc.random.random_key(0), 3).shape
        (3, 2)
    """
    return emit_one(SPLIT_KEY, (convert(key),), name, shape=as_dims("SplitKey", num))


def random_bits(
    key: TensorLike, shape: ShapeLike = (), dtype: DTypeLike = "uint32", *, name: str | None = None
) -> Tensor:
    """Random bits: unsigned integers, uniformly distributed over all values of the dtype.

    Args:
        key: u32[2]; the same key gives the same bits.
        shape: ints and named sizes.
        dtype: unsigned, of 8 bits or more.

    Source: jax.random.bits.

    Examples:
        >>> key = gc.random.random_key(0)
        >>> gc.random.bits(key, (3,)).type
        TensorType(dtype=dtype('uint32'), shape=(3,))
    """
    sizes = as_dims("RandomBits", shape)
    return emit_one(RANDOM_BITS, (convert(key),), name, shape=sizes, dtype=as_dtype(dtype))


OPS: tuple[OpDef, ...] = (RANDOM_KEY, FOLD_IN, SPLIT_KEY, RANDOM_BITS)
