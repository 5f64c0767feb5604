"""`Resize` of images whose sizes have names: positions and shares are computed in the graph.

When the sizes are bound, passes fold them to the constants that `resizing` makes by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np

from graphc import ops
from graphc.importers.onnx.call import Call, Refused
from graphc.importers.onnx.families.resizing import for_each, resized_axes
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ops.core.emit import dim_value

# Roundings of the fraction a / b of integers, b > 0; ties are exact.
_ROUNDING: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "round_prefer_floor": lambda a, b: -((b - 2 * a) // (2 * b)),
    "round_prefer_ceil": lambda a, b: (2 * a + b) // (2 * b),
    "floor": lambda a, b: a // b,
    "ceil": lambda a, b: -(-a // b),
}


class _Axis(NamedTuple):
    """How one axis changes.

    Attributes:
        old, new: its sizes.
        scale: new / old, as the model says it: a number, or a tensor if it follows from sizes.
        ratio: the scale as a fraction of sizes.
    """

    old: Dim
    new: Dim
    scale: Any
    ratio: tuple[Dim, Dim]


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
        if mode == "nearest":
            last = dim_value(axis.old) - 1
            nearest = _nearest(axis, coordinates, rounding)
            wide = ops.take(wide, ops.minimum(ops.maximum(nearest, 0), last), axis=place)
        else:
            shares = ops.cast(_shares(_origins(axis, coordinates), axis.old), wide.dtype)
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
    axes = resized_axes(call, x.ndim)
    place = 1 if call.op == "Upsample" or call.version < 11 else 2
    given: Any = call.need(place, "the scales") if call.has(place) else call.attr("scales")
    found = {}
    if given is not None and len(given):
        for axis, scale in for_each(axes, np.asarray(given).reshape(-1), "scales"):
            if scale != 1:
                old = x.shape[axis]
                found[axis] = _scaled(old, float(scale))
        return found
    if not call.has(3):
        raise Refused("has neither scales nor sizes")
    for axis, new in for_each(axes, call.dims(3, "the sizes"), "sizes"):
        old = x.shape[axis]
        if old != new:
            scale = ops.cast(dim_value(new), "float32") / ops.cast(dim_value(old), "float32")
            found[axis] = _Axis(old, new, scale, (new, old))
    return found


def _scaled(old: Dim, scale: float) -> _Axis:
    """The new size is the whole part of old * scale."""
    if scale == round(scale):
        return _Axis(old, old * round(scale), scale, (round(scale), 1))
    parts = round(1 / scale) if scale > 0 else 0
    # The scale is rounded to float32: it must not be smaller than 1 / parts.
    if parts > 1 and 0 <= scale * parts - 1 < 1e-6:
        return _Axis(old, old // parts, scale, (1, parts))
    if isinstance(old, int):
        ratio = Fraction(scale).limit_denominator(1000)
        if abs(ratio - Fraction(scale)) < 1e-6 * ratio:
            new = int(np.floor(old * scale))
            return _Axis(old, new, scale, (ratio.numerator, ratio.denominator))
    raise Refused(f"by {scale:g} needs known sizes of images: neither it nor 1/{scale:g} is whole")


def _nearest(axis: _Axis, coordinates: str, rounding: str) -> Any:
    """The old element that is nearest to each new one: int32 [new]. The positions are fractions,
    since ties decide, and XLA's divisions of floats are not exact."""
    at = ops.arange(axis.new)
    p, q = (dim_value(size) for size in axis.ratio)
    old, new = dim_value(axis.old), dim_value(axis.new)
    fraction: tuple[Any, Any]
    match coordinates:
        case "align_corners":
            fraction = at * (old - 1) * q, ops.maximum(p * old - q, 1)
        case "asymmetric":
            fraction = at * q, p
        case "tf_half_pixel_for_nn":
            fraction = (2 * at + 1) * q, 2 * p
        case "pytorch_half_pixel":
            fraction = ops.where(ops.equal(new, 1), -p, (2 * at + 1) * q - p), 2 * p
        case "half_pixel_symmetric":
            # old / 2 * (1 - new / (scale * old)) more than with "half_pixel"
            fraction = (2 * at + 1) * q - p + p * old - q * new, 2 * p
        case _:
            fraction = (2 * at + 1) * q - p, 2 * p
    return _ROUNDING[rounding](*fraction)


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
