"""Interpolation and sampling of grids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.core.grids import cubic_shares
from graphc.importers.torch.call import Call, Refused, Rule, within_reason
from graphc.ir.dtypes import Array


def _sizes(x: Any, out: Any, scales: Any, rank: int) -> tuple[list[int], list[int], list[Any]]:
    """The old sizes, the new ones, and the factors, of which some may be None.

    Args:
        scales: a factor for each axis, or one list of them; perhaps none.
    """
    old = x.shape[x.ndim - rank :]
    if not all(isinstance(size, int) for size in old):
        raise Refused("of named sizes is not supported")
    given = scales[0] if len(scales) == 1 and isinstance(scales[0], (list, tuple)) else scales
    is_given = given and any(s is not None for s in given)
    factors: list[Any] = list(given) if is_given else [None] * rank
    if out is None:
        new = [int(size * f) for size, f in zip(old, factors, strict=True)]
    else:
        new = [int(size) for size in out]
    for a, b in zip(old, new, strict=True):
        within_reason(a * b, "elements")
    return [int(size) for size in old], new, factors


def _positions(old: int, new: int, factor: Any, corners: bool) -> Array:
    """The old position of each new element."""
    steps = np.arange(new)
    if corners:
        return steps * ((old - 1) / (new - 1)) if new > 1 else np.zeros(new)
    scale = 1 / factor if factor else old / new
    return (steps + 0.5) * scale - 0.5


def _nearest(rank: int, exact: bool) -> Rule:
    def rule(call: Call, x: Any, out: Any = None, *scales: Any) -> Any:
        old, new, each = _sizes(x, out, scales, rank)
        for i, (size, count, factor) in enumerate(zip(old, new, each, strict=True)):
            scale = 1 / factor if factor else size / count
            places = np.floor((np.arange(count) + (0.5 if exact else 0)) * np.float32(scale))
            clipped = np.minimum(places.astype(np.int64), size - 1)
            x = ops.take(x, clipped, axis=x.ndim - rank + i)
        return x

    return rule


def _linear_matrix(old: int, new: int, factor: Any, corners: bool) -> Array:
    places = np.maximum(_positions(old, new, factor, corners), 0)
    low = np.minimum(np.floor(places).astype(int), old - 1)
    high = np.minimum(low + 1, old - 1)
    part = places - low
    matrix = np.zeros((new, old))
    np.add.at(matrix, (np.arange(new), low), 1 - part)
    np.add.at(matrix, (np.arange(new), high), part)
    return matrix


def _cubic_matrix(old: int, new: int, factor: Any, corners: bool) -> Array:
    places = _positions(old, new, factor, corners)
    floor = np.floor(places).astype(int)
    part = places - floor
    matrix = np.zeros((new, old))
    for tap in range(-1, 3):
        share = cubic_shares(np.abs(tap - part), -0.75)
        np.add.at(matrix, (np.arange(new), np.clip(floor + tap, 0, old - 1)), share)
    return matrix


def _antialiased(support: float, weigh: Callable[[Array], Array]) -> Callable[..., Array]:
    def matrix(old: int, new: int, factor: Any, corners: bool) -> Array:
        scale = old / new if not factor else 1 / factor
        if corners:
            scale = (old - 1) / (new - 1) if new > 1 else 0.0
        stretch = max(scale, 1.0)
        found = np.zeros((new, old))
        for i in range(new):
            center = (i + 0.5) * scale
            low = max(int(center - support * stretch + 0.5), 0)
            high = min(int(center + support * stretch + 0.5), old)
            share = weigh(np.abs((np.arange(low, high) - center + 0.5) / stretch))
            found[i, low:high] = share / share.sum()
        return found

    return matrix


def _cubic_half(x: Array) -> Array:
    a = -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _by_matrix(rank: int, matrix_of: Callable[..., Array]) -> Rule:
    def rule(call: Call, x: Any, out: Any, corners: bool = False, *scales: Any) -> Any:
        old, new, each = _sizes(x, out, scales, rank)
        wide = ops.cast(x, "float32") if x.dtype.itemsize < 4 else x
        for i, (size, count, factor) in enumerate(zip(old, new, each, strict=True)):
            if size == count and not factor:
                continue
            axis = x.ndim - rank + i
            matrix = matrix_of(size, count, factor, corners).astype(wide.dtype)
            wide = ops.moveaxis(ops.matmul(ops.moveaxis(wide, axis, -1), matrix.T), -1, axis)
        return wide

    return rule


_LINEAR: Final = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}

_BY_NAME: Final[dict[str, Rule]] = {
    **{f"upsample_nearest{n}d": _nearest(n, False) for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": _nearest(n, True) for n in (1, 2, 3)},
    **{name: _by_matrix(n, _linear_matrix) for n, name in _LINEAR.items()},
    "upsample_bicubic2d": _by_matrix(2, _cubic_matrix),
    "_upsample_bilinear2d_aa": _by_matrix(2, _antialiased(1.0, lambda x: np.maximum(1 - x, 0))),
    "_upsample_bicubic2d_aa": _by_matrix(2, _antialiased(2.0, _cubic_half)),
}

RULES: Final[dict[str, Rule]] = {
    f"aten.{name}.{o}": rule for name, rule in _BY_NAME.items() for o in ("default", "vec")
}
