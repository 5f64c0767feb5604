"""Random keys: u32[2] values that random operators take as operands.

`RandomKey(seed)` stands for the run's own key with the seed folded in; `functionalize` makes it
explicit. The generator is threefry2x32 (Salmon et al., Parallel random numbers: as easy as 1, 2,
3, SC 2011) whatever JAX's configuration says, so streams do not change with it.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import lax

from graphc.errors import AttributeValueError, GraphError
from graphc.ir.dtypes import INT32, UINT32
from graphc.ir.node import Operand, Tensor
from graphc.ir.opdef import Effects, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.checks import refuse
from graphc.ops.emit import constant, convert, emit_one, graph_of, is_weak
from graphc.ops.layout_rules import replicated

KEY = TensorType(UINT32, (2,))


def as_jax_key(words: Any) -> Any:
    """JAX's key of these u32[2], with the generator pinned."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def check_key(ctx: InferContext, key: TensorType) -> None:
    """Raises `ShapeError` or `DTypeError` unless `key` is u32[2]."""
    ctx.require(
        key == KEY,
        f"key must be {KEY}, got {key}",
        mend="gc.random.random_key(seed) makes one, gc.random.fold_in(key, n) another from it",
        dtype=key.dtype != KEY.dtype,
    )


def _infer_random_key(ctx: InferContext, seed: TensorType) -> TensorType:
    ctx.require(seed == TensorType(INT32, ()), f"seed must be an int32 scalar, got {seed}")
    return KEY


def _not_lowered(ctx: LowerContext, seed: Any) -> Any:
    raise GraphError("RandomKey must be gone before lowering: run functionalize")


def _infer_fold_in(ctx: InferContext, key: TensorType, data: TensorType) -> TensorType:
    check_key(ctx, key)
    ctx.require(data == TensorType(INT32, ()), f"data must be an int32 scalar, got {data}")
    return KEY


def _lower_fold_in(ctx: LowerContext, key: Any, data: Any) -> Any:
    number = lax.bitcast_convert_type(data, UINT32)  # negative ones too
    return jax.random.key_data(jax.random.fold_in(as_jax_key(key), number))


RANDOM_KEY = OpDef(
    name="RandomKey",
    signature="seed -> key",
    infer=_infer_random_key,
    lower=_not_lowered,
    differentiable=False,
    effects=Effects.RANDOM,
    doc="The run's random key with `seed` (int32 scalar) folded in: u32[2]. Another one in every "
    "run and every iteration of a loop.",
)

FOLD_IN = OpDef(
    name="FoldIn",
    signature="key, data -> key",
    infer=_infer_fold_in,
    lower=_lower_fold_in,
    differentiable=False,
    layout=replicated,
    doc="A key (u32[2]) made from a key and a number (int32 scalar); other numbers give keys "
    "that are independent.",
)


def random_key(seed: Any = None, *, name: str | None = None) -> Tensor:
    """A random key, u32[2], new in every run.

    Args:
        seed: operators with the same seed draw the same numbers within a run: an int of 0 to
            2^31 - 1, or an int32 scalar tensor. By default one that no other operator has.

    Raises:
        AttributeValueError: a seed out of range.
    """
    if seed is None:
        # Negative, so that no seed of the user's is the same.
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


def fold_in(key: Any, data: Any, *, name: str | None = None) -> Tensor:
    """A key made from `key` (u32[2]) and a number (int, or int32 scalar tensor)."""
    number = constant(data, INT32) if is_weak(data) else convert(data)
    return emit_one(FOLD_IN, (convert(key), number), name=name)


OPS: tuple[OpDef, ...] = (RANDOM_KEY, FOLD_IN)
