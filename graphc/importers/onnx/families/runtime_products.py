"""Operators of ONNX Runtime: products of quantized matrices, and quantization in a run."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.quantized import quantization_of, quantized, without_zero
from graphc.importers.onnx.limits import limited
from graphc.ir.node import Tensor


def scaled_product(a: Any, b: Any, scale: Any) -> Any:
    """The product of integers, times a scale.

    It is computed in float32. The integers are exact there, and the rounding of their sums is as
    that of the scale.
    """
    return ops.matmul(ops.cast(a, "float32"), ops.cast(b, "float32")) * scale


def in_steps(x: Tensor) -> tuple[Any, Any]:
    """`x` as integers without their zero point, quantized to 8 bits by its extremes, and the scale
    of them."""
    scale, zero = quantization_of(x)
    steps = ops.clip(ops.rint(x / scale) + zero, 0, 255)
    return steps - zero, scale


def of_columns(v: Tensor) -> Any:
    """A scale or zero point: for the whole matrix, or for each column. Stacked matrices have one
    more axis of size 1 already."""
    return ops.reshape(v, ()) if v.shape == (1,) else v


def _right(call: Call, i: int, zero: int) -> Any:
    """The right factor without its zero point."""
    b: Any = ops.cast(call.x(i), "int32")
    return b - ops.cast(of_columns(call.x(zero)), "int32") if call.has(zero) else b


def _with_bias(call: Call, i: int, y: Any) -> Any:
    return y + call.x(i) if call.has(i) else y


def _dynamic(call: Call) -> Any:
    a, scale = in_steps(call.x(0))
    y = scaled_product(a, _right(call, 1, 3), scale * of_columns(call.x(2)))
    return _with_bias(call, 4, y)


def _to_float(call: Call) -> Any:
    for i in (2, 4):
        if call.has(i) and call.x(i).shape not in ((), (1,)):
            raise Refused("with several scales or zero points of its first factor is not supported")
    a = without_zero(call.x(0), call.x(4) if call.has(4) else None, None)
    scales = ops.reshape(call.x(2), ()) * of_columns(call.x(3))
    y = scaled_product(a, _right(call, 1, 5), ops.cast(scales, "float32"))
    return _with_bias(call, 6, ops.cast(y, call.x(2).dtype))


def _integers_of_16(call: Call) -> Any:
    a, b = call.x(0), call.x(1)
    wide = "uint32" if a.dtype.kind == b.dtype.kind == "u" else "int32"
    return ops.matmul(ops.cast(a, wide), ops.cast(b, wide))


def _gemm(call: Call) -> Any:
    """The integer C is added to the product of integers, before they are scaled."""
    a = without_zero(call.x(0), call.x(2), None)
    b: Any = ops.cast(call.x(3), "int32")
    b = ops.transpose(b) if call.attr("transB", 0) else b
    b = b - ops.cast(of_columns(call.x(5)), "int32")
    a = ops.transpose(a) if call.attr("transA", 0) else a
    # Products of 8 bits in float64 are exact, and faster than those of integers.
    y = ops.matmul(ops.cast(a, "float64"), ops.cast(b, "float64"))
    if call.has(6):
        y = y + ops.cast(call.x(6), "float64")
    scale = call.attr("alpha", 1.0) * ops.reshape(call.x(1), ()) * of_columns(call.x(4))
    y = ops.cast(y, "float32") * scale
    if not call.has(7):
        return y
    if not call.has(8):
        raise Refused("has a scale of the result, and no zero point")
    zero = ops.reshape(call.x(8), ())
    return quantized(y, ops.reshape(call.x(7), ()), zero, zero.dtype)


RULES: Final[dict[str, Rule]] = {
    "DynamicQuantizeMatMul": limited(_dynamic, 5),
    "MatMulInteger16": limited(_integers_of_16, 2),
    "MatMulIntegerToFloat": limited(_to_float, 7),
    "QGemm": limited(_gemm, 9, "alpha transA transB"),
}
