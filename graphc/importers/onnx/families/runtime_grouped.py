"""Attention of language models: heads that share keys, a cache of keys, windows, rotation."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.attention import flat, heads_of, rotate
from graphc.importers.onnx.families.runtime_attention import number_of
from graphc.importers.onnx.limits import limited, without
from graphc.importers.onnx.values import as_dims
from graphc.ir.dims import Dim
from graphc.ops.elementwise import activation


def _parts(call: Call) -> tuple[Any, Any, Any]:
    """Queries, keys and values by heads. They may be in one tensor."""
    heads, shared = call.attr("num_heads"), call.attr("kv_num_heads")
    query = call.x(0)
    if call.has(1):
        key, value = call.x(1), call.x(2)
    else:
        width = query.shape[-1]
        depth: Any = width // (heads + 2 * shared)
        sizes = [heads * depth, shared * depth, shared * depth]
        query, key, value = ops.split(query, sizes, -1)
    return heads_of(query, heads), heads_of(key, shared), heads_of(value, shared)


def _length(call: Call, old: Any, new: Any) -> Dim:
    """How many keys the cache has after the call.

    ONNX Runtime keeps the length of a cache that is long enough already.
    """
    before: Any = old.shape[2] if old is not None else 0
    value = call.known(6)
    total = None if value is None else as_dims(value)[0]
    if isinstance(total, int) and isinstance(before, int):
        return max(total, before)
    if total is None:
        raise Refused(
            "needs the total length at import, but it is computed when the model runs", needs=True
        )
    grown: Dim = before + new.shape[2]
    return grown


def _cache(old: Any, new: Any, length: Dim, start: Any) -> Any:
    """The old keys of each example, then its new ones.

    Args:
        old: the cache [batch, heads, places, depth], or None.
        new: the new keys.
        length: how many places there are after the call.
        start: the place of the first new key, [batch].
    """
    place = ops.arange(length, dtype="int32")[None] - start[:, None]  # [batch, places]
    count = new.shape[2]
    at = ops.clip(place, 0, count - 1)[:, None, :, None]
    moved = ops.take_along_axis(new, at, axis=2)
    inside = ops.logical_and(place >= 0, place < count)[:, None, :, None]
    zero = ops.zeros_like(moved)
    if old is None:
        return ops.where(inside, moved, zero)
    more = length - old.shape[2]
    kept = ops.pad(old, [(0, 0), (0, 0), (0, more), (0, 0)]) if more != 0 else old
    return ops.where(inside, moved, ops.where((place < 0)[:, None, :, None], kept, zero))


def _visible(call: Call, queries: Dim, keys: Dim, start: Any) -> Any:
    """Which keys each query sees, [batch, 1, queries, keys]: none after it, and those of the
    window before it."""
    query = ops.arange(queries, dtype="int32")[None, :, None] + start[:, None, None]
    key = ops.arange(keys, dtype="int32")[None, None]
    seen = ops.less_equal(key, query)
    window = call.attr("local_window_size", -1)
    if window > 0:
        seen = ops.logical_and(seen, ops.greater(key, query - window))
    return ops.expand_dims(seen, 1)


def _weights(call: Call, logits: Any) -> Any:
    """The softmax of the logits, with one more logit, which has no value, if there is one."""
    extra: Any = None
    if call.has(11):
        extra = ops.reshape(call.x(11), (1, -1, 1, 1))
    elif call.attr("smooth_softmax", -1) == 1:
        extra = ops.zeros((1, 1, 1, 1), logits.dtype)
    if extra is None:
        return activation.softmax(logits, axis=-1)
    extra = ops.broadcast_to(ops.cast(extra, logits.dtype), (*logits.shape[:-1], 1))
    return activation.softmax(ops.concatenate([logits, extra], axis=-1), axis=-1)[..., :-1]


def _attend(call: Call, q: Any, k: Any, v: Any, start: Any) -> Any:
    shared = call.attr("kv_num_heads")
    _, heads, queries, depth = q.shape
    if heads != shared:
        k, v = (ops.repeat(t, heads // shared, axis=1) for t in (k, v))
    scale = call.attr("scale", 0.0) or 1.0 / math.sqrt(depth)
    logits = ops.matmul(q, ops.swapaxes(k, -1, -2)) * scale
    cap = call.attr("softcap", 0.0)
    if cap:
        logits = cap * ops.tanh(logits / cap)
    keys = k.shape[2]
    if call.has(10):
        bias = call.x(10)
        if bias.shape[-1] != keys:  # a cache may be longer than the bias
            bias = ops.pad(bias, [(0, 0)] * 3 + [(0, keys - bias.shape[-1])])
        logits = logits + bias
    never = float(np.finfo(np.float32).min) if logits.dtype.itemsize > 2 else -65504.0
    seen = _visible(call, queries, keys, start)
    logits = ops.where(seen, logits, ops.zeros_like(logits) + never)
    return ops.matmul(_weights(call, logits), v)


def _grouped(call: Call) -> Any:
    without(call, causal=1, k_quant_type="NONE", v_quant_type="NONE", kv_cache_bit_width=0)
    without(call, sliding_window_cache=0, qk_output=0)
    if call.attr("smooth_softmax", -1) == 1 and call.has(11):
        raise Refused("with smooth_softmax and head_sink is not supported")
    q, k, v = _parts(call)
    old_k, old_v = (call.x(i) if call.has(i) else None for i in (3, 4))
    length = _length(call, old_k, k)
    totals = ops.cast(ops.reshape(call.x(5), (-1,)), "int32") + 1
    # In a first call, the examples may be shorter than the queries.
    start = ops.maximum(totals - number_of(q.shape[2]), 0)
    if call.attr("do_rotary", 0):
        q, k = _rotated(call, q, k, start)
    k, v = _cache(old_k, k, length, start), _cache(old_v, v, length, start)
    return flat(_attend(call, q, k, v, start)), k, v


def _rotated(call: Call, q: Any, k: Any, start: Any) -> tuple[Any, Any]:
    cos, sin = call.x(7), call.x(8)
    if call.has(9):
        positions: Any = call.x(9)
    else:
        positions = ops.arange(q.shape[2], dtype="int32")[None] + start[:, None]
    part: Any = 2 * cos.shape[-1]
    cos, sin = ops.take(cos, positions), ops.take(sin, positions)
    how = {"interleaved": call.attr("rotary_interleaved", 0), "part": part}
    return rotate(q, cos, sin, **how), rotate(k, cos, sin, **how)


_ATTRS: Final = (
    "causal do_rotary k_quant_type kv_cache_bit_width kv_num_heads local_window_size num_heads "
    "qk_norm_epsilon qk_output rotary_interleaved scale sliding_window_cache smooth_softmax "
    "softcap v_quant_type"
)

RULES: Final[dict[str, Rule]] = {"GroupQueryAttention": limited(_grouped, 12, _ATTRS, 3)}
