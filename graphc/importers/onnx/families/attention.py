"""Attention and rotary embeddings."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Call, Rule
from graphc.ir.node import Tensor


def rotate(x: Tensor, cos: Any, sin: Any, *, interleaved: int = 0, part: int = 0) -> Any:
    """Pairs of features, rotated by angles that depend on the position.

    Args:
        x: [batch, heads, time, depth].
        cos: of the angles, [batch, time, pairs]; more pairs than there are do not matter.
        sin: of the angles.
        interleaved: whether the features of a pair are beside each other, and not half of the
            features apart.
        part: how many features are rotated; 0 for all.
    """
    size: Any = part or x.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    cos, sin = (ops.expand_dims(t[..., : size // 2], 1) for t in (cos, sin))
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
    else:
        a, b = turned[..., : size // 2], turned[..., size // 2 :]
    real, imaginary = a * cos - b * sin, a * sin + b * cos
    if interleaved:
        out = ops.reshape(ops.stack([real, imaginary], axis=-1), turned.shape)
    else:
        out = ops.concatenate([real, imaginary], axis=-1)
    return ops.concatenate([out, rest], axis=-1) if part and part != x.shape[-1] else out


def heads_of(x: Tensor, heads: int) -> Any:
    """[batch, time, features] as [batch, heads, time, depth]."""
    batch, time, features = x.shape
    return ops.transpose(ops.reshape(x, (batch, time, heads, features // heads)), (0, 2, 1, 3))


def flat(x: Tensor) -> Any:
    """[batch, heads, time, depth] as [batch, time, features]."""
    batch, heads, time, depth = x.shape
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch, time, heads * depth))


def _rotary(call: Call) -> Any:
    x, cos, sin = (call.x(i) for i in range(3))
    is_flat = x.ndim == 3
    if is_flat:
        x = heads_of(x, call.attr("num_heads", 0))
    if call.has(3):
        positions = call.x(3)
        cos, sin = ops.take(cos, positions), ops.take(sin, positions)
    interleaved, part = call.attr("interleaved", 0), call.attr("rotary_embedding_dim", 0)
    out = rotate(x, cos, sin, interleaved=interleaved, part=part)
    return flat(out) if is_flat else out


RULES: Final[dict[str, Rule]] = {"RotaryEmbedding": _rotary}
