"""Operators of torchvision for detection."""

from __future__ import annotations

from typing import Any, Final

import jax
from jax import numpy as jnp

from graphc.importers.torch.call import Call, Refused, Rule
from graphc.jaxpr.function import from_jax


def _roi_align(
    call: Call, x: Any, rois: Any, scale: float, rows: int, columns: int, ratio: int, aligned: bool
) -> Any:
    """The mean of `ratio` x `ratio` samples of each cell of each region."""
    if ratio <= 0:
        raise Refused("without sampling_ratio takes numbers of samples that depend on values")
    offset = 0.5 if aligned else 0.0

    def places(start: Any, size: Any, parts: int) -> Any:
        cell = size / parts
        return start + jnp.arange(parts)[:, None] * cell + (jnp.arange(ratio) + 0.5) * cell / ratio

    def corners(v: Any, size: int) -> tuple[Any, Any, Any, Any]:
        inside = (v >= -1) & (v <= size)
        v = jnp.maximum(v, 0)
        low = jnp.minimum(jnp.floor(v), size - 1)
        part = jnp.where(low >= size - 1, 0, v - low)
        return low.astype(int), jnp.minimum(low + 1, size - 1).astype(int), part, inside

    def one(x: Any, roi: Any) -> Any:
        image = x[roi[0].astype(int)]
        left, top, right, bottom = roi[1:] * scale - offset
        high, wide = bottom - top, right - left
        if not aligned:
            high, wide = jnp.maximum(high, 1), jnp.maximum(wide, 1)
        y0, y1, py, iny = corners(places(top, high, rows), image.shape[1])
        x0, x1, px, inx = corners(places(left, wide, columns), image.shape[2])
        total: Any = 0
        for ys, wy in ((y0, 1 - py), (y1, py)):
            for xs, wx in ((x0, 1 - px), (x1, px)):
                share = (wy * iny)[:, :, None, None] * (wx * inx)[None, None]
                total = total + image[:, ys[:, :, None, None], xs[None, None]] * share
        return total.mean((2, 4))

    def align(x: Any, rois: Any) -> Any:
        return jax.vmap(one, (None, 0))(x, rois)

    return from_jax(align, name="roi_align")(x, rois)


def _nms(call: Call, boxes: Any, scores: Any, threshold: float) -> Any:
    raise Refused(
        "has a result whose size depends on values; gc.nn.non_max_suppression gives a fixed number "
        "of boxes"
    )


RULES: Final[dict[str, Rule]] = {
    "torchvision.nms.default": _nms,
    "torchvision.roi_align.default": _roi_align,
}
