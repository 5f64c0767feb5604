"""Images: resizing, cropping, colours, boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import nn, ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.values import Value
from graphc.ir.node import Tensor

FAMILY = Family()
FAMILY.plain(
    {
        "AdjustHue": nn.adjust_hue, "AdjustSaturation": nn.adjust_saturation,
        "HSVToRGB": nn.hsv_to_rgb, "RGBToHSV": nn.rgb_to_hsv,
    }
)  # fmt: skip
_LARGEST = 1 << 24  # elements of a matrix of weights, which is computed at import


def _sizes(call: Call, x: Tensor, sizes: Any) -> list[tuple[int, int]]:
    old = x.shape[1:3]
    if not all(isinstance(d, int) for d in old):
        call.refuse("needs images of a known size")
    pairs = [(int(a), int(b)) for a, b in zip(old, sizes.reshape(-1), strict=True)]  # type: ignore[arg-type]
    if any(not 0 < a * b <= _LARGEST or b < 0 for a, b in pairs):
        call.refuse(f"makes images of the sizes {[b for _, b in pairs]}")
    return pairs


def _places(call: Call, old: int, new: int) -> Any:
    """The place in the old image of each row or column of the new one."""
    aligned, half = call.attr("align_corners", False), call.attr("half_pixel_centers", False)
    scale = (old - 1) / (new - 1) if aligned and new > 1 else old / new
    index = np.arange(new, dtype=np.float64)
    return (index + 0.5) * scale - 0.5 if half else index * scale


def _linear(call: Call, old: int, new: int) -> Any:
    places = np.clip(_places(call, old, new), 0, old - 1)
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, old - 1)
    weights = np.zeros((new, old))
    np.add.at(weights, (np.arange(new), low), 1 - (places - low))
    np.add.at(weights, (np.arange(new), high), places - low)
    return weights


def _cubic(call: Call, old: int, new: int) -> Any:
    """Keys' cubic; a = -1/2 with half pixels, -3/4 otherwise, as in TensorFlow."""
    half = call.attr("half_pixel_centers", False)
    a = -0.5 if half else -0.75
    places = _places(call, old, new)
    weights = np.zeros((new, old))
    low = np.floor(places)
    first = low.astype(np.int64) - 1
    fraction = np.rint((places - low) * 1024) / 1024  # TensorFlow's table has 1024 steps
    for tap in range(4):
        index = first + tap
        d = np.abs(fraction + 1 - tap)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        value = np.where(d <= 1, near, far)
        if half:
            value = np.where((index < 0) | (index >= old), 0, value)
        np.add.at(weights, (np.arange(new), np.clip(index, 0, old - 1)), value)
    return weights / weights.sum(1, keepdims=True) if half else weights


@FAMILY.rule("ResizeBilinear", "ResizeBicubic", kinds="ts")
def resize(call: Call, x: Tensor, sizes: Any) -> Tensor:
    function = _linear if call.node.op == "ResizeBilinear" else _cubic
    y = ops.cast(x, "float32")
    for axis, (old, new) in enumerate(_sizes(call, x, sizes), start=1):
        if old != new or call.attr("align_corners", False):
            weights = ops.constant(function(call, old, new).astype(np.float32))
            y = ops.moveaxis(ops.tensordot(weights, y, ((1,), (axis,))), 0, axis)
    return y


@FAMILY.rule("ResizeNearestNeighbor", kinds="ts")
def resize_nearest(call: Call, x: Tensor, sizes: Any) -> Tensor:
    for axis, (old, new) in enumerate(_sizes(call, x, sizes), start=1):
        places = _places(call, old, new)
        if call.attr("half_pixel_centers", False):
            places = np.floor(places + 0.5)
        elif call.attr("align_corners", False):
            places = np.floor(places.astype(np.float32) + 0.5)
        else:
            places = np.floor(places.astype(np.float32))
        index = np.clip(places, 0, old - 1).astype(np.int32)
        x = ops.take(x, ops.constant(index), axis)
    return x


@FAMILY.rule("ResizeArea", kinds="ts")
def resize_area(call: Call, x: Tensor, sizes: Any) -> Tensor:
    y = ops.cast(x, "float32")
    for axis, (old, new) in enumerate(_sizes(call, x, sizes), start=1):
        scale = (old - 1) / (new - 1) if call.attr("align_corners") and new > 1 else old / new
        start = np.arange(new)[:, None] * scale
        cells = np.arange(old)[None, :]
        overlap = np.minimum(start + scale, cells + 1) - np.maximum(start, cells)
        weights = np.maximum(overlap, 0)
        weights = ops.constant((weights / weights.sum(1, keepdims=True)).astype(np.float32))
        y = ops.moveaxis(ops.tensordot(weights, y, ((1,), (axis,))), 0, axis)
    return y


@FAMILY.rule("CropAndResize", kinds="ttts")
def crop_and_resize(call: Call, x: Tensor, boxes: Tensor, images: Tensor, size: Any) -> Tensor:
    height, width = (int(s) for s in size.reshape(-1))
    method, fill = call.text("method", "bilinear"), call.attr("extrapolation_value", 0.0)
    return nn.crop_and_resize(ops.cast(x, "float32"), boxes, images, (height, width), method, fill)


@FAMILY.rule("NonMaxSuppressionV4", kinds="ttnvv", outputs=("selected_indices", "valid_outputs"))
def suppression_padded(
    call: Call, boxes: Tensor, scores: Tensor, size: int, overlap: Value, threshold: Value
) -> list[Tensor]:
    """With a result of a fixed size; the indices after the chosen ones are 0."""
    if not call.attr("pad_to_max_output_size", False):
        call.refuse("has a result of a size that is known only in a run")
    limits = [float(call.static(v, "a limit").reshape(())) for v in (overlap, threshold)]
    places, count = nn.non_max_suppression(boxes, scores, size, *limits)
    return [ops.maximum(places, 0), count]


@FAMILY.rule("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", kinds="ssnss")
def suppression(
    call: Call, boxes: Any, scores: Any, size: int, overlap: Any = None, threshold: Any = None
) -> Value:
    """The size of the result depends on the values, so these must be known at import."""
    limit = call.attr("iou_threshold", 0.5) if overlap is None else float(overlap)
    least = -np.inf if threshold is None else float(threshold)
    corners = np.sort(boxes.reshape(-1, 2, 2), 1)
    chosen: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if len(chosen) == size or scores[i] <= least:
            break
        if all(_overlap(corners[i], corners[j]) <= limit for j in chosen):
            chosen.append(int(i))
    return np.array(chosen, np.int32)


def _overlap(a: Any, b: Any) -> float:
    sides = np.maximum(np.minimum(a[1], b[1]) - np.maximum(a[0], b[0]), 0)
    inside = float(np.prod(sides))
    area = float(np.prod(a[1] - a[0]) + np.prod(b[1] - b[0]))
    return inside / (area - inside) if area > inside else 0.0


@FAMILY.rule("AdjustContrastv2")
def contrast(call: Call, x: Tensor, factor: Tensor) -> Tensor:
    mean = ops.mean(x, (-3, -2), keepdims=True)
    return (x - mean) * ops.cast(factor, x.dtype) + mean
