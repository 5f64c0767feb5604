"""Quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.ir.node import Tensor

FAMILY = Family()


@FAMILY.rule("FakeQuantWithMinMaxArgs")
def fake_quant_args(call: Call, x: Tensor) -> Tensor:
    return _fake(call, x, call.attr("min", -6.0), call.attr("max", 6.0))


@FAMILY.rule("FakeQuantWithMinMaxVars")
def fake_quant_vars(call: Call, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return _fake(call, x, low, high)


@FAMILY.rule("FakeQuantWithMinMaxVarsPerChannel")
def fake_quant_channels(call: Call, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return _fake(call, x, low, high, axis=x.ndim - 1)


def _fake(call: Call, x: Tensor, low: Any, high: Any, axis: int | None = None) -> Tensor:
    bits, narrow = call.attr("num_bits", 8), bool(call.attr("narrow_range", False))
    return ops.fake_quantize(x, low, high, bits=bits, narrow_range=narrow, axis=axis)


@FAMILY.rule("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def quantize_and_dequantize(call: Call, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    if call.attr("axis", -1) != -1:
        call.refuse("quantises each channel")
    signed, bits = bool(call.attr("signed_input", True)), call.attr("num_bits", 8)
    narrow = bool(call.attr("narrow_range", False))
    if not call.attr("range_given", False):
        low, high = ops.min(x), ops.max(x)
    most = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    least = (-most if narrow else -most - 1) if signed else (1 if narrow else 0)
    # The side that gives the coarser grid decides; TensorFlow recomputes the other end.
    from_low = ops.where(ops.less(low * least, 0.5e-37), np.inf, least / low) if least else np.inf
    from_high = ops.where(ops.less_equal(high, 0), np.inf, most / high)
    scale = ops.minimum(from_low, from_high)
    low, high = least / scale, most / scale
    clipped = ops.clip(x, ops.cast(low, x.dtype), ops.cast(high, x.dtype))
    scaled = clipped * ops.cast(scale, x.dtype)
    if call.text("round_mode", "HALF_TO_EVEN") == "HALF_UP":
        rounded = ops.floor(scaled + 0.5)
    else:
        rounded = ops.round(scaled)
    return rounded / ops.cast(scale, x.dtype)


@FAMILY.rule("QuantizeV2", outputs=("output", "output_min", "output_max"))
def quantize(call: Call, x: Tensor, low: Tensor, high: Tensor) -> list[Tensor]:
    if call.text("mode", "MIN_COMBINED") != "MIN_FIRST" or call.attr("axis", -1) != -1:
        call.refuse(f"has the mode {call.text('mode', 'MIN_COMBINED')}")
    dtype = call.dtype()
    limits = np.iinfo(dtype)
    low = ops.minimum(low, 0)
    high = ops.maximum(high, low + ops.maximum(1.0, ops.maximum(ops.abs(low), ops.abs(high))) / 100)
    scale = (limits.max - limits.min) / (high - low)
    y = ops.round(x * scale) - ops.round(low * scale) + float(limits.min)
    return [ops.cast(ops.clip(y, float(limits.min), float(limits.max)), dtype), low, high]


@FAMILY.rule("Dequantize")
def dequantize(call: Call, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    mode = call.text("mode", "MIN_COMBINED")
    if call.attr("axis", -1) != -1 or mode not in ("MIN_COMBINED", "MIN_FIRST"):
        call.refuse(f"has the mode {mode}, or an axis")
    limits = np.iinfo(x.dtype)
    span = float(limits.max) - float(limits.min)
    y = ops.cast(x, "float32")
    step = (high - low) / span
    if mode == "MIN_FIRST":
        return (y - float(limits.min)) * step + ops.round(low / step) * step
    half = (span + 1) / 2 if limits.min < 0 else 0.0
    return (y + half) * step + low
