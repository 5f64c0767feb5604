"""Rules of operators that TensorFlow does not have, or has in another form."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from graphc import nn, ops
from graphc.importers.tensorflow.registry import Call, Family, Rule
from graphc.importers.tensorflow.rules.networks import Layout, depthwise
from graphc.importers.tensorflow.rules.state import assigned, variable_of
from graphc.importers.tensorflow.rules.table import TABLES
from graphc.importers.tensorflow.values import NOTHING, Value, VariableRef, WeightValue
from graphc.importers.tflite import recurrent
from graphc.ir.node import Tensor

FAMILY = Family()
FAMILY.plain(
    {
        "LiteHardSwish": lambda x: x * nn.relu6(x + 3) / 6,
        "LiteNormalize": lambda x: x / ops.maximum(
            ops.sqrt(ops.sum(ops.square(x), -1, keepdims=True)), 1e-6
        ),
        "LitePRelu": lambda x, alpha: ops.where(ops.less(x, 0), x * alpha, x),
    }
)  # fmt: skip


@FAMILY.rule("LiteNothing", kinds="")
def nothing(call: Call) -> Value:
    """An input that is left out, or a state that begins as zeros."""
    return NOTHING


@FAMILY.rule("LiteWeight", kinds="")
def weight(call: Call) -> Value:
    name = call.attr("name")
    return WeightValue(name, call.scope.build.arrays[name])


@FAMILY.rule("LiteVariable", kinds="")
def variable(call: Call) -> Value:
    return VariableRef(call.attr("name"))


@FAMILY.rule("LiteAssign", kinds="vtv*")
def assign(call: Call, target: Value, value: Tensor, *earlier_reads: Value) -> Value:
    return assigned(call, variable_of(call, target), value)


@FAMILY.rule("LiteDequantize")
def dequantize(call: Call, x: Tensor) -> Tensor:
    steps = ops.subtract(ops.cast(x, "int32"), call.attr("zero"))
    return ops.multiply(ops.cast(steps, "float32"), call.attr("scale"))


@FAMILY.rule("LiteQuantize")
def quantize(call: Call, x: Tensor) -> Tensor:
    """Rounds halves away from zero, as the interpreter does."""
    dtype = call.dtype("dtype")
    limits = np.iinfo(dtype)
    steps = x / call.attr("scale")
    rounded = ops.sign(steps) * ops.floor(ops.abs(steps) + 0.5) + call.attr("zero")
    # float32 has no 2^31 - 1: the next lower number
    most = np.nextafter(np.float32(limits.max), np.float32(0)) if limits.bits > 24 else limits.max
    return ops.cast(ops.clip(rounded, float(limits.min), float(most)), dtype)


@FAMILY.rule("LiteClip")
def clip(call: Call, x: Tensor) -> Tensor:
    return ops.clip(x, call.attr("low"), call.attr("high"))


@FAMILY.rule("LiteGelu")
def gelu(call: Call, x: Tensor) -> Tensor:
    return nn.gelu(x, approximate=bool(call.attr("approximate")))


@FAMILY.rule("LiteSoftmax")
def softmax(call: Call, x: Tensor) -> Tensor:
    return ops.softmax(x * call.attr("beta"), -1)


@FAMILY.rule("LiteDense")
def dense(call: Call, x: Tensor, w: Tensor) -> Tensor:
    """The weights are [outputs, inputs]."""
    if not call.attr("keep") and (x.ndim != 2 or x.shape[1] != w.shape[1]):
        x = ops.reshape(x, (-1, w.shape[1]))
    return ops.matmul(x, w, transpose_b=True)


@FAMILY.rule("LiteDepthwise")
def depthwise_conv(call: Call, x: Tensor, w: Tensor) -> Tensor:
    """The kernel is [1, height, width, outputs]."""
    channels, outputs = x.shape[-1], w.shape[-1]
    if not isinstance(channels, int) or not isinstance(outputs, int) or outputs % channels:
        call.refuse(f"has {outputs} results for {channels} channels")
    kernel = ops.reshape(w, (*w.shape[1:3], channels, outputs // channels))
    return depthwise(call, Layout(call, 2), x, kernel)


@FAMILY.rule("LiteBucketize")
def bucketize(call: Call, x: Tensor) -> Tensor:
    boundaries = np.array(call.attr("boundaries"), np.float32)
    if (np.diff(boundaries) < 0).any():
        call.refuse("has boundaries that are not in order")
    return ops.cast(ops.searchsorted(boundaries, ops.cast(x, "float32"), "right"), "int32")


@FAMILY.rule("LiteUpdateSlice")
def update_slice(call: Call, x: Tensor, update: Tensor, starts: Tensor) -> Tensor:
    return ops.dynamic_update_slice(x, update, ops.unstack(starts))


@FAMILY.rule("LiteReplaceRow")
def replace_row(call: Call, x: Tensor, row: Tensor, i: Tensor) -> Tensor:
    return ops.dynamic_update_slice(x, row, [ops.reshape(i, ()), *[0] * (x.ndim - 1)])


@FAMILY.rule("LiteSuppression", kinds="ttnvvv")
def suppression(
    call: Call, boxes: Tensor, scores: Tensor, size: int, *limits: Value
) -> list[Tensor]:
    """The indices and scores after the chosen ones are 0."""
    overlap, least, sigma = (float(call.static(v, "a limit").reshape(())) for v in limits)
    if sigma:
        call.refuse("lowers scores, with a sigma that is not 0")
    places, count = nn.non_max_suppression(boxes, scores, size, overlap, least)
    places = ops.maximum(places, 0)
    inside = ops.less(ops.arange(size, dtype="int32"), count)
    return [places, ops.where(inside, ops.take(scores, places, 0), 0), count]


WITH_WEIGHT = ("LiteWeight", "LiteVariable")
"""Operators whose attribute "name" is a weight."""


class _Tables:
    rules: Mapping[str, Rule] = MappingProxyType(
        {**TABLES.rules, **FAMILY.rules, **recurrent.FAMILY.rules}
    )
    host: Mapping[str, Any] = TABLES.host
    special = TABLES.special
    writes = TABLES.writes | {"LiteAssign"}
    results_of_strings = staticmethod(TABLES.results_of_strings)


LITE_TABLES = _Tables()
"""The rules of TensorFlow and of this folder."""
