"""Resizing, sampling of grids, regions of interest, suppression."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np
from jax import numpy as jnp

from graphc import ops
from graphc.importers.core.grids import sample
from graphc.importers.onnx.call import Call, Rule
from graphc.importers.onnx.families.reductions import unknown_size
from graphc.importers.onnx.families.resizing import Resizing
from graphc.importers.onnx.families.resizing_named import resize_named
from graphc.jaxpr.function import from_jax


def _resize(call: Call) -> Any:
    x = call.x()
    known = [size for size in x.shape if isinstance(size, int)]
    if len(known) < x.ndim:
        return resize_named(call, x)
    how = Resizing.of(call, known)
    wide = ops.cast(x, "float32") if x.dtype.kind in "iu" else x
    for axis in how.axes:
        if how.is_unchanged(axis):
            continue
        if how.mode == "nearest":
            x = ops.take(x, how.places(axis), axis=axis)
        else:
            matrix = how.matrix(axis).astype(wide.dtype)
            moved = ops.matmul(ops.moveaxis(wide, axis, -1), matrix.T)
            wide = ops.moveaxis(moved, -1, axis)
    if how.mode == "nearest":
        return how.extrapolated(x)
    return (
        ops.cast(how.extrapolated(wide), x.dtype)
        if x.dtype != wide.dtype
        else how.extrapolated(wide)
    )


# -- grids -----------------------------------------------------------------------------------


def _grid_sample(call: Call) -> Any:
    named = call.attr("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(named, named)
    padding, corners = call.attr("padding_mode", "zeros"), bool(call.attr("align_corners", 0))

    def function(x: Any, grid: Any) -> Any:
        return sample(x, grid, mode, padding, corners)

    return from_jax(function, name=call.op)(call.x(0), call.x(1))


# -- regions ---------------------------------------------------------------------------------


def _roi_align(call: Call) -> Any:
    rows, columns = call.attr("output_height", 1), call.attr("output_width", 1)
    ratio, scale = call.attr("sampling_ratio", 0), call.attr("spatial_scale", 1.0)
    kind = call.attr("mode", "avg")
    default = "output_half_pixel" if call.version < 16 else "half_pixel"
    offset = 0.5 if call.attr("coordinate_transformation_mode", default) == "half_pixel" else 0.0
    if ratio <= 0:
        rois = call.need(1, "the regions, unless sampling_ratio is given")
        spans = (rois[:, 2:] - rois[:, :2]) * scale
        return _by_region(call, spans, (rows, columns), scale, offset, kind)

    def align(x: Any, rois: Any, batches: Any) -> Any:
        def one(roi: Any, batch: Any) -> Any:
            return _aligned(x[batch], roi, (rows, columns), (ratio, ratio), scale, offset, kind)

        return jax.vmap(one)(rois, batches)

    return from_jax(align, name=call.op)(call.x(0), call.x(1), call.x(2))


def _by_region(
    call: Call, spans: Any, out: tuple[int, int], scale: float, offset: float, kind: str
) -> Any:
    """Each region has its own number of samples, which depends on its size."""
    counts = [
        tuple(
            int(np.ceil(max(span, 1.0 if offset == 0 else 0.0) / n))
            for span, n in zip(pair[::-1], out, strict=True)
        )
        for pair in spans
    ]

    def align(x: Any, rois: Any, batches: Any) -> Any:
        rows = [
            _aligned(x[batches[i]], rois[i], out, (max(ny, 1), max(nx, 1)), scale, offset, kind)
            for i, (ny, nx) in enumerate(counts)
        ]
        return jnp.stack(rows)

    return from_jax(align, name=call.op)(call.x(0), call.x(1), call.x(2))


def _aligned(
    image: Any, roi: Any, out: Any, samples: Any, scale: float, offset: float, kind: str
) -> Any:
    left, top, right, bottom = roi * scale - offset
    high, wide = bottom - top, right - left
    if offset == 0:
        high, wide = jnp.maximum(high, 1), jnp.maximum(wide, 1)

    def places(start: Any, size: Any, parts: int, count: int) -> Any:
        cell = size / parts
        steps = jnp.arange(parts)[:, None] * cell + (jnp.arange(count) + 0.5) * cell / count
        return start + steps

    ys, xs = places(top, high, out[0], samples[0]), places(left, wide, out[1], samples[1])
    height, width = image.shape[1:]

    def clamped(v: Any, size: int) -> tuple[Any, Any, Any, Any, Any]:
        outside = (v < -1) | (v > size)
        v = jnp.maximum(v, 0)
        low = jnp.minimum(jnp.floor(v), size - 1)
        up = jnp.minimum(low + 1, size - 1)
        v = jnp.where(low >= size - 1, low, v)
        return low.astype(int), up.astype(int), v - low, 1 - (v - low), ~outside

    y0, y1, ly, hy, iny = clamped(ys, height)
    x0, x1, lx, hx, inx = clamped(xs, width)

    def parts(y: Any, x: Any, wy: Any, wx: Any) -> Any:
        return image[:, y[:, :, None, None], x[None, None]] * (
            wy[:, :, None, None] * wx[None, None] * (iny[:, :, None, None] & inx[None, None])
        )

    terms = [
        parts(y0, x0, hy, hx),
        parts(y0, x1, hy, lx),
        parts(y1, x0, ly, hx),
        parts(y1, x1, ly, lx),
    ]
    if kind == "max":
        return jnp.maximum(jnp.maximum(terms[0], terms[1]), jnp.maximum(terms[2], terms[3])).max(
            (2, 4)
        )
    return sum(terms[1:], terms[0]).mean((2, 4))


RULES: Final[dict[str, Rule]] = {
    "GridSample": _grid_sample,
    "NonMaxSuppression": unknown_size,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Upsample": _resize,
}
