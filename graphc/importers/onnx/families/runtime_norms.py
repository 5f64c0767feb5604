"""Operators of ONNX Runtime: normalization, with what is added before it."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.core.channels_first import channels_last, channels_second
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.normalization import RULES as STANDARD
from graphc.importers.onnx.limits import as_standard, limited, without
from graphc.ir.node import Tensor
from graphc.ops.elementwise import activation
from graphc.ops.nn.normalization import moments

_EPSILON: Final = 1e-12  # the default of operators that were made for BERT


def _wide(x: Tensor) -> Any:
    return ops.cast(x, "float32") if x.dtype.itemsize < 4 else x


def _layer_norm(x: Tensor, scale: Tensor, bias: Tensor | None, epsilon: float) -> tuple[Any, ...]:
    """The normalized last axis, its mean, and the inverse of its deviation."""
    wide = _wide(x)
    mean, variance = moments(wide, -1, keepdims=True)
    inverse = ops.rsqrt(variance + epsilon)
    y = (wide - mean) * inverse * ops.cast(scale, wide.dtype)
    y = y if bias is None else y + ops.cast(bias, wide.dtype)
    return ops.cast(y, x.dtype), mean, inverse


def _rms_norm(x: Tensor, scale: Tensor, axis: int, epsilon: float) -> tuple[Any, Any]:
    """The axes from `axis` on divided by their quadratic mean, and the inverse of this mean."""
    wide = _wide(x)
    axes = tuple(range(axis % x.ndim, x.ndim))
    inverse = ops.rsqrt(ops.reduce_mean(ops.square(wide), axis=axes, keepdims=True) + epsilon)
    return ops.cast(wide * inverse * ops.cast(scale, wide.dtype), x.dtype), inverse


def _simplified(call: Call) -> Any:
    """`stash_type` says in which type the mean is computed: 1, float32, is the only one in use."""
    without(call, stash_type=1)
    return _rms_norm(call.x(0), call.x(1), call.attr("axis", -1), call.attr("epsilon", 1e-5))


def _sum(call: Call, bias: int) -> Any:
    """The input and the skip connection, and a bias if there is one."""
    total = call.x(0) + call.x(1)
    return total + call.x(bias) if call.has(bias) else total


def _skip_layer_norm(call: Call) -> Any:
    total = _sum(call, 4)
    beta = call.x(3) if call.has(3) else None
    y, mean, inverse = _layer_norm(total, call.x(2), beta, call.attr("epsilon", _EPSILON))
    return y, mean, inverse, total


def _skip_simplified(call: Call) -> Any:
    total = _sum(call, 3)
    y, inverse = _rms_norm(total, call.x(2), -1, call.attr("epsilon", _EPSILON))
    if call.wants(1):
        raise Refused("with the mean as a result is not supported: it has none")
    return y, None, inverse, total


def _embeddings(call: Call) -> Any:
    """Sums of embeddings of words, positions and segments, normalized."""

    def rows(table: int, indices: Any) -> Any:
        return ops.take(call.x(table), indices)

    positions = call.x(8) if call.has(8) else _first_positions(call)
    total = rows(2, call.x(0)) + rows(3, positions)
    if call.has(4):
        total = total + rows(4, call.x(1))
    y, _, _ = _layer_norm(total, call.x(5), call.x(6), call.attr("epsilon", _EPSILON))
    return y, _lengths(call), total


def _quantized_embeddings(call: Call) -> Any:
    """As `_embeddings`, with tables of 8 bits: their scales begin at input 8, their zero points at
    input 13."""

    def number(i: int, table: int) -> Any:
        return ops.reshape(call.x(i + table - 2), ())

    def plain(table: int, v: Any) -> Any:
        shifted = ops.cast(v, "int32") - ops.cast(number(13, table), "int32")
        return ops.cast(shifted, "float32") * number(8, table)

    def rows(table: int, indices: Any) -> Any:
        return plain(table, ops.take(call.x(table), indices))

    total = rows(2, call.x(0)) + rows(3, _first_positions(call))
    if call.has(4):
        total = total + rows(4, call.x(1))
    scale, bias = plain(5, call.x(5)), plain(6, call.x(6))
    y, _, _ = _layer_norm(total, scale, bias, call.attr("epsilon", _EPSILON))
    return y, _lengths(call)


def _first_positions(call: Call) -> Any:
    return ops.arange(call.x(0).shape[1], dtype="int32")


def _lengths(call: Call) -> Any:
    """How many words of each example the mask in input 7 shows; 0 without a mask."""
    if not call.has(7):
        return ops.zeros((call.x(0).shape[0],), "int32")
    return ops.reduce_sum(ops.cast(ops.equal(call.x(7), 1), "int32"), axis=1)


def _group_norm(call: Call) -> Any:
    """`channels_last` is the default, unlike in the standard."""
    last = call.attr("channels_last", 1)
    x = call.x(0)
    if call.op == "SkipGroupNorm":
        skip = call.x(3)
        if skip.ndim == 2:
            between = (skip.shape[0], 1, 1, skip.shape[1])
            skip = ops.reshape(skip, between if last else (*skip.shape, 1, 1))
        x = x + skip
        if call.has(4):
            bias = call.x(4)
            x = x + (bias if last else ops.reshape(bias, (-1, 1, 1)))
    first = channels_second(x) if last else x
    y = _by_groups(first, call.x(1), call.x(2), call.attr("groups"), call.attr("epsilon", 1e-5))
    kind = call.attr("activation", 0)
    if kind not in (0, 1):
        raise Refused(f"with the activation {kind} is not supported")
    y = activation.silu(y) if kind == 1 else y
    return (channels_last(y) if last else y), x


def _by_groups(x: Tensor, scale: Tensor, bias: Tensor, groups: int, epsilon: float) -> Any:
    batch, channels = x.shape[:2]
    apart = ops.reshape(_wide(x), (batch, groups, channels // groups, *x.shape[2:]))
    mean, variance = moments(apart, tuple(range(2, apart.ndim)), keepdims=True)
    y = ops.reshape((apart - mean) * ops.rsqrt(variance + epsilon), x.shape)
    shape = (channels, *(1,) * (x.ndim - 2))
    scale, bias = (ops.reshape(ops.cast(v, y.dtype), shape) for v in (scale, bias))
    return ops.cast(y * scale + bias, x.dtype)


def _standard(call: Call) -> Any:
    return as_standard(call, STANDARD["LayerNormalization"], 17)


_GROUPS: Final = "activation channels_last epsilon groups"
_SIMPLIFIED: Final = limited(_simplified, 2, "axis epsilon stash_type", 2)

RULES: Final[dict[str, Rule]] = {
    "EmbedLayerNormalization": limited(_embeddings, 9, "epsilon mask_index_type", 3),
    "GroupNorm": limited(_group_norm, 3, _GROUPS),
    "LayerNormalization": limited(_standard, 3, "axis epsilon stash_type", 3),
    "QEmbedLayerNormalization": limited(_quantized_embeddings, 18, "epsilon", 2),
    "SimplifiedLayerNormalization": _SIMPLIFIED,
    "SkipGroupNorm": limited(_group_norm, 5, _GROUPS, 2),
    "SkipLayerNormalization": limited(_skip_layer_norm, 5, "epsilon", 4),
    "SkipSimplifiedLayerNormalization": limited(_skip_simplified, 4, "epsilon", 4),
}
WITHOUT_DOMAIN: Final[dict[str, Rule]] = {"SimplifiedLayerNormalization": _SIMPLIFIED}
"""Operators that ONNX Runtime adds to the default domain."""
