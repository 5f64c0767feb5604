"""Random numbers, from the streams of the graph."""

from __future__ import annotations

from collections.abc import Callable
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


_PARAMETERS: Final = ("lambd", "median", "sigma", "p", "mean", "std")  # order of PyTorch


def _drawn(draw: Callable[..., Any]) -> Rule:
    """Draws of the shape of a tensor; its elements do not matter."""

    def rule(call: Call, x: Any, *parameters: float, **options: Any) -> Any:
        parameters = (*parameters, *[options[n] for n in _PARAMETERS if n in options])
        return ops.cast(draw(x.shape, *parameters), call.dtype)

    return rule


def _exponential(shape: Any, rate: float = 1.0) -> Any:
    return random.exponential(shape, 1 / rate)


def _cauchy(shape: Any, median: float = 0.0, sigma: float = 1.0) -> Any:
    return random.cauchy(shape, median, sigma)


def _geometric(shape: Any, p: float) -> Any:
    return random.geometric(p, shape)


def _log_normal(shape: Any, mean: float = 1.0, std: float = 2.0) -> Any:
    return random.lognormal(shape, mean, std)


def _binomial(call: Call, count: Any, p: Any, generator: Any = None) -> Any:
    return ops.cast(random.binomial(count, p), call.dtype)


def _poisson(call: Call, rate: Any, generator: Any = None) -> Any:
    return ops.cast(random.poisson(rate), call.dtype)


def _multinomial(
    call: Call, weights: Any, count: int, replacement: bool = False, **options: Any
) -> Any:
    """Places of the last axis, drawn in proportion to the weights."""
    logits, size = ops.log(weights), weights.shape[-1]
    if replacement:
        logits = ops.expand_dims(logits, -2)
        noise = random.gumbel((*weights.shape[:-1], count, size), dtype=weights.dtype)
        return ops.cast(ops.argmax(logits + noise, axis=-1), "int64")
    noise = random.gumbel(weights.shape, dtype=weights.dtype)
    return ops.cast(ops.top_k(logits + noise, count)[1], "int64")


def _alpha_dropout(call: Call, x: Any, rate: float, training: bool) -> Any:
    """Elements become the lower limit of SELU; the mean and the variance stay."""
    if not training or not rate:
        return x
    if rate >= 1:
        return ops.zeros_like(x)
    low, share = -1.7580993408473766, 1 - rate  # SELU's: -scale * alpha
    scale = (share + low**2 * share * rate) ** -0.5
    kept = random.uniform(x.shape, dtype="float32") < share
    return scale * ops.where(kept, x, ops.full_like(x, low)) - scale * low * rate


def _rrelu(
    call: Call,
    x: Any,
    noise: Any,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """The result, and the slope of each element."""
    if not training:
        return ops.where(x >= 0, x, x * ((lower + upper) / 2)), noise
    drawn = random.uniform(x.shape, dtype="float32") * (upper - lower) + lower
    slopes = ops.where(x > 0, ops.ones_like(x), ops.cast(drawn, x.dtype))
    return x * slopes, slopes


RULES: Final[dict[str, Rule]] = {
    "aten._standard_gamma.default": lambda call, alpha, *rest: random.gamma(alpha),
    "aten.alpha_dropout.default": _alpha_dropout,
    "aten.binomial.default": _binomial,
    "aten.cauchy.default": _drawn(_cauchy),
    "aten.exponential.default": _drawn(_exponential),
    "aten.geometric.default": _drawn(_geometric),
    "aten.log_normal.default": _drawn(_log_normal),
    "aten.multinomial.default": _multinomial,
    "aten.poisson.default": _poisson,
    "aten.rrelu.default": lambda call, x, *args, **o: _rrelu(call, x, None, *args, **o)[0],
    "aten.rrelu_with_noise_functional.default": _rrelu,
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
    "aten.randint_like.low_dtype": lambda call, x, low, high, **o: _integers(
        call, low, high, x.shape
    ),
    "aten.randint_like.default": lambda call, x, high, **o: _integers(call, 0, high, x.shape),
    "aten.randperm.default": lambda call, n, **o: ops.cast(random.permutation(n), call.dtype),
    "aten.randn.default": lambda call, shape, **o: _normal(call, shape),
    "aten.randn_like.default": lambda call, x, **o: _normal(call, x.shape),
    "aten.uniform.default": lambda call, x, low=0, high=1, **o: _uniform(call, x.shape, low, high),
}
