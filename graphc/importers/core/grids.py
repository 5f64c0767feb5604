"""Values of images at the positions of a grid, in JAX."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp


def sample(x: Any, grid: Any, mode: str, padding: str, corners: bool) -> Any:
    """The values of images [batch, channels, ...] at the positions of `grid`.

    Args:
        grid: [batch, ..., axes], from -1 to 1 over each axis of an image, the last axis first.
        mode: "linear", "nearest" or "cubic".
        padding: outside are zeros ("zeros"), the nearest element ("border"), or a mirror image
            ("reflection").
        corners: whether -1 and 1 are the centres of the outermost elements and not their edges.

    Source: torch.nn.functional.grid_sample.
    """
    sizes = x.shape[2:]
    # The grid has the coordinates in the order x, y, z: that of the axes backwards.
    places = [
        _unnormalized(grid[..., len(sizes) - 1 - i], size, corners) for i, size in enumerate(sizes)
    ]
    one = {"linear": _linear, "nearest": _nearest, "cubic": _cubic}[mode]
    return jax.vmap(lambda image, *at: one(image, at, padding, corners))(x, *places)


def _unnormalized(v: Any, size: int, corners: bool) -> Any:
    return (v + 1) / 2 * (size - 1) if corners else ((v + 1) * size - 1) / 2


def _reflected(v: Any, size: int, corners: bool) -> Any:
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return jnp.zeros_like(v)
    away = jnp.abs(v - low)
    turns = jnp.floor(away / span)
    rest = away - turns * span
    return jnp.where(turns % 2 == 0, rest + low, high - rest)


def _at(image: Any, places: Any, padding: str, corners: bool) -> Any:
    """The values [channels, ...] of an image at whole positions."""
    sizes = image.shape[1:]
    inside: Any = True
    found = []
    for place, size in zip(places, sizes, strict=True):
        if padding == "reflection":
            place = jnp.round(_reflected(place, size, corners))
        if padding == "zeros":
            inside = inside & (place >= 0) & (place <= size - 1)
        found.append(jnp.clip(place, 0, size - 1).astype(int))
    values = image[(slice(None), *found)]
    return values * inside if padding == "zeros" else values


def _bordered(places: Any, sizes: Any, padding: str, corners: bool) -> list[Any]:
    found = []
    for place, size in zip(places, sizes, strict=True):
        if padding == "reflection":
            place = _reflected(place, size, corners)
        if padding in ("border", "reflection"):
            place = jnp.clip(place, 0, size - 1)
        found.append(place)
    return found


def _nearest(image: Any, places: Any, padding: str, corners: bool) -> Any:
    places = _bordered(places, image.shape[1:], padding, corners)
    return _at(image, [jnp.round(p) for p in places], padding, corners)


def _linear(image: Any, places: Any, padding: str, corners: bool) -> Any:
    places = _bordered(places, image.shape[1:], padding, corners)
    floors = [jnp.floor(p) for p in places]
    total: Any = 0
    for corner in itertools.product((0, 1), repeat=len(places)):
        weight: Any = 1
        for place, floor, up in zip(places, floors, corner, strict=True):
            part = place - floor
            weight = weight * (part if up else 1 - part)
        at = [floor + up for floor, up in zip(floors, corner, strict=True)]
        total = total + _at(image, at, padding, corners) * weight
    return total


def _cubic(image: Any, places: Any, padding: str, corners: bool) -> Any:
    floors = [jnp.floor(p) for p in places]
    weights = [_cubic_weights(p - f) for p, f in zip(places, floors, strict=True)]
    total: Any = 0
    for tap in itertools.product(range(4), repeat=len(places)):
        weight: Any = 1
        for own, t in zip(weights, tap, strict=True):
            weight = weight * own[t]
        at = [floor + (t - 1) for floor, t in zip(floors, tap, strict=True)]
        total = total + _at(image, at, padding, corners) * weight
    return total


def cubic_shares(away: np.ndarray[Any, Any], a: float) -> np.ndarray[Any, Any]:
    """Keys' cubic kernel: the shares of elements at these distances from a position."""
    near = (a + 2) * away**3 - (a + 3) * away**2 + 1
    far = a * away**3 - 5 * a * away**2 + 8 * a * away - 4 * a
    return np.where(away <= 1, near, np.where(away < 2, far, 0.0))


def _cubic_weights(t: Any, a: float = -0.75) -> list[Any]:
    def near(v: Any) -> Any:
        return ((a + 2) * v - (a + 3)) * v * v + 1

    def far(v: Any) -> Any:
        return ((a * v - 5 * a) * v + 8 * a) * v - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]
