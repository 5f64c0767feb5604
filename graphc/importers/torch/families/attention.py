"""Attention, in the form that the pass `fuse-attention` recognises."""

from __future__ import annotations

import math
from typing import Any, Final

from graphc import ops
from graphc.importers.torch.call import Call, Refused, Rule
from graphc.importers.torch.families.randoms import dropped


def attend(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(scale * q @ k^T + mask) @ v of [..., time, size]."""
    size = query.shape[-1]
    if scale is None:
        if not isinstance(size, int):
            raise Refused("needs a known size of its heads")
        scale = 1 / math.sqrt(size)
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = (ops.repeat(t, times, axis=t.ndim - 3) for t in (key, value))
    logits = ops.matmul(query, ops.swapaxes(key, -1, -2)) * scale
    lowest = float("-inf")
    if causal:
        rows, columns = query.shape[-2], key.shape[-2]
        seen = ops.expand_dims(ops.arange(rows, dtype="int32"), 1) >= ops.arange(
            columns, dtype="int32"
        )
        logits = ops.where(seen, logits, call.tensor(lowest, logits.dtype))
    seeing = None
    if mask is not None:
        mask, seeing = _seen(mask)
        if mask.dtype.kind == "b":
            logits = ops.where(mask, logits, call.tensor(lowest, logits.dtype))
        else:
            logits = logits + ops.cast(mask, logits.dtype)
    wide = ops.cast(logits, "float32") if logits.dtype.itemsize < 4 else logits
    weights = ops.cast(ops.softmax(wide, axis=-1), value.dtype)
    if dropout:
        weights = dropped(weights, dropout)
    found = ops.matmul(weights, value)
    return found if seeing is None else ops.where(seeing, found, ops.zeros_like(found))


def _seen(mask: Any) -> tuple[Any, Any]:
    """A mask that hides no whole row, and which rows [..., 1] it did not hide: PyTorch gives zeros
    for a query that sees no key, where softmax gives NaN."""
    shown = mask if mask.dtype.kind == "b" else ops.greater(mask, float("-inf"))
    seeing = ops.reduce_any(shown, axis=-1, keepdims=True)
    return ops.where(seeing, mask, ops.ones_like(mask)), seeing


def _flash(
    call: Call, q: Any, k: Any, v: Any, dropout: float = 0.0, causal: bool = False, **options: Any
) -> Any:
    options.pop("return_debug_mask", None)
    mask = options.pop("attn_mask", None)
    found = attend(call, q, k, v, mask, dropout, causal, scale=options.get("scale"))
    return (found, *[None] * (len(call.dtypes) - 1))


RULES: Final[dict[str, Rule]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash,
    "aten.scaled_dot_product_attention.default": attend,
}
