"""Attention of ONNX Runtime, with masks and the keys and values of earlier calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.core.integers import product
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.attention import flat, heads_of, rotate
from graphc.importers.onnx.families.quantized import integers_of, of_columns
from graphc.importers.onnx.limits import limited, without
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ops.core.emit import dim_value
from graphc.ops.elementwise import activation


def number_of(size: Dim) -> Any:
    """A size in calculations with int32."""
    return size if isinstance(size, int) else dim_value(size, np.dtype(np.int32))


@dataclass(frozen=True)
class _Places:
    """The sizes that masks depend on."""

    batch: Dim
    queries: Dim
    keys: Dim
    before: Dim  # keys of earlier calls


def _hidden(mask: Tensor, places: _Places) -> Any:
    """Where keys are hidden, to broadcast with [batch, heads, queries, keys].

    A mask has an element for each key (not 0: it is seen), or, with one axis, the numbers of keys
    of each example; then perhaps their first keys.
    """
    if mask.ndim == 2:
        return ops.less_equal(mask, 0)[:, None, None, :]
    if mask.ndim == 3:
        return ops.less_equal(mask, 0)[:, None]
    if mask.ndim != 1:
        raise Refused(f"with a mask of {mask.ndim} axes is not supported")
    position = ops.arange(places.keys, dtype="int32")
    count, batch = mask.shape[0], places.batch
    if count == batch:
        ends = mask
        return ops.greater_equal(position, ends[:, None])[:, None, None, :]
    if count != 2 * batch:
        raise Refused(f"with a mask of the shape {mask.shape} is not supported")
    ends, starts = mask[:batch], mask[batch:]
    hidden = ops.logical_or(
        ops.greater_equal(position, ends[:, None]), ops.less(position, starts[:, None])
    )
    return hidden[:, None, None, :]


def _future(places: _Places) -> Any:
    """Where a key comes after a query, [queries, keys]."""
    query = ops.arange(places.queries, dtype="int32")[:, None] + number_of(places.before)
    return ops.greater(ops.arange(places.keys, dtype="int32")[None], query)


def attended(
    call: Call, q: Any, k: Any, v: Any, *, mask: int, bias: int, before: Any
) -> tuple[Any, Any]:
    """The averages of values [batch, heads, queries, depth], and the logits of the keys.

    Args:
        call: the node.
        q: the queries, [batch, heads, queries, depth].
        k: all keys, in the same form.
        v: all values.
        mask: the number of the input that is a mask.
        bias: the number of the input that is added to the logits.
        before: how many of the keys are those of earlier calls.
    """
    scale = call.attr("scale", 0.0) or 1.0 / math.sqrt(q.shape[-1])
    logits = ops.matmul(q, ops.swapaxes(k, -1, -2)) * scale
    places = _Places(q.shape[0], q.shape[2], k.shape[2], before)
    low = call.attr("mask_filter_value", -10000.0)
    if call.has(bias):
        logits = logits + call.x(bias)
    if call.has(mask):
        hidden = _hidden(call.x(mask), places)
        logits = logits + ops.cast(hidden, logits.dtype) * low
    if call.attr("unidirectional", 0):
        never = float(np.finfo(np.float32).min) if logits.dtype.itemsize > 2 else -65504.0
        logits = ops.where(_future(places), ops.zeros_like(logits) + never, logits)
    weights = activation.softmax(logits, axis=-1)
    return ops.matmul(weights, v), logits


def _joined(past: Any, new: Any) -> Any:
    return new if past is None else ops.concatenate([past, new], axis=2)


# -- the operators ---------------------------------------------------------------------------


def _self_attention(call: Call) -> Any:
    """Queries, keys and values are products of the input with one matrix."""
    projected = ops.matmul(call.x(0), call.x(1))
    if call.has(2):
        projected = projected + call.x(2)
    return _of_projected(call, projected, mask=3, past=4, bias=5)


def _quantized_attention(call: Call) -> Any:
    """The input and the matrix are integers."""
    y = ops.cast(product(integers_of(call, 0, 6), integers_of(call, 1, 7, axis=-1)), "float32")
    scale = ops.reshape(call.x(3), ()) * of_columns(call.x(4))
    return _of_projected(call, y * scale + call.x(2), mask=5, past=8, bias=len(call.inputs))


def _of_projected(call: Call, projected: Any, *, mask: int, past: int, bias: int) -> Any:
    without(call, do_rotary=0, past_present_share_buffer=0)
    heads, width = call.attr("num_heads"), projected.shape[-1]
    sizes = call.attr("qkv_hidden_sizes") or [width // 3] * 3
    q, k, v = (heads_of(part, heads) for part in ops.split(projected, sizes, -1))
    old_k, old_v = None, None
    before: Dim = 0
    if call.has(past):
        old = call.x(past)
        old_k, old_v, before = old[0], old[1], old.shape[3]
    k, v = _joined(old_k, k), _joined(old_v, v)
    y, _ = attended(call, q, k, v, mask=mask, bias=bias, before=before)
    return flat(y), (ops.stack([k, v], axis=0) if call.wants(1) else None)


def _operands(call: Call, heads: int) -> tuple[Any, Any, Any, bool]:
    """Queries, keys and values by heads, and whether the keys are those of a cache."""
    query = call.x(0)
    if query.ndim == 5:  # packed: [batch, time, heads, 3, depth]
        parts = [ops.transpose(query[:, :, :, i], (0, 2, 1, 3)) for i in range(3)]
        return parts[0], parts[1], parts[2], False
    key = call.x(1)
    bias = list(_biases(call, query))
    q = heads_of(query if bias[0] is None else query + bias[0], heads)
    if key.ndim == 5:  # packed: [batch, source, heads, 2, depth]
        k, v = (ops.transpose(key[:, :, :, i], (0, 2, 1, 3)) for i in range(2))
        if bias[0] is not None:
            raise Refused("with a bias of packed keys is not supported")
        return q, k, v, False
    value = call.x(2)
    if key.ndim == 4:
        return q, key, value, True
    k = heads_of(key if bias[1] is None else key + bias[1], heads)
    return q, k, heads_of(value if bias[2] is None else value + bias[2], heads), False


def _biases(call: Call, query: Tensor) -> Any:
    """The parts of the bias, for queries, keys and values."""
    if not call.has(3):
        return (None, None, None)
    bias, size = call.x(3), query.shape[-1]
    return bias[:size], bias[size : 2 * size], bias[2 * size :]


def _multi_head(call: Call) -> Any:
    """Attention of queries to keys, both of which are projected already."""
    if call.has(0) and call.x(0).ndim == 5 and call.has(3):
        raise Refused("with a bias of packed queries is not supported")
    q, k, v, cached = _operands(call, call.attr("num_heads"))
    before: Dim = 0
    if call.has(6):
        if cached:
            raise Refused("with keys of four axes, and those of earlier calls, is not supported")
        old_k, old_v = call.x(6), call.x(7)
        before = old_k.shape[2]
        k, v = _joined(old_k, k), _joined(old_v, v)
    y, logits = attended(call, q, k, v, mask=4, bias=5, before=before)
    return flat(y), k, v, logits


def _rotary(call: Call) -> Any:
    """The positions come second, and may be the first position alone."""
    without(call, is_packed_batching=0, scale=1.0)
    x, positions, cos, sin = (call.x(i) for i in range(4))
    part, heads = call.attr("rotary_embedding_dim", 0), call.attr("num_heads", 0)
    three = x.ndim == 3
    if three:
        depth: Any = x.shape[-1] // heads if heads else 2 * cos.shape[-1]
        x = heads_of(x, x.shape[-1] // depth)
    if positions.ndim == 1:
        steps = ops.arange(x.shape[2], dtype="int64")
        positions = ops.broadcast_to((positions + steps)[None], (x.shape[0], x.shape[2]))
    interleaved = call.attr("interleaved", 0)
    cos, sin = ops.take(cos, positions), ops.take(sin, positions)
    y = rotate(x, cos, sin, interleaved=interleaved, part=part)
    return flat(y) if three else y


_MASKED: Final = "mask_filter_value num_heads scale unidirectional"
_PAST: Final = f"do_rotary past_present_share_buffer {_MASKED}"

RULES: Final[dict[str, Rule]] = {
    "Attention": limited(_self_attention, 6, f"{_PAST} qkv_hidden_sizes rotary_embedding_dim", 2),
    "MultiHeadAttention": limited(_multi_head, 8, _MASKED, 4),
    "QAttention": limited(_quantized_attention, 9, _PAST, 2),
    "RotaryEmbedding": limited(
        _rotary, 4, "interleaved is_packed_batching num_heads rotary_embedding_dim scale"
    ),
}
