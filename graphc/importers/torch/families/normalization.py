"""Normalization."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.core.channels_first import beside, channels_last, channels_second
from graphc.importers.torch.call import Call, Refused, Rule
from graphc.importers.torch.families.reductions import vector_norm
from graphc.ops.nn.normalization import batch_norm, layer_norm, moments


def _wide(x: Any) -> Any:
    """Statistics of narrow floats are computed in float32."""
    return ops.cast(x, "float32") if x.dtype.itemsize < 4 else x


def _affine(y: Any, w: Any, b: Any, x: Any) -> Any:
    if w is not None:
        y = y * beside(w, x)
    return y if b is None else y + beside(b, x)


def _no_training(
    call: Call, x: Any, w: Any, b: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    factor = ops.rsqrt(var + eps)
    if w is not None:
        factor = factor * w
    y = (_wide(x) - beside(mean, x)) * beside(factor, x)
    if b is not None:
        y = y + beside(b, x)
    none = ops.zeros((0,), "float32")
    return ops.cast(y, x.dtype), none, none


def _training(
    call: Call, x: Any, w: Any, b: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    """The result, the moments of the batch, and the new moving averages."""
    last = channels_last(x)
    axes = tuple(range(last.ndim - 1))
    own_mean, own_var = moments(last, axes)
    channels, dtype = last.shape[-1:], own_mean.dtype
    scale = ops.ones(channels, dtype) if w is None else ops.cast(w, dtype)
    offset = ops.zeros(channels, dtype) if b is None else ops.cast(b, dtype)
    y = channels_second(batch_norm(last, own_mean, own_var, scale, offset, float(eps)))
    if mean is None or var is None:
        return y, own_mean, own_var, None, None
    count: Any = 1
    for axis in axes:
        count = count * last.shape[axis]
    unbiased = own_var * (
        count / (count - 1) if isinstance(count, int) and count > 1 else _share(count, own_var)
    )
    return (
        y,
        own_mean,
        ops.rsqrt(own_var + eps),
        mean * (1 - momentum) + own_mean * momentum,
        var * (1 - momentum) + unbiased * momentum,
    )


def _share(count: Any, like: Any) -> Any:
    if isinstance(count, int):
        return float("inf")
    from graphc.ops.core.emit import dim_value

    wide = dim_value(count, like.dtype)
    return wide / (wide - 1)


def _functional(
    call: Call, x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, *numbers: float
) -> Any:
    if training:
        return _training(call, x, w, b, mean, var, *numbers)
    y, *_ = _no_training(call, x, w, b, mean, var, *numbers)
    return y, mean, var, mean, var


def _legit(call: Call, *operands: Any) -> Any:
    return _functional(call, *operands)[:3]


def _no_stats(
    call: Call, x: Any, w: Any, b: Any, training: bool, momentum: float, eps: float
) -> Any:
    return _training(call, x, w, b, None, None, momentum, eps)[:3]


def _batch_norm(call: Call, *operands: Any) -> Any:
    return _functional(call, *operands[:8])[0]  # without `cudnn_enabled`


def _instance_norm(
    call: Call,
    x: Any,
    w: Any,
    b: Any,
    mean: Any,
    var: Any,
    own: bool,
    momentum: float,
    eps: float,
    *rest: Any,
) -> Any:
    axes = tuple(range(2, x.ndim))
    wide = _wide(x)
    if own and mean is not None:  # torch.export does not say that they change
        raise Refused("changes its moving averages")
    if own:
        mean, var = moments(wide, axes, keepdims=True)
    else:
        mean, var = beside(mean, x), beside(var, x)
    return ops.cast(_affine((wide - mean) * ops.rsqrt(var + eps), w, b, x), x.dtype)


def _layer_norm(
    call: Call, x: Any, shape: Any, w: Any = None, b: Any = None, eps: float = 1e-5, *rest: Any
) -> Any:
    return _native_layer_norm(call, x, shape, w, b, eps)[0]


def _native_layer_norm(call: Call, x: Any, shape: Any, w: Any, b: Any, eps: float) -> Any:
    wide = _wide(x)
    mean, var = moments(wide, tuple(range(x.ndim - len(shape), x.ndim)), keepdims=True)
    inverse = ops.rsqrt(var + eps)
    whole = w is not None and b is not None and w.dtype == b.dtype == x.dtype
    if whole and len(shape) == 1 and x.ndim > 1:
        return layer_norm(x, w, b, eps), mean, inverse
    y = (wide - mean) * inverse
    if w is not None:
        y = y * w
    if b is not None:
        y = y + b
    return ops.cast(y, x.dtype), mean, inverse


def _group_norm(
    call: Call, x: Any, groups: int, w: Any = None, b: Any = None, eps: float = 1e-5, *rest: Any
) -> Any:
    batch, channels = x.shape[:2]
    apart = _wide(ops.reshape(x, (batch, groups, channels // groups, *x.shape[2:])))
    mean, var = moments(apart, tuple(range(2, apart.ndim)), keepdims=True)
    y = ops.reshape((apart - mean) * ops.rsqrt(var + eps), x.shape)
    return ops.cast(_affine(y, w, b, x), x.dtype)


def _native_group_norm(
    call: Call, x: Any, w: Any, b: Any, n: Any, c: Any, area: Any, groups: int, eps: float
) -> Any:
    return _group_norm(call, x, groups, w, b, eps), None, None


def _rms_norm(call: Call, x: Any, shape: Any, w: Any = None, eps: float | None = None) -> Any:
    import numpy as np

    wide = _wide(x)
    small = (
        float(np.finfo(np.float32 if x.dtype.itemsize < 8 else np.float64).eps)
        if eps is None
        else eps
    )
    square = ops.reduce_mean(
        ops.square(wide), axis=tuple(range(x.ndim - len(shape), x.ndim)), keepdims=True
    )
    y = ops.cast(wide * ops.rsqrt(square + small), x.dtype)
    return y if w is None else y * w


def _weight_norm(call: Call, v: Any, g: Any, dim: int = 0) -> Any:
    """A weight in the direction of v, with the lengths g along an axis; and the lengths of v."""
    length = _lengths(call, v, 2, dim)
    return v * (g / length), length


def _lengths(call: Call, v: Any, order: int = 2, dim: int = 0) -> Any:
    """The norm of each part of v along an axis; -1 means of all of it."""
    if dim == -1:
        return vector_norm(v, order, tuple(range(v.ndim)), False)
    others = tuple(i for i in range(v.ndim) if i != dim)
    return vector_norm(v, order, others, True)


RULES: Final[dict[str, Rule]] = {
    "aten._native_batch_norm_legit.default": _legit,
    "aten._weight_norm_interface.default": _weight_norm,
    "aten.norm_except_dim.default": _lengths,
    "aten._native_batch_norm_legit.no_stats": _no_stats,
    "aten._native_batch_norm_legit_functional.default": _functional,
    "aten._native_batch_norm_legit_no_training.default": _no_training,
    "aten.batch_norm.default": _batch_norm,
    "aten.group_norm.default": _group_norm,
    "aten.instance_norm.default": _instance_norm,
    "aten.layer_norm.default": _layer_norm,
    "aten.native_group_norm.default": _native_group_norm,
    "aten.native_layer_norm.default": _native_layer_norm,
    "aten.rms_norm.default": _rms_norm,
}
