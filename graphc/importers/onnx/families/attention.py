"""Attention and rotary embeddings."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Call, Rule
from graphc.ir.node import Tensor


def _rotary(call: Call) -> Any:
    """Pairs of features are rotated by angles that depend on the position."""
    x, cos, sin = (call.x(i) for i in range(3))
    heads, part = call.attr("num_heads", 0), call.attr("rotary_embedding_dim", 0)
    flat = x.ndim == 3
    if flat:
        batch, time, features = x.shape
        x = ops.transpose(ops.reshape(x, (batch, time, heads, features // heads)), (0, 2, 1, 3))
    size: Any = part or x.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    if call.has(3):
        positions = call.x(3)
        cos, sin = ops.take(cos, positions), ops.take(sin, positions)
    cos, sin = (ops.expand_dims(t[..., : size // 2], 1) for t in (cos, sin))
    if call.attr("interleaved", 0):
        a, b = turned[..., ::2], turned[..., 1::2]
    else:
        a, b = turned[..., : size // 2], turned[..., size // 2 :]
    real, imaginary = a * cos - b * sin, a * sin + b * cos
    if call.attr("interleaved", 0):
        pairs = ops.stack([real, imaginary], axis=-1)
        out = ops.reshape(pairs, turned.shape)
    else:
        out = ops.concatenate([real, imaginary], axis=-1)
    if part and part != x.shape[-1]:
        out = ops.concatenate([out, rest], axis=-1)
    if not flat:
        return out
    batch, count, time, features = out.shape
    return ops.reshape(ops.transpose(out, (0, 2, 1, 3)), (batch, time, count * features))


def heads_first(x: Tensor, heads: int) -> Any:
    """[batch, time, heads * size] as [batch, heads, time, size]."""
    batch, time, features = x.shape
    return ops.transpose(ops.reshape(x, (batch, time, heads, features // heads)), (0, 2, 1, 3))


RULES: Final[dict[str, Rule]] = {"RotaryEmbedding": _rotary}
