"""Random numbers. They come from graphc's streams: the distributions are TensorFlow's, the numbers
are not. Seeds of the graph are not used: `gc.Graph(seed=...)` is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.values import Value
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ops import random

FAMILY = Family()


_DRAWS: dict[str, Callable[..., Tensor]] = {
    "RandomUniform": random.uniform, "StatelessRandomUniform": random.uniform,
    "StatelessRandomUniformV2": random.uniform, "RandomStandardNormal": random.normal,
    "StatelessRandomNormal": random.normal, "StatelessRandomNormalV2": random.normal,
    "TruncatedNormal": random.truncated_normal,
    "StatelessTruncatedNormal": random.truncated_normal,
    "StatelessTruncatedNormalV2": random.truncated_normal,
}  # fmt: skip


@FAMILY.rule(*_DRAWS, kinds="dv*")
def drawn(call: Call, sizes: Sequence[Dim], *seeds: Value) -> Tensor:
    return _DRAWS[call.node.op](tuple(sizes), dtype=call.dtype("dtype", "float32"))


@FAMILY.rule("ParameterizedTruncatedNormal", kinds="dtttt")
def parameterized_normal(
    call: Call, sizes: Sequence[Dim], mean: Tensor, stddev: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """By the inverse of the distribution function."""
    a, b = (ops.cast(ops.ndtr((end - mean) / stddev), mean.dtype) for end in (low, high))
    u = random.uniform(tuple(sizes), dtype=mean.dtype)
    return ops.clip(mean + stddev * ops.ndtri(a + u * (b - a)), low, high)


@FAMILY.rule("RandomUniformInt", kinds="dnn")
def uniform_int(call: Call, sizes: Sequence[Dim], low: int, high: int) -> Tensor:
    return random.randint(tuple(sizes), low, high, call.dtype("Tout"))


@FAMILY.rule("StatelessRandomUniformIntV2", kinds="dvvvnn")
@FAMILY.rule("StatelessRandomUniformInt", kinds="dvnn")
def stateless_int(call: Call, sizes: Sequence[Dim], *seed_and_limits: Any) -> Tensor:
    *_, low, high = seed_and_limits
    return random.randint(tuple(sizes), low, high, call.dtype("dtype"))


@FAMILY.rule("Multinomial", "StatelessMultinomial", kinds="tnv*")
def multinomial(call: Call, logits: Tensor, count: int, *seeds: Value) -> Tensor:
    shape = (logits.shape[0], count, logits.shape[1])
    wide = ops.broadcast_to(ops.expand_dims(logits, 1), shape)
    return ops.cast(random.categorical(wide), call.dtype("output_dtype", "int64"))


@FAMILY.rule("RandomShuffle", kinds="tv*")
def shuffle(call: Call, x: Tensor, *seeds: Value) -> Tensor:
    return random.shuffle(x)


@FAMILY.rule("RandomGamma", kinds="dv*")
def gamma(call: Call, sizes: Sequence[Dim], *rest: Value) -> Tensor:
    alpha = call.tensor(rest[-1])
    return random.gamma(alpha, shape=(*sizes, *alpha.shape))


@FAMILY.rule("RandomPoissonV2", "RandomPoisson", kinds="dt")
def poisson(call: Call, sizes: Sequence[Dim], rate: Tensor) -> Tensor:
    counts = random.poisson(rate, (*sizes, *rate.shape))
    return ops.cast(counts, call.dtype("dtype", "int64"))


@FAMILY.rule("StatelessRandomGetKeyCounter", kinds="v*", outputs=("key", "counter"))
def key_counter(call: Call, *seeds: Value) -> list[Any]:
    return [np.zeros(1, np.uint64), np.zeros(2, np.uint64)]
