"""Random numbers, from the streams of the graph: `seed` attributes are ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.onnx.call import Call, Rule
from graphc.importers.onnx.dtypes import dtype_of
from graphc.importers.onnx.families.shapes import shape_of
from graphc.ops import random


def _dtype(call: Call, like: bool) -> np.dtype[Any]:
    given = call.attr("dtype")
    if given is not None:
        return dtype_of(given)
    return call.x().dtype if like else np.dtype(np.float32)


def _drawn(draw: Callable[[Call, Any, np.dtype[Any]], Any], like: bool) -> Rule:
    def rule(call: Call) -> Any:
        shape = shape_of(call) if like else tuple(call.attr("shape"))
        return draw(call, shape, _dtype(call, like))

    return rule


def _normal(call: Call, shape: Any, dtype: np.dtype[Any]) -> Any:
    return random.normal(shape, dtype=dtype) * call.attr("scale", 1.0) + call.attr("mean", 0.0)


def _uniform(call: Call, shape: Any, dtype: np.dtype[Any]) -> Any:
    low, high = call.attr("low", 0.0), call.attr("high", 1.0)
    return random.uniform(shape, dtype=dtype) * (high - low) + low


def _bernoulli(call: Call) -> Any:
    x = call.x()
    drawn = random.uniform(x.shape, dtype="float32") < ops.cast(x, "float32")
    return ops.cast(drawn, _dtype(call, like=True))


def _multinomial(call: Call) -> Any:
    logits, count = call.x(), call.attr("sample_size", 1)
    noise = random.uniform((logits.shape[0], count, logits.shape[1]), dtype="float32")
    gumbel = -ops.log(-ops.log(ops.maximum(noise, 1e-30)))
    found = ops.argmax(ops.expand_dims(ops.cast(logits, "float32"), 1) + gumbel, axis=-1)
    return ops.cast(found, dtype_of(call.attr("dtype", 6)))


RULES: Final[dict[str, Rule]] = {
    "Bernoulli": _bernoulli,
    "Multinomial": _multinomial,
    "RandomNormal": _drawn(_normal, like=False),
    "RandomNormalLike": _drawn(_normal, like=True),
    "RandomUniform": _drawn(_uniform, like=False),
    "RandomUniformLike": _drawn(_uniform, like=True),
}
