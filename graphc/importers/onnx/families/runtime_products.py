"""Operators of ONNX Runtime: products of quantized matrices, and quantization in a run."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.core.integers import integers, product
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.quantized import (
    in_steps,
    integers_of,
    of_columns,
    quantized,
)
from graphc.importers.onnx.limits import limited


def _with_bias(call: Call, i: int, y: Any) -> Any:
    return y + call.x(i) if call.has(i) else y


def _dynamic(call: Call) -> Any:
    steps, scale, zero = in_steps(call.x(0))
    a = integers(ops.cast(steps, "uint8"), zero)
    y = ops.cast(product(a, integers_of(call, 1, 3, axis=-1)), "float32")
    return _with_bias(call, 4, y * (scale * of_columns(call.x(2))))


def _to_float(call: Call) -> Any:
    for i in (2, 4):
        if call.has(i) and call.x(i).shape not in ((), (1,)):
            raise Refused("with several scales or zero points of its first factor is not supported")
    y = ops.cast(product(integers_of(call, 0, 4), integers_of(call, 1, 5, axis=-1)), "float32")
    scales = ops.reshape(call.x(2), ()) * of_columns(call.x(3))
    y = ops.cast(y * ops.cast(scales, "float32"), call.x(2).dtype)
    return _with_bias(call, 6, y)


def _integers_of_16(call: Call) -> Any:
    a, b = call.x(0), call.x(1)
    wide = "uint32" if a.dtype.kind == b.dtype.kind == "u" else "int32"
    return ops.matmul(ops.cast(a, wide), ops.cast(b, wide))


def _gemm(call: Call) -> Any:
    """The integer C is added to the product of integers, before they are scaled."""
    trans_a, trans_b = (call.attr(name, 0) for name in ("transA", "transB"))
    a, b = integers_of(call, 0, 2), integers_of(call, 3, 5, axis=0 if trans_b else 1)
    y = product(a.transposed() if trans_a else a, b.transposed() if trans_b else b)
    if call.has(6):
        y = y + call.x(6)
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
