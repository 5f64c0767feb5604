"""Random numbers, from the streams of the graph."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.torch.call import Call, Rule
from graphc.ops import random


def dropped(x: Any, rate: float) -> Any:
    """x with elements set to 0 at a rate, and the others divided by the share that is kept."""
    return _with_mask(x, rate)[0]


def _with_mask(x: Any, rate: float) -> tuple[Any, Any]:
    if rate >= 1:
        return ops.zeros_like(x), ops.zeros_like(x, dtype="bool")
    kept = random.uniform(x.shape, dtype="float32") >= rate
    return ops.where(kept, x / (1 - rate), ops.zeros_like(x)), kept


def _dropout(call: Call, x: Any, rate: float, training: bool) -> Any:
    return dropped(x, rate) if training and rate else x


def _native_dropout(call: Call, x: Any, rate: float, training: bool | None) -> Any:
    if training is False or not rate:
        return x, ops.ones_like(x, dtype="bool")
    return _with_mask(x, rate)


def _feature_dropout(call: Call, x: Any, rate: float, training: bool) -> Any:
    """Whole channels are set to 0."""
    if not training or not rate:
        return x
    kept = random.uniform((*x.shape[:2], *(1,) * (x.ndim - 2)), dtype="float32") >= rate
    return ops.where(kept, x / (1 - rate), ops.zeros_like(x))


def _uniform(call: Call, shape: Any, low: Any = 0, high: Any = 1) -> Any:
    drawn = random.uniform(tuple(shape), dtype="float32") * (high - low) + low
    return ops.cast(drawn, call.dtype)


def _normal(call: Call, shape: Any, mean: Any = 0, std: Any = 1) -> Any:
    return ops.cast(random.normal(tuple(shape), dtype="float32") * std + mean, call.dtype)


def _normal_around(call: Call, mean: Any, std: Any = 1, **options: Any) -> Any:
    mean, std = call.own(mean), call.own(std)
    return mean + std * random.normal(ops.broadcast_arrays(mean, std)[0].shape, dtype=call.dtype)


def _integers(call: Call, low: int, high: int, shape: Any) -> Any:
    drawn = random.uniform(tuple(shape), dtype="float32") * (high - low) + low
    return ops.cast(ops.minimum(ops.floor(drawn), high - 1), call.dtype)


def _bernoulli(call: Call, x: Any, p: Any = None, **options: Any) -> Any:
    share = x if p is None else p
    return ops.cast(random.uniform(x.shape, dtype="float32") < share, call.dtype)


RULES: Final[dict[str, Rule]] = {
    "aten.bernoulli.default": _bernoulli,
    "aten.bernoulli.p": _bernoulli,
    "aten.dropout.default": _dropout,
    "aten.feature_dropout.default": _feature_dropout,
    "aten.native_dropout.default": _native_dropout,
    "aten.normal.Tensor_Tensor": _normal_around,
    "aten.normal.Tensor_float": _normal_around,
    "aten.normal.float_Tensor": _normal_around,
    "aten.normal_functional.default": lambda call, x, mean=0, std=1, **o: _normal(
        call, x.shape, mean, std
    ),
    "aten.rand.default": lambda call, shape, **o: _uniform(call, shape),
    "aten.rand_like.default": lambda call, x, **o: _uniform(call, x.shape),
    "aten.randint.default": lambda call, high, shape, **o: _integers(call, 0, high, shape),
    "aten.randint.low": lambda call, low, high, shape, **o: _integers(call, low, high, shape),
    "aten.randint_like.default": lambda call, x, high, **o: _integers(call, 0, high, x.shape),
    "aten.randperm.default": lambda call, n, **o: ops.cast(random.permutation(n), call.dtype),
    "aten.randn.default": lambda call, shape, **o: _normal(call, shape),
    "aten.randn_like.default": lambda call, x, **o: _normal(call, x.shape),
    "aten.uniform.default": lambda call, x, low=0, high=1, **o: _uniform(call, x.shape, low, high),
}
