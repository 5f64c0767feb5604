"""Dropout: its operator, and the mask that is drawn anew in every run."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from graphc.ir.dtypes import BOOL, FLOAT32, UINT32, is_floating
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.operand import Operand
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.cost_rules import times_result
from graphc.ops.core.defining import define
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.core.layout_rules import SUM, replicated
from graphc.ops.draws.location_scale import uniform
from graphc.ops.draws.random_draws import draw
from graphc.ops.draws.random_keys import HASH, as_jax_key, check_key
from graphc.ops.elementwise.arithmetic import maximum
from graphc.ops.elementwise.comparison import where
from graphc.ops.structure.state import stop_gradient
from graphc.typing import Seed, TensorLike

__all__ = ["dropout"]


def _infer_dropout(
    ctx: InferContext, x: TensorType, key: TensorType, *, rate: float
) -> tuple[TensorType, TensorType]:
    ctx.require_dtype([x], is_floating, "floating")
    check_key(ctx, key)
    return x, TensorType(BOOL, x.shape)


def kept_by_dropout(key: Any, shape: tuple[Any, ...], rate: float) -> Any:
    """A JAX array of bools, each False with probability `rate`."""
    # Random words against a threshold: no conversion to floats, and one stream for all dtypes.
    threshold = np.uint32(min(round((1 - rate) * 2**32), 2**32 - 1))
    return jax.random.bits(as_jax_key(key), shape, UINT32) < threshold


def _lower_dropout(ctx: LowerContext, x: Any, key: Any, *, rate: float) -> tuple[Any, Any]:
    kept = kept_by_dropout(key, x.shape, rate)
    return jnp.where(kept, x / (1 - rate), np.zeros((), x.dtype)), kept


def _dropout_gradient(
    ctx: GradientContext, node: Node, dy: Tensor, dkept: Tensor | None
) -> Adjoints:
    # This uses the mask itself, not a second draw with the same key: under data parallelism the
    # adjoint may have another layout than x, and the second draw would differ.
    kept = node.outputs[1]
    return [ctx.ops.where(kept, dy / (1 - node.attrs["rate"]), 0), None]


def _dropout_layout(ctx: LayoutContext, node: Node, x: Layout, key: Layout) -> LayoutPlan:
    if isinstance(x, Sharded):
        return LayoutPlan([x, REPLICATED], [x, x], fold_replica=(1,))
    if x == SUM:  # linear, and all terms share one mask
        return LayoutPlan([x, REPLICATED], [x, REPLICATED])
    return replicated(ctx, node, x, key)


DROPOUT = define(
    "Dropout(x, key) -> y, kept",
    precision="follow",
    attrs={
        "rate": Attr(
            "float",
            check=lambda v: 0 <= v < 1,
            must="be at least 0 and less than 1",
            doc="the probability of 0",
            hint="it is the fraction of elements that become 0: 0.1 for TensorFlow's keep_prob=0.9",
        )
    },
    infer=_infer_dropout,
    lower=_lower_dropout,
    gradient=_dropout_gradient,
    layout=_dropout_layout,
    cost=times_result(HASH + 3),
    doc="Each element of x set to 0 with probability `rate`, the others divided by 1 - rate; and "
    "the mask of the kept elements (bool). Floating dtypes. Source: Srivastava et al., JMLR 15, "
    "2014.",
)


def dropout(
    x: TensorLike, rate: TensorLike, *, seed: Seed = None, name: str | None = None
) -> Tensor:
    """`x` with each element set to 0 with probability `rate`, the others divided by 1 - rate.

    Args:
        x: floating.
        rate: at least 0, less than 1. For the number 0 the result is `x`. A scalar tensor gets no
            gradient.
        seed: see `random_key`.

    Raises:
        AttributeValueError: the rate is out of range.

    Examples:
        >>> y = run(gc.nn.dropout(gc.ones(100), 0.5))
        >>> sorted(set(y.tolist()))
        [0.0, 2.0]
    """
    value = convert(x)
    if isinstance(rate, Operand):
        return _dropout_of_rate(value, stop_gradient(rate), seed, name)
    if rate == 0:
        return value
    return draw(DROPOUT, (value,), (), seed, name, rate=rate)[0]


def _dropout_of_rate(x: Tensor, rate: Tensor, seed: Any, name: str | None) -> Tensor:
    """Dropout with a rate that is known only when the graph runs."""
    kept = uniform(x.shape, seed=seed) >= to_dtype(rate, FLOAT32)
    scale = maximum(1 - to_dtype(rate, FLOAT32), float(np.finfo(np.float32).tiny))
    return where(kept, x / to_dtype(scale, x.dtype), 0, name=name)


OPS: tuple[OpDef, ...] = (DROPOUT,)
