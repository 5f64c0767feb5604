"""The operators of convolution over any number of spatial axes, and of its two gradients.

Each of the three operators is linear in each operand, and its gradients are the other two
operators. So they can be differentiated any number of times. The gradients are lowered by
transposing JAX's convolution, which gives the same HLO as `jax.grad` of hand-written code. Inside
loops on CPU they are written out: see `plain_conv`; depthwise ones always: see `depthwise`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack

import jax
import numpy as np
from jax import lax

from graphc.ir.costs import dims_of
from graphc.ir.dims import Shape
from graphc.ir.dtypes import as_dtype, is_floating
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Replicated, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.defining import Record, at_least, define
from graphc.ops.core.emit import emit
from graphc.ops.core.layout_rules import SUM
from graphc.ops.nn.depthwise import (
    conv_by_taps,
    input_gradient_by_taps,
    is_by_taps,
    kernel_gradient_by_taps,
)
from graphc.ops.nn.plain_conv import dimension_numbers, plain_input_gradient, plain_kernel_gradient
from graphc.ops.nn.windows import PADDING, positive_ints, taps_inside, window_sizes
from graphc.ops.nn.winograd import MOST_PLACES
from graphc.ops.nn.winograd_conv import (
    winograd_conv,
    winograd_input_gradient,
    winograd_kernel_gradient,
)

Sizes = tuple[Any, ...]

_SOURCE = (
    "Source: Dumoulin & Visin, A guide to convolution arithmetic for deep learning, 2016; "
    "`jax.lax.conv_general_dilated`."
)
_ATTRS = {
    "strides": positive_ints("steps of the window along each spatial axis"),
    "padding": PADDING,
    "dilation": positive_ints("steps between the taps of the kernel"),
    "groups": at_least(
        1,
        "be a positive int",
        default=1,
        doc="the number of independent groups into which channels are divided",
    ),
}
_HOW = {
    "tiles": Attr(
        "ints",
        default=(),
        doc="how: results of a Winograd tile along each spatial axis; () for no tiles",
    ),
    "images": at_least(
        0,
        "be an int of at least 0",
        default=0,
        doc="how: with tiles, how many images of the batch to compute at a time; 0 for all",
    ),
}


def _convolve(x: Any, w: Any, attrs: dict[str, Any]) -> Any:
    return lax.conv_general_dilated(
        x,
        w,
        window_strides=attrs["strides"],
        padding=attrs["padding"],
        rhs_dilation=attrs["dilation"],
        dimension_numbers=dimension_numbers(x.ndim - 2),
        feature_group_count=attrs["groups"],
    )


def _check_operands(ctx: InferContext, *operands: TensorType) -> None:
    ctx.require_dtype(operands, is_floating, "floating")
    ctx.require(
        operands[0].dtype == operands[1].dtype,
        f"operands must have one dtype, got {operands[0].dtype.name} and {operands[1].dtype.name}",
        dtype=True,
    )
    rank = operands[0].rank
    ctx.require(rank > 2, f"{ctx.op.operand_label(0)} must have spatial axes, got {rank} in all")
    ctx.require(
        operands[1].rank == rank,
        f"{ctx.op.operand_label(1)} must have {rank} axes, got {operands[1].rank}",
        hint="[height, width, input channels, output channels] for images",
    )


def _infer_conv(ctx: InferContext, x: TensorType, w: TensorType, **attrs: Any) -> TensorType:
    _check_operands(ctx, x, w)
    groups, channels = attrs["groups"], w.shape[-2] * attrs["groups"]
    ctx.unify(
        x.shape[-1],
        channels,
        "channels of x and input channels of w times groups",
        hint="w is [height, width, input channels, output channels], x has its channels last",
    )
    filters = w.shape[-1]
    ctx.require(
        not isinstance(filters, int) or filters % groups == 0,
        f"{filters} output channels cannot be cut into {groups} groups",
    )
    places = window_sizes(ctx, x.shape[1:-1], w.shape[:-2], attrs)
    _check_tiles(ctx, x, w.shape[:-2], attrs)
    return TensorType(x.dtype, (x.shape[0], *places, filters))


def _check_tiles(ctx: InferContext, x: TensorType, window: Shape, attrs: dict[str, Any]) -> None:
    tiles = attrs["tiles"]
    if not tiles:
        return
    wide = (as_dtype("float32"), as_dtype("float64"))
    ctx.require_dtype([x], lambda d: d in wide, "float32 or float64 where there are tiles")
    plain = set(attrs["strides"] + attrs["dilation"]) == {1} and attrs["groups"] == 1
    ctx.require(
        len(window) == len(tiles) == 2 and plain,
        "tiles are for two spatial axes, without strides, dilation and groups",
    )
    for m, r in zip(tiles, window, strict=True):
        ctx.require(
            m > 0 and isinstance(r, int) and m + r - 1 <= MOST_PLACES,
            f"a tile of {m} results of {r} taps needs {m} + {r} - 1 points of at most "
            f"{MOST_PLACES}",
        )


def _in_tiles(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `ops.winograd_conv` among them."""
    return {name: attrs[name] for name in ("padding", "tiles", "images")}


def _lower_conv(ctx: LowerContext, x: Any, w: Any, **attrs: Any) -> Any:
    if attrs["tiles"]:
        return winograd_conv(x, w, **_in_tiles(attrs))
    by_taps = None
    if _is_by_taps(x, w, w.shape[:-2], attrs):
        by_taps = partial(conv_by_taps, attrs=attrs)
    return _on_cpu(by_taps, partial(_convolve, attrs=attrs), x, w)


def _is_by_taps(x: Any, results: Any, window: tuple[Any, ...], attrs: Mapping[str, Any]) -> bool:
    return is_by_taps(x.shape[-1], results.shape[-1], attrs["groups"], window, x.dtype)


def _on_cpu(on_cpu: Callable[..., Any] | None, default: Callable[..., Any], *xs: Any) -> Any:
    """The result of `on_cpu` on CPUs, if there is one, and that of `default` elsewhere."""
    if on_cpu is None:
        return default(*xs)
    return lax.platform_dependent(*xs, cpu=on_cpu, default=default)


def _conv_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> list[Tensor | None]:
    x, w = node.inputs
    attrs = _window_attrs(node.attrs)
    return [
        emit(CONV_INPUT_GRADIENT, (dy, w), size=x.shape[1:-1], **attrs),
        emit(CONV_KERNEL_GRADIENT, (x, dy), size=w.shape[:-2], **attrs),
    ]


def _window_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attrs[name] for name in _ATTRS}


def _infer_input_gradient(
    ctx: InferContext, dy: TensorType, w: TensorType, *, size: Any, **attrs: Any
) -> TensorType:
    _check_operands(ctx, dy, w)
    x = TensorType(dy.dtype, (dy.shape[0], *size, w.shape[-2] * attrs["groups"]))
    _unify_all(ctx, dy, _infer_conv(ctx, x, w, **attrs))
    return x


def _unify_all(ctx: InferContext, dy: TensorType, y: TensorType) -> None:
    for got, wanted in zip(dy.shape, y.shape, strict=True):
        ctx.unify(got, wanted, "sizes of dy and of the convolution's result")


def _lower_input_gradient(ctx: LowerContext, dy: Any, w: Any, *, size: Any, **attrs: Any) -> Any:
    spatial = ctx.shape(size)
    if attrs["tiles"]:
        return winograd_input_gradient(dy, w, size=spatial, **_in_tiles(attrs))
    excess = _cut_off(w.shape[:-2], attrs)
    if not any(map(any, excess)):
        return _input_gradient(ctx, dy, w, spatial, attrs)
    # As one convolution it would have negative padding, for which XLA:CPU (jaxlib 0.10) reads
    # beyond its operand. So this is the gradient of x with `excess` zeros, which are cut off.
    wide = tuple([n + low + high for n, (low, high) in zip(spatial, excess, strict=True)])
    rows = zip(attrs["padding"], excess, strict=True)
    padding = tuple([(low - a, high - b) for (low, high), (a, b) in rows])
    dx = _input_gradient(ctx, dy, w, wide, {**attrs, "padding": padding})
    sides = [(0, 0, 0), *((-low, -high, 0) for low, high in excess), (0, 0, 0)]
    return lax.pad(dx, np.zeros((), dx.dtype), sides)


def _cut_off(window: Sizes, attrs: Mapping[str, Any]) -> list[tuple[int, int]]:
    """How many positions on each side, along each spatial axis, are computed and cut off: those of
    the padding that only windows reach which lie in the padding altogether, and one more where
    XLA would abort."""
    excess = []
    for n, gap, step, (low, high) in zip(
        window, attrs["dilation"], attrs["strides"], attrs["padding"], strict=True
    ):
        reach = (n - 1) * gap
        before, after = max(0, low - reach), max(0, high - reach)
        if (n, gap, step) == (2, 1, 2) and low - before == high - after == 1:
            # The convolution would have no padding here, and two taps over values with a gap of
            # one. XLA:CPU (jaxlib 0.10 and 0.12) ends the process for some of these.
            after += 1
        excess.append((before, after))
    return excess


def _input_gradient(
    ctx: LowerContext, dy: Any, w: Any, spatial: Sizes, attrs: dict[str, Any]
) -> Any:
    """The gradient of x, which has the spatial sizes `spatial`."""
    shape = (dy.shape[0], *spatial, w.shape[-2] * attrs["groups"])
    x = jax.ShapeDtypeStruct(shape, dy.dtype)

    def transposed(dy: Any, w: Any) -> Any:
        return jax.linear_transpose(lambda x: _convolve(x, w, attrs), x)(dy)[0]

    on_cpu: Callable[..., Any] | None = None
    if _is_by_taps(x, dy, w.shape[:-2], attrs):
        on_cpu = partial(input_gradient_by_taps, size=spatial, attrs=attrs)
    elif ctx.in_loop and attrs["groups"] == 1:
        on_cpu = partial(plain_input_gradient, size=spatial, **_window_attrs(attrs))
    return _on_cpu(on_cpu, transposed, dy, w)


def _input_gradient_gradient(ctx: GradientContext, node: Node, dx: Tensor) -> list[Tensor | None]:
    dy, w = node.inputs
    attrs = _window_attrs(node.attrs)
    return [
        emit(CONV, (dx, w), **attrs),
        emit(CONV_KERNEL_GRADIENT, (dx, dy), size=w.shape[:-2], **attrs),
    ]


def _infer_kernel_gradient(
    ctx: InferContext, x: TensorType, dy: TensorType, *, size: Any, **attrs: Any
) -> TensorType:
    _check_operands(ctx, x, dy)
    w = TensorType(x.dtype, (*size, x.shape[-1] // attrs["groups"], dy.shape[-1]))
    _unify_all(ctx, dy, _infer_conv(ctx, x, w, **attrs))
    return w


def _lower_kernel_gradient(ctx: LowerContext, x: Any, dy: Any, *, size: Any, **attrs: Any) -> Any:
    window = ctx.shape(size)
    if attrs["tiles"]:
        return winograd_kernel_gradient(x, dy, size=window, **_in_tiles(attrs))
    shape = (*window, x.shape[-1] // attrs["groups"], dy.shape[-1])
    w = jax.ShapeDtypeStruct(shape, x.dtype)

    def transposed(x: Any, dy: Any) -> Any:
        return jax.linear_transpose(lambda w: _convolve(x, w, attrs), w)(dy)[0]

    on_cpu: Callable[..., Any] | None = None
    if _is_by_taps(x, dy, window, attrs):
        on_cpu = partial(kernel_gradient_by_taps, window=window, attrs=attrs)
    elif ctx.in_loop and attrs["groups"] == 1:
        on_cpu = partial(plain_kernel_gradient, size=window, **_window_attrs(attrs))
    return _on_cpu(on_cpu, transposed, x, dy)


def _kernel_gradient_gradient(ctx: GradientContext, node: Node, dw: Tensor) -> list[Tensor | None]:
    x, dy = node.inputs
    attrs = _window_attrs(node.attrs)
    return [
        emit(CONV_INPUT_GRADIENT, (dy, dw), size=x.shape[1:-1], **attrs),
        emit(CONV, (x, dw), **attrs),
    ]


_BATCH = Sharded(0)


def _one_partial(a: Layout, b: Layout) -> bool:
    return (a == SUM and isinstance(b, Replicated)) or (b == SUM and isinstance(a, Replicated))


def _images_and_kernel(ctx: LayoutContext, node: Node, images: Layout, w: Layout) -> LayoutPlan:
    """Images are sharded along the batch, and the kernel is replicated. Linear in each operand."""
    if _one_partial(images, w):
        return LayoutPlan([images, w], [SUM])
    if images == _BATCH:
        return LayoutPlan([_BATCH, REPLICATED], [_BATCH])
    return LayoutPlan([REPLICATED, REPLICATED], [REPLICATED])


def _images_and_images(ctx: LayoutContext, node: Node, x: Layout, dy: Layout) -> LayoutPlan:
    """The batch is contracted: if it is sharded, each replica computes one term of the sum."""
    if _one_partial(x, dy):
        return LayoutPlan([x, dy], [SUM])
    if _BATCH in (x, dy):
        return LayoutPlan([_BATCH, _BATCH], [SUM], fill={0: "sum", 1: "sum"})
    return LayoutPlan([REPLICATED, REPLICATED], [REPLICATED])


_SIZE = Attr("dims", doc="spatial sizes of the result, which the other shapes do not determine")


def _taps_times_channels(node: Node, of: str) -> int:
    """A product and a sum for each element of y and each tap of w outside the padding of x."""
    dims = {name: dims_of(t) for name, t in zip(of, (*node.inputs, *node.outputs), strict=True)}
    images, kernel, results = (dims[name] for name in "xwy")
    taps = 1
    for axis, (low, _) in enumerate(node.attrs["padding"]):
        stride, dilation = node.attrs["strides"][axis], node.attrs["dilation"][axis]
        sizes = images[1 + axis], kernel[axis], results[1 + axis]
        taps *= taps_inside(*sizes, stride, low, dilation)
    return 2 * results[0] * kernel[-2] * kernel[-1] * taps


def _convolution(schema: str, *, of: str, **fields: Unpack[Record]) -> OpDef:
    """The record of a convolution or of one of its adjoints. `of` names what the two operands and
    the result are of, in order: x, w or y = Conv(x, w). The other arguments are those of
    `define`."""
    fields["attrs"] = {**fields.get("attrs", {}), **_ATTRS, **_HOW}
    fields["cost"] = lambda ctx, node: _taps_times_channels(node, of)
    return define(schema, precision="narrow", **fields)


CONV = _convolution(
    "Conv(x, w) -> y",
    of="xwy",
    infer=_infer_conv,
    lower=_lower_conv,
    gradient=_conv_gradient,
    layout=_images_and_kernel,
    doc="Cross-correlation of x [batch, ..., channels] with w [..., channels / groups, filters]. "
    "Both have one or more spatial axes. The result is [batch, ..., filters], of sizes (size + "
    f"padding - (window - 1) * dilation - 1) // stride + 1. Floating dtypes. {_SOURCE}",
)
CONV_INPUT_GRADIENT = _convolution(
    "ConvInputGradient(dy, w) -> dx",
    of="ywx",
    attrs={"size": _SIZE},
    infer=_infer_input_gradient,
    lower=_lower_input_gradient,
    gradient=_input_gradient_gradient,
    layout=_images_and_kernel,
    doc="The adjoint of Conv's x, of spatial sizes `size`: a transposed convolution of dy "
    f"[batch, ..., filters] with w. Floating dtypes. {_SOURCE}",
)
CONV_KERNEL_GRADIENT = _convolution(
    "ConvKernelGradient(x, dy) -> dw",
    of="xyw",
    attrs={"size": _SIZE},
    infer=_infer_kernel_gradient,
    lower=_lower_kernel_gradient,
    gradient=_kernel_gradient_gradient,
    layout=_images_and_images,
    doc="The adjoint of Conv's w, of spatial sizes `size`: x [batch, ..., channels] correlated "
    f"with dy, summed over the batch and the positions of the window. Floating dtypes. {_SOURCE}",
)
