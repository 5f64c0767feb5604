"""The arithmetic of `Resize`: for each axis, a matrix from old to new elements, made by NumPy.

Source: the operator's specification and its reference implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.core.grids import cubic_shares
from graphc.importers.onnx.call import Call, Refused
from graphc.ir.dtypes import Array


def resized_axes(call: Call, rank: int) -> list[int]:
    """The axes that a node resizes, counted from the front."""
    axes = call.attr("axes") or range(rank)
    if not all(-rank <= axis < rank for axis in axes):
        raise Refused(f"has axes = {list(axes)}, but its input has {rank} axes")
    return [axis % rank for axis in axes]


def for_each(axes: Sequence[int], items: Any, what: str) -> list[tuple[int, Any]]:
    """The axes with an item for each."""
    if len(axes) != len(items):
        raise Refused(f"has {len(items)} {what} for {len(axes)} axes")
    return list(zip(axes, items, strict=True))


@dataclass(frozen=True)
class Resizing:
    """How a tensor is resized.

    Attributes:
        old, new: the sizes of all axes.
        scales: new / old as the model says it, for all axes.
        axes: the axes that are resized.
        roi: (start, end) of each axis in parts of its size, for "tf_crop_and_resize".
    """

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude: bool
    antialias: bool
    extrapolation: float
    old: Sequence[int]
    new: Sequence[int]
    scales: Sequence[float]
    axes: Sequence[int]
    roi: Sequence[tuple[float, float]]

    @staticmethod
    def of(call: Call, old: Sequence[int]) -> Resizing:
        """As the inputs and attributes of a node say."""
        rank = len(old)
        axes = resized_axes(call, rank)
        scales, new, roi = [1.0] * rank, list(old), [(0.0, 1.0)] * rank
        version = call.version
        if call.op == "Upsample" and version < 9:
            given: Any = np.array(call.attr("scales"))
            sizes = None
        else:
            place = 1 if call.op == "Upsample" or version < 11 else 2
            given = call.need(place, "the scales") if call.has(place) else None
            sizes = call.need(3, "the sizes") if call.has(3) else None
        if given is not None and given.size:
            for axis, scale in for_each(axes, given.reshape(-1), "scales"):
                scales[axis] = float(scale)
                new[axis] = int(np.floor(old[axis] * float(scale)))
        elif sizes is not None:
            _by_sizes(call, axes, [int(s) for s in sizes.reshape(-1)], old, new, scales)
        else:
            raise Refused("has neither scales nor sizes")
        coordinates = call.attr("coordinate_transformation_mode", "half_pixel")
        nearest = call.attr("nearest_mode", "round_prefer_floor")
        if call.op == "Upsample" or version < 11:
            coordinates, nearest = "asymmetric", "floor"
        if coordinates == "tf_crop_and_resize":
            flat = call.need(1, "the region").reshape(2, -1)
            for i, axis in enumerate(axes):
                roi[axis] = (float(flat[0, i]), float(flat[1, i]))
        return Resizing(
            mode={"bilinear": "linear", "bicubic": "cubic"}.get(
                m := call.attr("mode", "nearest"), m
            ),
            coordinates=coordinates,
            nearest=nearest,
            cubic=call.attr("cubic_coeff_a", -0.75),
            exclude=bool(call.attr("exclude_outside", 0)),
            antialias=bool(call.attr("antialias", 0)),
            extrapolation=call.attr("extrapolation_value", 0.0),
            old=old,
            new=new,
            scales=scales,
            axes=axes,
            roi=roi,
        )

    def is_unchanged(self, axis: int) -> bool:
        """Whether the axis stays as it is."""
        same = self.old[axis] == self.new[axis] and self.scales[axis] == 1.0
        return same and self.coordinates != "tf_crop_and_resize"

    def origin(self, axis: int, i: int) -> float:
        """The old position of a new element."""
        old, new, scale = self.old[axis], self.new[axis], self.scales[axis]
        match self.coordinates:
            case "align_corners":
                width = scale * old  # which may have a fraction
                return 0.0 if width == 1 else i * (old - 1) / (width - 1)
            case "asymmetric":
                return i / scale
            case "tf_half_pixel_for_nn":
                return (i + 0.5) / scale
            case "pytorch_half_pixel":
                return -0.5 if new == 1 else (i + 0.5) / scale - 0.5
            case "half_pixel_symmetric":
                adjusted = new / (scale * old)
                return old / 2 * (1 - adjusted) + (i + 0.5) / scale - 0.5
            case "tf_crop_and_resize":
                start, end = self.roi[axis]
                if new == 1:
                    return (end + start) * (old - 1) / 2
                return start * (old - 1) + i * (end - start) * (old - 1) / (new - 1)
        return (i + 0.5) / scale - 0.5

    def places(self, axis: int) -> Array:
        """For each new element, the old one that is nearest."""
        rounding: dict[str, Callable[[float], float]] = {
            "round_prefer_floor": lambda v: np.ceil(v - 0.5),
            "round_prefer_ceil": lambda v: np.floor(v + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        found = [rounding[self.nearest](self.origin(axis, i)) for i in range(self.new[axis])]
        return np.clip(np.array(found, np.int64), 0, self.old[axis] - 1)

    def matrix(self, axis: int) -> Array:
        """[new elements, old elements]: the share of each."""
        old = self.old[axis]
        found = np.zeros((self.new[axis], old))
        for i in range(self.new[axis]):
            place = self.origin(axis, i)
            floor = int(np.floor(place))
            part = 1.0 if float(place).is_integer() else place - floor
            shares = np.array(self._shares(part, self.scales[axis]))
            where = _neighbours(place, len(shares), old)
            if self.exclude:
                shares = np.where((where < 0) | (where >= old), 0.0, shares)
                shares = shares / shares.sum()
            np.add.at(found[i], np.clip(where, 0, old - 1), shares)
        return found

    def _shares(self, part: float, scale: float) -> Any:
        small = min(scale, 1.0) if self.antialias else 1.0
        if self.mode == "linear":
            if not self.antialias:
                return [1 - part, part]
            start = int(np.floor(-1 / small) + 1)
            away = np.abs((np.arange(start, 2 - start) - part) * small)
            shares: Any = np.clip(1 - away, 0, 1)
        elif not self.antialias:
            return cubic_shares(np.abs(np.arange(-1, 3) - part), self.cubic)
        else:
            start = int(np.floor(-2 / small) + 1)
            away = np.abs((np.arange(start, 2 - start) - part) * small)
            shares = cubic_shares(away, self.cubic)
        return shares / shares.sum()

    def extrapolated(self, x: Any) -> Any:
        """The result with the extrapolation value at positions outside of the input."""
        if self.coordinates != "tf_crop_and_resize":
            return x
        for axis in self.axes:
            places = np.array([self.origin(axis, i) for i in range(self.new[axis])])
            outside = (places < 0) | (places > self.old[axis] - 1)
            if outside.any():
                shape = [-1 if i == axis else 1 for i in range(x.ndim)]
                x = ops.where(outside.reshape(shape), ops.cast(self.extrapolation, x.dtype), x)
        return x


def _neighbours(place: float, count: int, size: int) -> Array:
    """The `count` nearest elements of an axis that goes on beyond its ends."""
    width = int(np.ceil(count / 2))
    padded = np.arange(size + 2 * width)
    order = np.lexsort((padded, np.abs(padded - (place + width))))[:count]
    return np.sort(order) - width


def _by_sizes(
    call: Call,
    axes: Sequence[int],
    sizes: Sequence[int],
    old: Sequence[int],
    new: list[int],
    scales: list[float],
) -> None:
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    wanted = for_each(axes, sizes, "sizes")
    if policy == "stretch":
        for axis, size in wanted:
            new[axis], scales[axis] = size, size / old[axis]
        return
    choose = min if policy == "not_larger" else max
    scale = choose(size / old[axis] for axis, size in wanted)
    for axis in axes:
        new[axis] = int(np.floor(scale * old[axis] + 0.5))
        scales[axis] = scale
