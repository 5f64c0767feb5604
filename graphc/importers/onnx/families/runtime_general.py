"""Operators of ONNX Runtime that the standard has too, and regions of images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import jax
import numpy as np
from jax import numpy as jnp

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.convolutions import bilinear
from graphc.importers.onnx.families.images import RULES as IMAGES
from graphc.importers.onnx.families.indexing import RULES as INDEXING
from graphc.importers.onnx.families.quantized import RULES as QUANTIZED
from graphc.importers.onnx.families.shapes import RULES as SHAPES
from graphc.importers.onnx.limits import as_standard, limited
from graphc.importers.onnx.values import is_known
from graphc.jaxpr.function import from_jax
from graphc.ops import linalg


def _same(rule: Rule, version: int) -> Rule:
    """As the operator of this version of the standard."""
    return lambda call: as_standard(call, rule, version)


def _pad(call: Call) -> Any:
    """The numbers of added elements may have an axis of size 1 before their own."""
    inputs = list(call.inputs)
    inputs[1] = call.need(1, "the numbers of added elements").reshape(-1)
    return as_standard(replace(call, inputs=inputs), SHAPES["Pad"], 13)


def _range(call: Call) -> Any:
    """The step may be left out."""
    inputs = list(call.inputs)
    if not call.has(2):
        inputs = [*inputs[:2], np.array(1, np.int64)]
    return as_standard(replace(call, inputs=inputs), SHAPES["Range"], 11)


def _expand_dims(call: Call) -> Any:
    axis = int(call.need(1, "the axis").reshape(-1)[0])
    value = call.inputs[0]
    return np.expand_dims(value, axis) if is_known(value) else ops.expand_dims(call.x(), axis)


def _distances(call: Call) -> Any:
    """Between all rows of two matrices."""
    metric = call.attr("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise Refused(f"with the metric {metric!r} is not supported")
    apart = ops.expand_dims(call.x(0), 1) - ops.expand_dims(call.x(1), 0)
    squares = ops.reduce_sum(ops.square(apart), axis=-1)
    return ops.sqrt(squares) if metric == "euclidean" else squares


def _crop_and_resize(call: Call) -> Any:
    """Regions of images, resized so that corners fall on corners."""
    rows, columns = (int(n) for n in call.need(3, "the size of the crops").reshape(-1))
    mode, outside = call.attr("mode", "bilinear"), call.attr("extrapolation_value", 0.0)
    if mode not in ("bilinear", "nearest"):
        raise Refused(f"with the mode {mode!r} is not supported")

    def places(low: Any, high: Any, count: int, size: int) -> Any:
        if count == 1:
            return (0.5 * (low + high) * (size - 1))[None]
        return low * (size - 1) + jnp.arange(count) * (high - low) * (size - 1) / (count - 1)

    def crop(x: Any, regions: Any, batches: Any) -> Any:
        height, width = x.shape[2:]

        def one(region: Any, batch: Any) -> Any:
            y = places(region[0], region[2], rows, height)
            z = places(region[1], region[3], columns, width)
            inside = ((y >= 0) & (y <= height - 1))[:, None] & ((z >= 0) & (z <= width - 1))
            if mode == "nearest":  # halves are rounded up
                y, z = jnp.floor(y + 0.5), jnp.floor(z + 0.5)
            ys, zs = jnp.broadcast_arrays(y[:, None], z[None])
            return jnp.where(inside, bilinear(x[batch], ys, zs), outside)

        return jax.vmap(one)(regions, batches)

    return from_jax(crop, name=call.op)(call.x(0), call.x(1), call.x(2))


_GRID: Final = "align_corners mode padding_mode"

RULES: Final[dict[str, Rule]] = {
    "CDist": limited(_distances, 2, "metric"),
    "CropAndResize": limited(_crop_and_resize, 4, "extrapolation_value mode"),
    "DequantizeLinear": limited(_same(QUANTIZED["DequantizeLinear"], 21), 3, "axis block_size"),
    "ExpandDims": limited(_expand_dims, 2),
    "GatherND": limited(_same(INDEXING["GatherND"], 12), 2),
    "GridSample": limited(_same(IMAGES["GridSample"], 16), 2, _GRID),
    "Inverse": limited(lambda call: linalg.inv(call.x()), 1),
    "Pad": limited(_pad, 3, "mode"),
    "QuantizeLinear": limited(_same(QUANTIZED["QuantizeLinear"], 21), 3, "axis block_size"),
    "Range": limited(_range, 3),
    "Trilu": limited(_same(SHAPES["Trilu"], 14), 2, "upper"),
}
