"""Images, [batch, ..., channels], rearranged, resized, and reduced to one value for each
channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from graphc.errors import AttributeValueError, nearest
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.shape import moveaxis, reshape, transpose
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.emit import convert, promote_inexact, to_dtype
from graphc.ops.matrices.contraction import dot_general
from graphc.ops.reductions.reduction import reduce_max, reduce_mean
from graphc.ops.structure.state import identity
from graphc.typing import TensorLike

__all__ = ["depth_to_space", "global_avg_pool", "global_max_pool", "resize", "space_to_depth"]


def space_to_depth(x: TensorLike, block: int, *, name: str | None = None) -> Tensor:
    """Turns blocks of positions into channels of one position.

    Args:
        x: [batch, ..., channels], any dtype, with any number of spatial axes, of known sizes.
        block: the size of a block along each spatial axis, which it divides.
        name: of the last node.

    Returns:
        [batch, ..., block^axes * channels]: each spatial size over `block`; the channels of each
            position of a block are adjacent.

    Raises:
        ShapeError: sizes that are not known, or not divisible by `block`.

    Source: TensorFlow's `tf.nn.space_to_depth`.

    Examples:
        >>> gc.nn.space_to_depth(gc.ones((1, 4, 4, 3)), 2).shape
        (1, 2, 2, 12)
    """
    x = convert(x)
    sizes, rank = _known_sizes("space_to_depth", x), x.ndim - 2
    for size in sizes:
        if type(block) is not int or block < 1 or size % block:
            refuse(f"space_to_depth: the size {size} does not divide by block={block!r}", x=x)
    batch, channels = x.shape[0], x.shape[-1]
    split = [part for size in sizes for part in (size // block, block)]
    blocks = reshape(x, (batch, *split, channels))
    places, within = range(1, 2 * rank, 2), range(2, 2 * rank + 1, 2)
    moved = transpose(blocks, (0, *places, *within, 2 * rank + 1))
    shape = (batch, *[size // block for size in sizes], block**rank * channels)
    return reshape(moved, shape, name=name)


def depth_to_space(x: TensorLike, block: int, *, name: str | None = None) -> Tensor:
    """Turns channels of one position into blocks of positions: undoes `space_to_depth`.

    Args:
        x: [batch, ..., block^axes * channels], any dtype, with any number of spatial axes.
        block: the size of a block along each spatial axis.
        name: of the last node.

    Returns:
        [batch, ..., channels]: each spatial size times `block`.

    Raises:
        ShapeError: channels that are not known, or not divisible by block^axes.

    Source: TensorFlow's `tf.nn.depth_to_space`; pixel shuffle, arXiv:1609.05158.

    Examples:
        >>> gc.nn.depth_to_space(gc.ones((1, 2, 2, 12)), 2).shape
        (1, 4, 4, 3)
    """
    x = convert(x)
    rank, channels = x.ndim - 2, x.shape[-1] if x.ndim > 2 else None
    if type(block) is not int or block < 1:
        refuse(f"depth_to_space: a block must be a positive int, got {block!r}", x=x)
    if not isinstance(channels, int) or channels % block**rank:
        refuse(
            f"depth_to_space: {channels!s} channels of x do not form blocks of {block}",
            hint=f"the channels must divide by {block}**{rank}",
            x=x,
        )
    sizes = x.shape[1:-1]
    left = channels // block**rank
    blocks = reshape(x, (x.shape[0], *sizes, *[block] * rank, left))
    order = [axis for i in range(1, rank + 1) for axis in (i, rank + i)]
    moved = transpose(blocks, (0, *order, 2 * rank + 1))
    return reshape(moved, (x.shape[0], *[size * block for size in sizes], left), name=name)


def global_avg_pool(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The mean of `x` [batch, ..., channels] over its spatial axes: [batch, channels].

    Examples:
        >>> run(gc.nn.global_avg_pool([[[1.0], [3.0]]]))
        Array([[2.]], dtype=float32)
    """
    x = convert(x)
    return reduce_mean(x, axis=tuple(range(1, x.ndim - 1)), name=name)


def global_max_pool(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The maximum of `x` [batch, ..., channels] over its spatial axes: [batch, channels].

    Examples:
        >>> run(gc.nn.global_max_pool([[[1.0], [3.0]]]))
        Array([[3.]], dtype=float32)
    """
    x = convert(x)
    return reduce_max(x, axis=tuple(range(1, x.ndim - 1)), name=name)


# -- resizing -------------------------------------------------------------------------------


def resize(
    x: TensorLike,
    size: int | Sequence[int],
    method: str = "bilinear",
    *,
    antialias: bool = True,
    name: str | None = None,
) -> Tensor:
    """`x` scaled to other spatial sizes.

    Args:
        x: [batch, ..., channels], with any number of spatial axes, of known sizes; any dtype
            for "nearest", otherwise numbers, which are converted to a floating dtype.
        size: the new spatial sizes, one int or one for each axis.
        method: "nearest", "bilinear", "bicubic" (Keys, with a = -1/2), "lanczos3" or "lanczos5".
        antialias: if `x` becomes smaller, average over all elements that a new pixel covers. Not
            for "nearest".
        name: of the last node.

    Returns:
        [batch, *size, channels]. Pixels are squares: the centre of the first is at 0.5.

    Raises:
        ShapeError: sizes that are not known.
        AttributeValueError: another method, or sizes that are not positive.

    Source: `jax.image.resize`; Keys, 1981, doi:10.1109/TASSP.1981.1163711.

    Examples:
        >>> gc.nn.resize(gc.ones((1, 4, 4, 3)), (8, 8)).shape
        (1, 8, 8, 3)
    """
    x = convert(x)
    known = _known_sizes("resize", x)
    wanted = _wanted_sizes(x, size, len(known))
    if method != "nearest" and method not in _KERNELS:
        refuse(
            f"resize: unknown method {method!r}",
            error=AttributeValueError,
            hint=nearest(str(method), ["nearest", *_KERNELS]),
        )
    y = x if method == "nearest" else promote_inexact(x)[0]
    for axis, (old, new) in enumerate(zip(known, wanted, strict=True), start=1):
        if old != new:
            y = _resized(y, axis, old, new, method, antialias)
    return identity(y, name=name)


def _wanted_sizes(x: Tensor, size: int | Sequence[int], count: int) -> list[int]:
    given = as_dims("resize", size) * (1 if np.ndim(size) else count)
    wanted = [n for n in given if isinstance(n, int) and n > 0]
    if not len(wanted) == len(given) == count:
        refuse(
            f"resize: size must be a positive int or {count} of them, got {size!r}",
            error=AttributeValueError,
            x=x,
        )
    return wanted


def _resized(x: Tensor, axis: int, old: int, new: int, method: str, antialias: bool) -> Tensor:
    centres = (np.arange(new) + 0.5) * (old / new)
    if method == "nearest":
        return take(x, np.floor(centres).astype(np.int32), axis)
    # Each new pixel is a weighted mean of old ones. Distances are measured in pixels of the smaller
    # image.
    width = max(old / new, 1.0) if antialias else 1.0
    distance = np.abs(centres - 0.5 - np.arange(old)[:, None]) / width
    weights = _KERNELS[method](distance)
    scaled = dot_general(x, to_dtype(weights / weights.sum(0), x.dtype), ((axis,), (0,)))
    return moveaxis(scaled, -1, axis)


def _triangle(x: Array) -> Array:
    nearer: Array = np.maximum(1 - x, 0)
    return nearer


def _keys_cubic(x: Array) -> Array:
    near: Array = ((1.5 * x - 2.5) * x) * x + 1
    far: Array = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(radius: int) -> Callable[[Array], Array]:
    return lambda x: np.where(x < radius, np.sinc(x) * np.sinc(x / radius), 0)


_KERNELS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "bilinear": _triangle,
    "bicubic": _keys_cubic,
    "lanczos3": _lanczos(3),
    "lanczos5": _lanczos(5),
}


def _known_sizes(what: str, x: Tensor) -> tuple[int, ...]:
    sizes = tuple(size for size in x.shape[1:-1] if isinstance(size, int))
    if x.ndim < 3 or len(sizes) < x.ndim - 2:
        refuse(f"{what}: x must be [batch, ..., channels] with spatial axes of known sizes", x=x)
    return sizes
