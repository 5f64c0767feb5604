"""Quantized operators."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.core.channels_first import beside
from graphc.importers.core.integers import Integers, convolution, integers, product
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.dtypes import dtype_of
from graphc.importers.onnx.families.convolutions import settings, with_bias
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
    kind = "float32" if x.dtype.name.startswith("float8") else "int32"
    wide: Any = ops.cast(x, kind)
    if call.has(2):
        wide = wide - ops.cast(_spread(call, call.x(2), x), kind)
    return ops.cast(ops.cast(wide, "float32") * ops.cast(_spread(call, scale, x), "float32"), out)


def _quantization_of(x: Tensor) -> tuple[Any, Any]:
    """The scale, and the zero point as a float, with which the elements of x fill 8 bits."""
    low = ops.minimum(ops.reduce_min(x), 0)
    high = ops.maximum(ops.reduce_max(x), 0)
    span = high - low
    # XLA multiplies with 1/255 instead. In float64, this rounds to the same scale as a division.
    part = ops.cast(ops.cast(span, "float64") / 255, span.dtype)
    scale = ops.where(ops.equal(span, 0), ops.ones_like(span), part)  # zeros alone
    return scale, ops.clip(ops.rint(-low / scale), 0, 255)


def in_steps(x: Tensor) -> tuple[Any, Any, Any]:
    """`x` quantized to 8 bits by its extremes, the scale and the zero point: whole floats."""
    scale, zero = _quantization_of(x)
    return ops.clip(ops.rint(x / scale) + zero, 0, 255), scale, zero


def _dynamic(call: Call) -> Any:
    steps, scale, zero = in_steps(call.x())
    return ops.cast(steps, "uint8"), scale, ops.cast(zero, "uint8")


def integers_of(call: Call, i: int, zero: int, axis: int | None = None) -> Integers:
    """Input i, whose zero point is input `zero`: one, or one for each element of `axis`."""
    x, known = call.x(i), call.known(i)
    if x.dtype not in (np.int8, np.uint8):
        raise Refused(f"of {x.dtype.name} is not supported: it takes int8 and uint8")
    if not call.has(zero):
        return integers(x, None, known)
    given, known_zero = call.x(zero), call.known(zero)
    shape: Any = given.shape if given.ndim > 1 else ()
    if given.ndim == 1 and given.shape != (1,) and axis is not None:
        shape = tuple(given.shape[0] if k == axis % x.ndim else 1 for k in range(x.ndim))
    if known_zero is not None:
        known_zero = known_zero.reshape(shape)
    return integers(x, ops.reshape(given, shape), known, known_zero)


def _matrices(call: Call, a: tuple[int, int], b: tuple[int, int]) -> Any:
    """The product of two inputs, with the places of their zero points."""
    return product(integers_of(call, *a, axis=-2), integers_of(call, *b, axis=-1))


def _product(call: Call, x: tuple[int, int], w: tuple[int, int]) -> Any:
    """The convolution of two inputs, with the places of their zero points."""
    how = settings(call, call.x(x[0]), call.x(w[0]).shape[2:])
    return convolution(integers_of(call, *x), integers_of(call, *w, axis=0), **how)


def of_columns(v: Tensor) -> Any:
    """A scale or zero point: for the whole matrix, or for each column. Stacked matrices have one
    more axis of size 1 already."""
    return ops.reshape(v, ()) if v.shape == (1,) else v


def _qlinear_matmul(call: Call) -> Any:
    sa, sb, sy, zy = (of_columns(call.x(i)) for i in (1, 4, 6, 7))
    sa = ops.cast(sa, "float32")
    if sa.ndim == 1:
        sa = ops.reshape(sa, (-1, 1))
    scaled = ops.cast(_matrices(call, (0, 2), (3, 5)), "float32") * (sa * ops.cast(sb, "float32"))
    return quantized(scaled, ops.cast(sy, "float32"), zy, zy.dtype)


def _qlinear_conv(call: Call) -> Any:
    sx, sw, sy, zy = (call.x(i) for i in (1, 4, 6, 7))
    y: Any = _product(call, (0, 2), (3, 5))
    if call.has(8):
        y = with_bias(y, call.x(8))
    scale = ops.reshape(sx, ()) * sw
    is_one = scale.ndim != 1 or scale.shape == (1,)
    scale = ops.reshape(scale, ()) if is_one else beside(scale, y)
    return quantized(
        ops.cast(y, "float32") * scale, ops.reshape(sy, ()), ops.reshape(zy, ()), zy.dtype
    )


RULES: Final[dict[str, Rule]] = {
    "ConvInteger": lambda call: _product(call, (0, 2), (1, 3)),
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": lambda call: _matrices(call, (0, 2), (1, 3)),
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
