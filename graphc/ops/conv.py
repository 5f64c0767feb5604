"""Two-dimensional convolution and its two gradients, which are convolutions again.

Each of the three operators is linear in each operand, and the gradients of each are the other
two, so they can be differentiated any number of times. The gradients are lowered by transposing
JAX's convolution: the same HLO as `jax.grad` of hand-written code. Inside loops on CPU they are
written out: see `plain_conv`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax import lax

from graphc.ir.dtypes import is_floating
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Replicated, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.emit import convert, emit, emit_one, promote_operands
from graphc.ops.layout_rules import SUM
from graphc.ops.plain_conv import plain_input_gradient, plain_kernel_gradient
from graphc.ops.windows import (
    PADDING,
    Pairs,
    check_rank,
    explicit_padding,
    two_ints,
    two_positive_ints,
    window_sizes,
)

_DIMENSIONS = ("NHWC", "HWIO", "NHWC")
_SOURCE = (
    "Source: Dumoulin & Visin, A guide to convolution arithmetic for deep learning, 2016; "
    "`jax.lax.conv_general_dilated`."
)
_ATTRS = {
    "strides": two_positive_ints("steps of the window along height and width"),
    "padding": PADDING,
    "dilation": two_positive_ints("steps between the taps of the kernel"),
    "groups": Attr(
        "int",
        default=1,
        check=lambda v: v > 0,
        must="be a positive int",
        doc="channels are cut into this many independent groups",
    ),
}


def _convolve(x: Any, w: Any, attrs: dict[str, Any]) -> Any:
    return lax.conv_general_dilated(
        x,
        w,
        window_strides=attrs["strides"],
        padding=attrs["padding"],
        rhs_dilation=attrs["dilation"],
        dimension_numbers=_DIMENSIONS,
        feature_group_count=attrs["groups"],
    )


def _check_operands(ctx: InferContext, *operands: TensorType) -> None:
    ctx.require_dtype(operands, is_floating, "floating")
    ctx.require(
        operands[0].dtype == operands[1].dtype,
        f"operands must have one dtype, got {operands[0].dtype.name} and {operands[1].dtype.name}",
        dtype=True,
    )
    for position, operand in enumerate(operands):
        label = ctx.op.operand_label(position)
        ctx.require(operand.rank == 4, f"{label} must have 4 axes, got {operand.rank}")


def _infer_conv(ctx: InferContext, x: TensorType, w: TensorType, **attrs: Any) -> TensorType:
    _check_operands(ctx, x, w)
    groups, channels = attrs["groups"], w.shape[2] * attrs["groups"]
    ctx.unify(x.shape[3], channels, "channels of x and input channels of w times groups")
    filters = w.shape[3]
    ctx.require(
        not isinstance(filters, int) or filters % groups == 0,
        f"{filters} output channels cannot be cut into {groups} groups",
    )
    return TensorType(
        x.dtype, (x.shape[0], *window_sizes(ctx, x.shape[1:3], w.shape[:2], attrs), filters)
    )


def _lower_conv(ctx: LowerContext, x: Any, w: Any, **attrs: Any) -> Any:
    return _convolve(x, w, attrs)


def _conv_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> list[Tensor | None]:
    x, w = node.inputs
    attrs = _window_attrs(node)
    return [
        emit(CONV2D_INPUT_GRADIENT, (dy, w), size=x.shape[1:3], **attrs),
        emit(CONV2D_KERNEL_GRADIENT, (x, dy), size=w.shape[:2], **attrs),
    ]


def _window_attrs(node: Node) -> dict[str, Any]:
    return {name: node.attrs[name] for name in _ATTRS}


def _infer_input_gradient(
    ctx: InferContext, dy: TensorType, w: TensorType, *, size: Any, **attrs: Any
) -> TensorType:
    _check_operands(ctx, dy, w)
    x = TensorType(dy.dtype, (dy.shape[0], *size, w.shape[2] * attrs["groups"]))
    _unify_all(ctx, dy, _infer_conv(ctx, x, w, **attrs))
    return x


def _unify_all(ctx: InferContext, dy: TensorType, y: TensorType) -> None:
    for got, wanted in zip(dy.shape, y.shape, strict=True):
        ctx.unify(got, wanted, "sizes of dy and of the convolution's result")


def _lower_input_gradient(ctx: LowerContext, dy: Any, w: Any, *, size: Any, **attrs: Any) -> Any:
    height_width = ctx.shape(size)
    shape = (dy.shape[0], *height_width, w.shape[2] * attrs["groups"])
    x = jax.ShapeDtypeStruct(shape, dy.dtype)

    def transposed(dy: Any, w: Any) -> Any:
        return jax.linear_transpose(lambda x: _convolve(x, w, attrs), x)(dy)[0]

    if not ctx.in_loop or attrs["groups"] > 1:
        return transposed(dy, w)
    plain = partial(plain_input_gradient, size=height_width, **attrs)
    return lax.platform_dependent(dy, w, cpu=plain, default=transposed)


def _input_gradient_gradient(ctx: GradientContext, node: Node, dx: Tensor) -> list[Tensor | None]:
    dy, w = node.inputs
    attrs = _window_attrs(node)
    return [
        emit(CONV2D, (dx, w), **attrs),
        emit(CONV2D_KERNEL_GRADIENT, (dx, dy), size=w.shape[:2], **attrs),
    ]


def _infer_kernel_gradient(
    ctx: InferContext, x: TensorType, dy: TensorType, *, size: Any, **attrs: Any
) -> TensorType:
    _check_operands(ctx, x, dy)
    w = TensorType(x.dtype, (*size, x.shape[3] // attrs["groups"], dy.shape[3]))
    _unify_all(ctx, dy, _infer_conv(ctx, x, w, **attrs))
    return w


def _lower_kernel_gradient(ctx: LowerContext, x: Any, dy: Any, *, size: Any, **attrs: Any) -> Any:
    rows_columns = ctx.shape(size)
    shape = (*rows_columns, x.shape[3] // attrs["groups"], dy.shape[3])
    w = jax.ShapeDtypeStruct(shape, x.dtype)

    def transposed(x: Any, dy: Any) -> Any:
        return jax.linear_transpose(lambda w: _convolve(x, w, attrs), w)(dy)[0]

    if not ctx.in_loop or attrs["groups"] > 1:
        return transposed(x, dy)
    plain = partial(plain_kernel_gradient, size=rows_columns, **attrs)
    return lax.platform_dependent(x, dy, cpu=plain, default=transposed)


def _kernel_gradient_gradient(ctx: GradientContext, node: Node, dw: Tensor) -> list[Tensor | None]:
    x, dy = node.inputs
    attrs = _window_attrs(node)
    return [
        emit(CONV2D_INPUT_GRADIENT, (dy, dw), size=x.shape[1:3], **attrs),
        emit(CONV2D, (x, dw), **attrs),
    ]


_BATCH = Sharded(0)


def _one_partial(a: Layout, b: Layout) -> bool:
    return (a == SUM and isinstance(b, Replicated)) or (b == SUM and isinstance(a, Replicated))


def _images_and_kernel(ctx: LayoutContext, node: Node, images: Layout, w: Layout) -> LayoutPlan:
    """Images cut along the batch, the kernel whole. Linear in each operand."""
    if _one_partial(images, w):
        return LayoutPlan([images, w], [SUM])
    if images == _BATCH:
        return LayoutPlan([_BATCH, REPLICATED], [_BATCH])
    return LayoutPlan([REPLICATED, REPLICATED], [REPLICATED])


def _images_and_images(ctx: LayoutContext, node: Node, x: Layout, dy: Layout) -> LayoutPlan:
    """The batch is contracted: cut along it, each replica gives a term of the sum."""
    if _one_partial(x, dy):
        return LayoutPlan([x, dy], [SUM])
    if _BATCH in (x, dy):
        return LayoutPlan([_BATCH, _BATCH], [SUM])
    return LayoutPlan([REPLICATED, REPLICATED], [REPLICATED])


_SIZE = Attr(
    "dims",
    check=lambda v: len(v) == 2,
    must="be (height, width)",
    doc="height and width of the result, which the other shapes leave open",
)

CONV2D = OpDef(
    name="Conv2D",
    signature="x, w -> y",
    attrs=_ATTRS,
    infer=_infer_conv,
    lower=_lower_conv,
    gradient=_conv_gradient,
    layout=_images_and_kernel,
    doc="Cross-correlation of x [batch, height, width, channels] with w [rows, columns, "
    "channels / groups, filters]; gives [batch, height', width', filters], where height' = "
    f"(height + padding - (rows - 1) * dilation - 1) // stride + 1. Floating dtypes. {_SOURCE}",
)

CONV2D_INPUT_GRADIENT = OpDef(
    name="Conv2DInputGradient",
    signature="dy, w -> dx",
    attrs={"size": _SIZE, **_ATTRS},
    infer=_infer_input_gradient,
    lower=_lower_input_gradient,
    gradient=_input_gradient_gradient,
    layout=_images_and_kernel,
    doc="The adjoint of Conv2D's x, of spatial size `size`: a transposed convolution of dy "
    f"[batch, height', width', filters] with w. Floating dtypes. {_SOURCE}",
)

CONV2D_KERNEL_GRADIENT = OpDef(
    name="Conv2DKernelGradient",
    signature="x, dy -> dw",
    attrs={"size": _SIZE, **_ATTRS},
    infer=_infer_kernel_gradient,
    lower=_lower_kernel_gradient,
    gradient=_kernel_gradient_gradient,
    layout=_images_and_images,
    doc="The adjoint of Conv2D's w, of spatial size `size`: x [batch, height, width, channels] "
    f"against dy, summed over the batch and the places of the window. Floating dtypes. {_SOURCE}",
)


def conv2d(
    x: Any,
    w: Any,
    *,
    strides: int | tuple[int, int] = 1,
    padding: Any = "valid",
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """Two-dimensional convolution (cross-correlation, as in every deep-learning library).

    Args:
        x: [batch, height, width, channels], floating.
        w: [rows, columns, channels / groups, filters], promoted with `x`.
        strides: steps of the window, one int or (vertical, horizontal).
        padding: "valid", "same", an int for all sides, or ((top, bottom), (left, right)).
            "same" gives ceil(size / stride) rows.
        dilation: steps between the taps of the kernel.
        groups: cuts channels and filters into so many groups that do not see each other;
            `groups=channels` is a depthwise convolution.

    Returns:
        [batch, height', width', filters].

    Raises:
        ShapeError: channels that do not fit, a kernel larger than the padded input, or
            padding "same" with a stride over a size that is not known yet.
        AttributeValueError: strides, padding, dilation or groups of another form.
    """
    x, w = convert(x), convert(w)
    steps, taps = two_ints("Conv2D", "strides", strides), two_ints("Conv2D", "dilation", dilation)
    check_rank("Conv2D", x)
    pairs: Pairs = ((0, 0), (0, 0))
    if w.ndim == 4:  # otherwise infer says what is wrong
        pairs = explicit_padding("Conv2D", padding, x, w.shape[:2], steps, taps)
    return emit_one(
        CONV2D,
        promote_operands(x, w),
        name=name,
        strides=steps,
        padding=pairs,
        dilation=taps,
        groups=groups,
    )


OPS: tuple[OpDef, ...] = (CONV2D, CONV2D_INPUT_GRADIENT, CONV2D_KERNEL_GRADIENT)
