"""Quantized operators."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.core.channels_first import conv
from graphc.importers.onnx.call import Call, Rule
from graphc.importers.onnx.dtypes import dtype_of
from graphc.importers.onnx.families.convolutions import padded_first, settings, with_bias
from graphc.importers.onnx.families.elementwise import cast_to
from graphc.ir.node import Tensor


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.name in ("int4", "uint4"):
        return (-8, 7) if dtype.name == "int4" else (0, 15)
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _spread(call: Call, v: Tensor, x: Tensor) -> Any:
    """A scale or a zero point, to broadcast with x: for the whole tensor, for each element of an
    axis, or for each block along an axis."""
    if v.ndim == 0 or v.shape == (1,):
        return ops.reshape(v, ())
    axis = call.attr("axis", 1) % x.ndim
    if v.ndim == 1 and x.ndim >= 1 and not call.attr("block_size", 0):
        return ops.reshape(v, tuple(v.shape[0] if i == axis else 1 for i in range(x.ndim)))
    block = call.attr("block_size", 0)
    if not block:
        return v
    size = x.shape[axis]
    repeated = ops.repeat(v, block, axis=axis)
    return repeated[tuple(slice(0, size) if i == axis else slice(None) for i in range(x.ndim))]


def quantized(x: Tensor, scale: Any, zero: Any, dtype: np.dtype[Any]) -> Any:
    """round(x / scale) + zero, saturated."""
    if dtype.name.startswith("float8"):
        return cast_to(x / ops.cast(scale, x.dtype), dtype, True)
    steps = ops.rint(x / ops.cast(scale, x.dtype))
    low, high = _limits(dtype)
    shifted = steps + ops.cast(ops.cast(zero, "int32"), steps.dtype)
    clipped = ops.cast(ops.clip(shifted, low, high), "int32")
    return ops.cast(clipped, dtype)


def _quantize(call: Call) -> Any:
    x, scale = call.x(0), call.x(1)
    if call.has(2):
        dtype, zero = call.x(2).dtype, _spread(call, call.x(2), x)
    else:
        given = call.attr("output_dtype", 0)
        dtype = dtype_of(given) if given else np.dtype(np.uint8)
        zero = ops.zeros((), "int32")
    if x.dtype.kind in "iu":
        x = ops.cast(x, "float32")
    wide = ops.cast(x, "float32") if x.dtype.itemsize < 4 else x
    return quantized(wide, _spread(call, ops.cast(scale, wide.dtype), x), zero, dtype)


def _dequantize(call: Call) -> Any:
    x, scale = call.x(0), call.x(1)
    out = scale.dtype
    if call.attr("output_dtype", 0):
        out = dtype_of(call.attr("output_dtype"))
    if x.dtype.name.startswith("float8"):
        wide: Any = ops.cast(x, "float32")
        if call.has(2):
            wide = wide - ops.cast(_spread(call, call.x(2), x), "float32")
    else:
        wide = ops.cast(x, "int32")
        if call.has(2):
            wide = wide - ops.cast(_spread(call, call.x(2), x), "int32")
    return ops.cast(ops.cast(wide, "float32") * ops.cast(_spread(call, scale, x), "float32"), out)


def quantization_of(x: Tensor) -> tuple[Any, Any]:
    """The scale, and the zero point as a float, with which the elements of x fill 8 bits."""
    low = ops.minimum(ops.reduce_min(x), 0)
    high = ops.maximum(ops.reduce_max(x), 0)
    span = high - low
    # XLA multiplies with 1/255 instead. In float64, this rounds to the same scale as a division.
    part = ops.cast(ops.cast(span, "float64") / 255, span.dtype)
    scale = ops.where(ops.equal(span, 0), ops.ones_like(span), part)  # zeros alone
    return scale, ops.clip(ops.rint(-low / scale), 0, 255)


def _dynamic(call: Call) -> Any:
    x = call.x()
    scale, zero = quantization_of(x)
    y = ops.clip(ops.rint(x / scale) + zero, 0, 255)
    return ops.cast(y, "uint8"), scale, ops.cast(zero, "uint8")


def without_zero(x: Tensor, zero: Tensor | None, axis: int | None) -> Any:
    """The integers without their zero point, as int32."""
    wide: Any = ops.cast(x, "int32")
    if zero is None:
        return wide
    zero = ops.cast(zero, "int32")
    if zero.ndim == 1 and zero.shape != (1,) and axis is not None:
        zero = ops.reshape(
            zero, tuple(zero.shape[0] if i == axis % x.ndim else 1 for i in range(x.ndim))
        )
    elif zero.ndim <= 1:
        zero = ops.reshape(zero, ())
    return wide - zero


def _matmul_integer(call: Call) -> Any:
    a, b = call.x(0), call.x(1)
    za, zb = (call.x(i) if call.has(i) else None for i in (2, 3))
    return ops.matmul(without_zero(a, za, -2), without_zero(b, zb, -1))


def _product(xs: Tensor, ws: Tensor, how: dict[str, Any]) -> Any:
    """The convolution of integers."""
    # Products of 8 bits in float64 are exact, and faster than those of integers.
    xs, how["pads"] = padded_first(xs, how["pads"])
    wide = conv(ops.cast(xs, "float64"), ops.cast(ws, "float64"), **how)
    return ops.cast(ops.rint(wide), "int32")


def _conv_integer(call: Call) -> Any:
    x, w = call.x(0), call.x(1)
    zx, zw = (call.x(i) if call.has(i) else None for i in (2, 3))
    how = settings(call, x, w.shape[2:])
    return _product(without_zero(x, zx, None), without_zero(w, zw, 0), how)


def _qlinear_matmul(call: Call) -> Any:
    a, sa, za, b, sb, zb, sy, zy = (call.x(i) for i in range(8))
    product = ops.matmul(without_zero(a, za, -2), without_zero(b, zb, -1))
    sa = ops.cast(sa, "float32")
    if sa.ndim == 1 and sa.shape != (1,):
        sa = ops.reshape(sa, (-1, 1))
    scaled = ops.cast(product, "float32") * (sa * ops.cast(sb, "float32"))
    return quantized(scaled, ops.cast(sy, "float32"), zy, zy.dtype)


def _qlinear_conv(call: Call) -> Any:
    x, sx, zx, w, sw, zw, sy, zy = (call.x(i) for i in range(8))
    how = settings(call, x, w.shape[2:])
    y: Any = _product(without_zero(x, zx, None), without_zero(w, zw, 0), how)
    if call.has(8):
        y = with_bias(y, call.x(8))
    scale = ops.reshape(sx, ()) * sw
    if scale.ndim == 1 and scale.shape != (1,):
        scale = ops.reshape(scale, (scale.shape[0], *(1,) * (y.ndim - 2)))
    else:
        scale = ops.reshape(scale, ())
    return quantized(
        ops.cast(y, "float32") * scale, ops.reshape(sy, ()), ops.reshape(zy, ()), zy.dtype
    )


RULES: Final[dict[str, Rule]] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
