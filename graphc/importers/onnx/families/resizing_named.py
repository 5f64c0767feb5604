"""`Resize` of images whose sizes have names: positions and shares are computed in the graph.

When the sizes are bound, passes fold them to the constants that `resizing` makes by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from graphc import ops
from graphc.importers.onnx.call import Call, Refused
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ops.core.emit import dim_value

_ROUNDING: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "round_prefer_floor": lambda v: ops.ceil(v - 0.5),
    "round_prefer_ceil": lambda v: ops.floor(v + 0.5),
    "floor": ops.floor,
    "ceil": ops.ceil,
}


class _Axis(NamedTuple):
    """How one axis changes.

    Attributes:
        old, new: its sizes.
        scale: new / old, as the model says it: a number, or a tensor if it follows from sizes.
    """

    old: Dim
    new: Dim
    scale: Any


def resize_named(call: Call, x: Tensor) -> Tensor:
    """The result of a `Resize` or `Upsample` whose input has named sizes.

    Raises:
        Refused: the node needs more than positions on axes that are independent of each other.
    """
    mode = {"bilinear": "linear"}.get(m := call.attr("mode", "nearest"), m)
    old_form = call.op == "Upsample" or call.version < 11
    coordinates = "asymmetric" if old_form else _text(call, "coordinate_transformation_mode")
    if mode not in ("nearest", "linear") or coordinates == "tf_crop_and_resize":
        raise Refused(f"with mode {mode} and {coordinates} needs known sizes of images")
    if call.attr("antialias", 0) or call.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refused("with antialias or a kept aspect ratio needs known sizes of images")
    rounding = "floor" if old_form else _text(call, "nearest_mode")
    wide = ops.cast(x, "float32") if mode == "linear" and x.dtype.kind in "iu" else x
    for place, axis in _axes(call, x).items():
        origins = _origins(axis, coordinates)
        last = dim_value(axis.old) - 1
        if mode == "nearest":
            nearest = ops.cast(_ROUNDING[rounding](origins), "int32")
            wide = ops.take(wide, ops.minimum(ops.maximum(nearest, 0), last), axis=place)
        else:
            shares = ops.cast(_shares(origins, axis.old), wide.dtype)
            moved = ops.matmul(ops.moveaxis(wide, place, -1), ops.transpose(shares))
            wide = ops.moveaxis(moved, -1, place)
    return ops.cast(wide, x.dtype)


def _text(call: Call, name: str) -> str:
    defaults = {
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_floor",
    }
    found: str = call.attr(name, defaults[name])
    return found


def _axes(call: Call, x: Tensor) -> dict[int, _Axis]:
    """The axes that change."""
    axes = [axis % x.ndim for axis in call.attr("axes") or range(x.ndim)]
    place = 1 if call.op == "Upsample" or call.version < 11 else 2
    given: Any = call.need(place, "the scales") if call.has(place) else call.attr("scales")
    found = {}
    if given is not None and len(given):
        for axis, scale in zip(axes, np.asarray(given).reshape(-1), strict=True):
            if scale != 1:
                old = x.shape[axis]
                found[axis] = _Axis(old, _scaled(old, float(scale)), float(scale))
        return found
    if not call.has(3):
        raise Refused("has neither scales nor sizes")
    for axis, new in zip(axes, call.dims(3, "the sizes"), strict=True):
        old = x.shape[axis]
        if old != new:
            scale = ops.cast(dim_value(new), "float32") / ops.cast(dim_value(old), "float32")
            found[axis] = _Axis(old, new, scale)
    return found


def _scaled(old: Dim, scale: float) -> Any:
    """The new size: the whole part of old * scale."""
    if isinstance(old, int):
        return int(np.floor(old * scale))
    whole, parts = round(scale), round(1 / scale)
    if scale == whole:
        return old * whole
    # The scale is rounded to float32: it must not be smaller than 1 / parts.
    if parts > 1 and 0 <= scale * parts - 1 < 1e-6:
        return old // parts
    raise Refused(f"by {scale:g} needs known sizes of images: neither it nor 1/{scale:g} is whole")


def _origins(axis: _Axis, coordinates: str) -> Any:
    """The old position of each new element: float32 [new]."""
    at = ops.cast(ops.arange(axis.new), "float32")
    old, new = (ops.cast(dim_value(size), "float32") for size in (axis.old, axis.new))
    scale = axis.scale
    match coordinates:
        case "align_corners":
            width = scale * old
            return ops.where(ops.equal(width, 1), 0.0, at * (old - 1) / (width - 1))
        case "asymmetric":
            return at / scale
        case "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
        case "pytorch_half_pixel":
            return ops.where(ops.equal(new, 1), -0.5, (at + 0.5) / scale - 0.5)
        case "half_pixel_symmetric":
            adjusted = new / (scale * old)
            return old / 2 * (1 - adjusted) + (at + 0.5) / scale - 0.5
    return (at + 0.5) / scale - 0.5


def _shares(origins: Tensor, old: Dim) -> Tensor:
    """[new, old]: the share of each old element in linear interpolation."""
    last = ops.cast(dim_value(old) - 1, "float32")
    inside = ops.minimum(ops.maximum(origins, 0.0), last)
    away = ops.expand_dims(inside, 1) - ops.cast(ops.arange(old), "float32")
    return ops.maximum(1.0 - ops.abs(away), 0.0)
