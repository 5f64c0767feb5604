"""Pooling."""

from __future__ import annotations

import math
from typing import Any, Final

import jax
from jax import numpy as jnp

from graphc import ops
from graphc.importers.core.channels_first import avg_pool_first, max_pool_first, max_pool_places
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.convolutions import padded_first, windows
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.jaxpr.function import from_jax
from graphc.ops.core.precision import lowest


def _windows(call: Call, x: Tensor) -> dict[str, Any]:
    window = call.attr("kernel_shape")
    how = windows(call, x, window)
    ceil = bool(call.attr("ceil_mode", 0))
    if ceil and not all(isinstance(size, int) for size in x.shape[2:]):
        each = (how["strides"], how["pads"], how["dilation"])
        rows = zip(x.shape[2:], window, *each, strict=True)
        how["pads"], ceil = [_to_the_end(*row) for row in rows], False
    return {"window": window, **how, "ceil": ceil}


def _to_the_end(size: Dim, k: int, s: int, pads: tuple[Any, Any], d: int) -> tuple[Any, Any]:
    """The padding with which the last window of `ceil_mode` is complete."""
    (low, high), span = pads, d * (k - 1) + 1
    if isinstance(high, int) and span < high + s:  # a last window may begin behind the input
        raise Refused("with ceil_mode, and windows within the padding, needs known sizes of images")
    rest = size + low + high - span
    return low, high + (rest + s - 1) // s * s - rest


def _max_pool(call: Call) -> Any:
    x = call.x()
    how = _windows(call, x)
    if not call.wants(1):
        x, how["pads"] = padded_first(x, how["pads"], lowest(x.dtype))
        if x.dtype.kind not in "iu":
            return max_pool_first(x, **how)
        if x.dtype.itemsize <= 2:  # float32 has all these numbers
            return ops.cast(max_pool_first(ops.cast(x, "float32"), **how), x.dtype)
        return max_pool_places(x, **how)[0]
    _area(x)
    values, places = max_pool_places(x, **how)
    if call.attr("storage_order", 0):
        places = _by_columns(places, x.shape[2:])
    images = ops.reshape(
        ops.arange(x.shape[0] * x.shape[1], dtype="int64"), (*x.shape[:2], *(1,) * (x.ndim - 2))
    )
    return values, places + images * _area(x)


def _area(x: Tensor) -> int:
    area = 1
    for size in x.shape[2:]:
        if not isinstance(size, int):
            raise Refused("with indices needs known sizes of images")
        area *= size
    return area


def _by_columns(places: Tensor, sizes: Any) -> Any:
    """Places in images stored by columns."""
    coordinates = ops.unravel_index(places, tuple(sizes))
    return ops.cast(ops.ravel_multi_index(tuple(coordinates)[::-1], tuple(sizes)[::-1]), "int64")


def _average_pool(call: Call) -> Any:
    x = call.x()
    how, count_pads = _windows(call, x), bool(call.attr("count_include_pad", 0))
    known = all(isinstance(n, int) for pair in how["pads"] for n in pair)
    if not known and (call.attr("ceil_mode", 0) or not count_pads):
        raise Refused("with padding that depends on sizes needs known sizes of images")
    x, how["pads"] = padded_first(x, how["pads"])
    return avg_pool_first(x, **how, count_pads=count_pads)


def _lp_pool(call: Call) -> Any:
    x, p = call.x(), call.attr("p", 2)
    how = _windows(call, x)
    if not all(isinstance(n, int) for pair in how["pads"] for n in pair):
        raise Refused("with padding that depends on sizes needs known sizes of images")
    mean = avg_pool_first(ops.power(ops.abs(x), p), **{**how, "ceil": False}, count_pads=True)
    if how["ceil"]:
        raise Refused("with ceil_mode is not supported")
    return ops.power(mean * math.prod(how["window"]), 1.0 / p)


def _global(function: Any) -> Rule:
    def rule(call: Call) -> Any:
        x = call.x()
        return function(x, axis=tuple(range(2, x.ndim)), keepdims=True)

    return rule


def _global_lp(call: Call) -> Any:
    x, p = call.x(), call.attr("p", 2)
    total = ops.reduce_sum(ops.power(ops.abs(x), p), axis=tuple(range(2, x.ndim)), keepdims=True)
    return ops.power(total, 1.0 / p)


def _max_unpool(call: Call) -> Any:
    x, places = call.x(0), call.x(1)
    window = call.attr("kernel_shape")
    rank = len(window)
    strides, pads = call.attr("strides") or [1] * rank, call.attr("pads") or [0] * (2 * rank)
    natural = [
        (size - 1) * s + k - pads[i] - pads[rank + i]
        for i, (size, s, k) in enumerate(zip(x.shape[2:], strides, window, strict=True))
    ]
    wanted = [int(d) for d in call.need(2, "the shape of the result")] if call.has(2) else None

    def unpool(x: Any, places: Any) -> Any:
        # The places count elements of the natural size, over all images.
        total = 1
        for size in (*x.shape[:2], *natural):
            total *= size
        flat = jnp.zeros((total,), x.dtype).at[places.reshape(-1)].set(x.reshape(-1))
        image = flat.reshape(*x.shape[:2], *natural)
        if wanted is None:
            return image
        return jnp.zeros(wanted, x.dtype).at[tuple(slice(0, n) for n in image.shape)].set(image)

    return from_jax(unpool, name=call.op)(x, places)


def _max_roi_pool(call: Call) -> Any:
    x, rois = call.x(0), call.x(1)
    rows, columns = call.attr("pooled_shape")
    scale = call.attr("spatial_scale", 1.0)

    def pool(x: Any, rois: Any) -> Any:
        height, width = x.shape[2:]

        def one(roi: Any) -> Any:
            image = x[roi[0].astype(int)]
            left, top, right, bottom = jnp.round(roi[1:] * scale)
            high, wide = jnp.maximum(bottom - top + 1, 1), jnp.maximum(right - left + 1, 1)

            def bounds(start: Any, size: Any, parts: int, limit: int) -> Any:
                i = jnp.arange(parts)
                low = jnp.clip(jnp.floor(i * size / parts) + start, 0, limit)
                up = jnp.clip(jnp.ceil((i + 1) * size / parts) + start, 0, limit)
                where = jnp.arange(limit)
                return (where >= low[:, None]) & (where < up[:, None])

            inside = (
                bounds(top, high, rows, height)[:, None, :, None]
                & bounds(left, wide, columns, width)[None, :, None, :]
            )
            found = jnp.where(inside, image[:, None, None], -jnp.inf).max((-2, -1))
            return jnp.where(jnp.isinf(found), 0, found)

        return jax.vmap(one)(rois)

    return from_jax(pool, name=call.op)(x, rois)


RULES: Final[dict[str, Rule]] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global(ops.reduce_mean),
    "GlobalLpPool": _global_lp,
    "GlobalMaxPool": _global(ops.reduce_max),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxRoiPool": _max_roi_pool,
    "MaxUnpool": _max_unpool,
}
