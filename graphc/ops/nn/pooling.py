"""Max and average pooling over the spatial axes of [batch, ..., channels]."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import CostContext, size_of
from graphc.ir.dtypes import BOOL, is_complex, is_floating
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.defining import adjoint_of, define
from graphc.ops.core.emit import convert, emit, emit_one
from graphc.ops.core.layout_rules import same_axis
from graphc.ops.core.precision import in_wider, lowest, summed
from graphc.ops.nn.pool_taps import (
    max_by_taps,
    max_gradient_by_taps,
    sum_by_taps,
    sum_gradient_by_taps,
)
from graphc.ops.nn.windows import PADDING, positive_ints, sliding, window_sizes
from graphc.typing import Padding, TensorLike

__all__ = ["avg_pool", "max_pool"]

_WINDOW_ATTRS = {
    "window": positive_ints("sizes of the window"),
    "strides": positive_ints("steps of the window along each spatial axis"),
    "padding": PADDING,
}
_HOW = {"by_taps": Attr("bool", default=False, doc="how: tap by tap, or by XLA's own operators")}
_MAX_ATTRS = {
    **_WINDOW_ATTRS,
    "dilation": positive_ints("steps between the taps of the window"),
    **_HOW,
}
_AVG_ATTRS = {
    **_WINDOW_ATTRS,
    **_HOW,
    "count_include_pad": Attr("bool", default=False, doc="whether padding counts as zeros"),
}


def _infer_pool(ctx: InferContext, x: TensorType, **attrs: Any) -> TensorType:
    window = attrs["window"]
    _check_axes(ctx, "x", x, len(window))
    dilation = attrs.setdefault("dilation", (1,) * len(window))
    sizes = window_sizes(ctx, x.shape[1:-1], window, attrs)
    for extent, taps, pads in zip(window, dilation, attrs["padding"], strict=True):
        reach = (extent - 1) * taps + 1
        ctx.require(
            max(pads) < reach,
            f"padding {pads} must be smaller than the window's {reach}",
            hint="a window must not contain padding only",
        )
    return TensorType(x.dtype, (x.shape[0], *sizes, x.shape[-1]))


def _check_axes(ctx: InferContext, label: str, type: TensorType, rank: int) -> None:
    ctx.require(
        type.rank == rank + 2,
        f"{label} must be [batch, ..., channels] with {rank} axes between, got {type.rank} axes",
    )


def _reduced(x: Any, initial: Any, function: Callable[..., Any], attrs: dict[str, Any]) -> Any:
    """`function` over each window of `x`, which starts from `initial`."""
    return lax.reduce_window(
        x,
        initial,
        function,
        window_dimensions=_over_space(attrs["window"], 1),
        window_strides=_over_space(attrs["strides"], 1),
        padding=_over_space(attrs["padding"], (0, 0)),
    )


def _over_space(spatial: tuple[Any, ...], outer: Any) -> tuple[Any, ...]:
    return (outer, *spatial, outer)


# -- max ------------------------------------------------------------------------------------


def _by_taps(attrs: dict[str, Any]) -> bool:
    # JAX does not differentiate a dilated reduce_window, and select-and-scatter has no dilation.
    return bool(attrs["by_taps"]) or max(attrs["dilation"]) > 1


def _max_pool(x: Any, attrs: dict[str, Any]) -> Any:
    if _by_taps(attrs):
        return max_by_taps(x, attrs)
    return _reduced(x, lowest(x.dtype), lax.max, attrs)


def _infer_max_pool(ctx: InferContext, x: TensorType, **attrs: Any) -> TensorType:
    ctx.require_dtype([x], lambda d: not is_complex(d) and d != BOOL, "real numbers")
    return _infer_pool(ctx, x, **attrs)


def _infer_max_pool_gradient(
    ctx: InferContext, x: TensorType, dy: TensorType, **attrs: Any
) -> TensorType:
    ctx.require_dtype([x, dy], is_floating, "floating")
    y = _infer_pool(ctx, x, **attrs)
    _check_axes(ctx, "dy", dy, len(attrs["window"]))
    for got, wanted in zip(dy.shape, y.shape, strict=True):
        ctx.unify(got, wanted, "sizes of dy and of the pooled x")
    return x


def _lower_max_pool_gradient(ctx: LowerContext, x: Any, dy: Any, **attrs: Any) -> Any:
    if _by_taps(attrs):
        return max_gradient_by_taps(x, dy, attrs)
    return jax.vjp(lambda x: _max_pool(x, attrs), x)[1](dy)[0]


def _not_spatial(node: Node, axis: int) -> bool:
    return axis in (0, node.inputs[0].ndim - 1)


def _pool_cost(ctx: CostContext, node: Node) -> int:
    """One operation for each element of each window."""
    return int(math.prod(node.attrs["window"])) * size_of(node.outputs[0])


def _pool_gradient_cost(ctx: CostContext, node: Node) -> int:
    return int(math.prod(node.attrs["window"])) * size_of(node.inputs[-1])  # dy


MAX_POOL = define(
    "MaxPool(x) -> y",
    precision="follow",
    attrs=_MAX_ATTRS,
    infer=_infer_max_pool,
    lower=in_wider(lambda ctx, x, **attrs: _max_pool(x, attrs)),
    gradient=lambda ctx, node, dy: [emit(MAX_POOL_GRADIENT, (node.inputs[0], dy), **node.attrs)],
    layout=same_axis(_not_spatial),
    cost=_pool_cost,
    doc="The maximum of each window of x [batch, ..., channels]; padding never wins. "
    "Real dtypes. Source: `jax.lax.reduce_window`.",
)

MAX_POOL_GRADIENT: OpDef = adjoint_of(
    MAX_POOL,
    "MaxPoolGradient(x, dy) -> dx",
    infer=_infer_max_pool_gradient,
    lower=in_wider(_lower_max_pool_gradient),
    cost=_pool_gradient_cost,
    doc="The adjoint of MaxPool's x: each element of dy goes to the first largest element of its "
    "window. Floating dtypes. Source: XLA's SelectAndScatter.",
)


# -- average --------------------------------------------------------------------------------


def _sum_pool(x: Any, attrs: dict[str, Any]) -> Any:
    if attrs["by_taps"]:
        return sum_by_taps(x, attrs)
    return _reduced(x, np.zeros((), x.dtype), lax.add, attrs)


def _counts(size: tuple[Any, ...], dtype: np.dtype[Any], attrs: dict[str, Any]) -> Any:
    """The number of elements that each window averages: a scalar if all windows are full."""
    if attrs["count_include_pad"] or not any(map(any, attrs["padding"])):
        return np.array(np.prod(attrs["window"]), dtype)
    if not all(type(n) is int for n in size):
        return _sum_pool(jnp.ones((1, *size, 1), dtype), attrs)
    along = []
    rows = zip(size, attrs["window"], attrs["strides"], attrs["padding"], strict=True)
    for elements, extent, step, pads in rows:
        ones = np.pad(np.ones(elements, np.int64), pads)
        windows = np.lib.stride_tricks.sliding_window_view(ones, extent)
        along.append(windows[::step].sum(-1))
    counts = functools.reduce(np.multiply.outer, along)
    return counts[None, ..., None].astype(dtype)


def _infer_avg_pool(ctx: InferContext, x: TensorType, **attrs: Any) -> TensorType:
    ctx.require_dtype([x], is_floating, "floating")
    return _infer_pool(ctx, x, **attrs)


def _infer_avg_pool_gradient(
    ctx: InferContext, dy: TensorType, *, size: Any, **attrs: Any
) -> TensorType:
    ctx.require_dtype([dy], is_floating, "floating")
    _check_axes(ctx, "dy", dy, len(attrs["window"]))
    x = TensorType(dy.dtype, (dy.shape[0], *size, dy.shape[-1]))
    for got, wanted in zip(dy.shape, _infer_pool(ctx, x, **attrs).shape, strict=True):
        ctx.unify(got, wanted, "sizes of dy and of the pooled x")
    return x


def _lower_avg_pool_gradient(ctx: LowerContext, dy: Any, *, size: Any, **attrs: Any) -> Any:
    spatial = ctx.shape(size)
    x = jax.ShapeDtypeStruct((dy.shape[0], *spatial, dy.shape[-1]), dy.dtype)
    scaled = dy / _counts(spatial, dy.dtype, attrs)
    if attrs["by_taps"]:
        return sum_gradient_by_taps(scaled, x.shape, attrs)
    return jax.linear_transpose(lambda x: _sum_pool(x, attrs), x)(scaled)[0]


AVG_POOL = define(
    "AvgPool(x) -> y",
    precision="wide",
    attrs=_AVG_ATTRS,
    infer=_infer_avg_pool,
    lower=summed(
        lambda ctx, x, **attrs: _sum_pool(x, attrs) / _counts(x.shape[1:-1], x.dtype, attrs)
    ),
    gradient=lambda ctx, node, dy: [
        emit(AVG_POOL_GRADIENT, (dy,), size=node.inputs[0].shape[1:-1], **node.attrs)
    ],
    layout=same_axis(_not_spatial, linear=True),
    cost=_pool_cost,
    doc="The mean of each window of x [batch, ..., channels]. Padding counts only with "
    "`count_include_pad`. Floating dtypes. Source: `jax.lax.reduce_window`.",
)

AVG_POOL_GRADIENT: OpDef = adjoint_of(
    AVG_POOL,
    "AvgPoolGradient(dy) -> dx",
    attrs={
        "size": Attr("dims", doc="the spatial sizes of x"),
        **_AVG_ATTRS,
    },
    infer=_infer_avg_pool_gradient,
    lower=summed(_lower_avg_pool_gradient),
    gradient=lambda ctx, node, dx: [
        emit(AVG_POOL, (dx,), **{name: node.attrs[name] for name in _AVG_ATTRS})
    ],
    cost=_pool_gradient_cost,
    doc="The adjoint of AvgPool's x: each element of dy is spread evenly over its window. "
    "Floating dtypes.",
)


# -- functions ------------------------------------------------------------------------------


def max_pool(
    x: TensorLike,
    window: int | tuple[int, ...],
    strides: int | tuple[int, ...] | None = None,
    padding: Padding = "valid",
    dilation: int | tuple[int, ...] = 1,
    *,
    name: str | None = None,
) -> Tensor:
    """The maximum of each window.

    Args:
        x: [batch, ..., channels], real, with any number of spatial axes.
        window: its size, one int or one for each spatial axis; or for all axes, with a 1 for batch
            and channels.
        strides: steps of the window; by default the window itself.
        padding: "valid", "same", an int, or a pair (before, after) for each spatial axis.
        dilation: steps between the taps of the window.

    Returns:
        [batch, ..., channels].

    Raises:
        ShapeError: a window larger than the padded input, or padding "same" with a stride over
            a size that is not known yet.
        AttributeValueError: a window, stride, padding or dilation of another form.

    Examples:
        >>> run(gc.nn.max_pool(gc.reshape(gc.arange(4.0), (1, 4, 1)), 2))
        Array([[[1.],
                [3.]]], dtype=float32)
    """
    x = convert(x)
    attrs = sliding("MaxPool", x, window, strides, padding, dilation)
    return emit_one(MAX_POOL, (x,), name=name, **attrs)


def avg_pool(
    x: TensorLike,
    window: int | tuple[int, ...],
    strides: int | tuple[int, ...] | None = None,
    padding: Padding = "valid",
    *,
    count_include_pad: bool = False,
    name: str | None = None,
) -> Tensor:
    """The mean of each window.

    Args:
        x, window, strides, padding: as for `max_pool`, but `x` is floating.
        count_include_pad: divide by the full window everywhere and count padding as zeros.
            Otherwise padding does not count, as in TensorFlow.

    Returns:
        [batch, ..., channels].

    Raises:
        ShapeError, AttributeValueError: as `max_pool`.

    Examples:
        >>> run(gc.nn.avg_pool(gc.reshape(gc.arange(4.0), (1, 4, 1)), 2))
        Array([[[0.5],
                [2.5]]], dtype=float32)
    """
    x = convert(x)
    attrs = sliding("AvgPool", x, window, strides, padding)
    del attrs["dilation"]
    return emit_one(AVG_POOL, (x,), name=name, count_include_pad=count_include_pad, **attrs)


OPS: tuple[OpDef, ...] = (MAX_POOL, MAX_POOL_GRADIENT, AVG_POOL, AVG_POOL_GRADIENT)
