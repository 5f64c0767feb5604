"""Attention and its adjoints by cuDNN's flash attention, through `jax.nn.dot_product_attention`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import numpy as jnp

from graphc.ir.dtypes import BOOL
from graphc.ops.nn.attention_operands import How, Operands, biases


def by_cudnn(of: Operands, how: How) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The result, and a function from its adjoint to those of query, key, value and the biases.

    Forward passes with an adjoint request both, too. For the backward pass cuDNN stores a sum for
    each query, and a call that stores it differs from one that does not. If the calls are equal,
    XLA can merge them.
    """
    y, pull = jax.vjp(functools.partial(through_cudnn, of, how), *of[:3], tuple(biases(of)))
    return y, pull


def through_cudnn(
    of: Operands, how: How, query: Any, key: Any, value: Any, added: Sequence[Any]
) -> Any:
    """The result. What has adjoints is given apart from the operands; `added` are the biases."""

    def each_pair(x: Any) -> Any:
        """`x` broadcast to all queries and keys, as cuDNN requires. Batch and heads may have size
        1."""
        return jnp.broadcast_to(x, (*x.shape[:2], of.query.shape[1], of.key.shape[1]))

    seen = [mask for mask in of.masks if mask.dtype == BOOL]
    mask = functools.reduce(jnp.logical_and, seen) if seen else None
    y = jax.nn.dot_product_attention(
        query,
        key,
        value,
        bias=each_pair(sum(added[1:], added[0])) if added else None,
        mask=None if mask is None else each_pair(mask),
        scale=how.scale,
        is_causal=how.causal,
        implementation="cudnn",
    )
    if mask is None or how.mean_if_blind:
        return y
    # cuDNN gives the mean of all values for queries that see no key.
    sees = jnp.any(mask, axis=3, keepdims=True)
    return jnp.where(sees.transpose(0, 2, 1, 3), y, 0)
