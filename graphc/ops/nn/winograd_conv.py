"""Convolutions by Winograd's filtering: products of matrices, with fewer products than taps.

Images are divided into overlapping tiles. Tiles and kernel are transformed along both spatial axes.
Then there is one product for each point of the transform, [tiles, channels] by [channels, filters].
Each transform along one axis is a product, too. Its matrix contains the transforms of all tiles and
includes the padding. So XLA writes only the operands and results of products.

The gradients are the adjoints of these steps. They exchange the spatial axes: XLA would merge two
transforms of one tensor in the same order, and keep the result alive from the forward pass on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ops.nn.image_turns import in_turns, summed_in_turns
from graphc.ops.nn.winograd import filtering, placed_tiles

Pair = Sequence[int]
Padding = Sequence[Sequence[int]]
_PLACES = (0, 1)  # the axes of a transform


def winograd_conv(
    x: jax.Array, w: jax.Array, *, padding: Padding, tiles: Pair, images: int
) -> jax.Array:
    """Conv's [batch, height, width, filters], without strides, dilations and groups.

    Args:
        x: [batch, height, width, channels].
        w: [rows, columns, channels, filters].
        padding: low and high, for each spatial axis.
        tiles: results of a tile along each spatial axis.
        images: the maximum number of images at a time; 0 for all.
    """
    grid = _Grid(x.shape[1:3], w.shape[:2], padding, tiles, x.dtype)
    kernel = grid.kernel(w)

    def some(x: jax.Array) -> jax.Array:
        return grid.results(_dot(grid.tiles(x), kernel, ((5,), (2,)), (_PLACES, _PLACES)))

    return in_turns(some, x, images, kernel[0, 0, 0, 0])


def winograd_input_gradient(
    dy: jax.Array, w: jax.Array, *, size: Pair, padding: Padding, tiles: Pair, images: int
) -> jax.Array:
    """ConvInputGradient's [batch, height, width, channels]; `size` is (height, width)."""
    grid = _Grid(size[::-1], w.shape[1::-1], padding[::-1], tiles[::-1], dy.dtype)
    kernel = grid.kernel(w.swapaxes(0, 1))

    def some(dy: jax.Array) -> jax.Array:
        slopes = grid.results_adjoint(dy.swapaxes(1, 2))
        slopes = _dot(slopes, kernel, ((5,), (3,)), (_PLACES, _PLACES))
        return grid.tiles_adjoint(slopes).swapaxes(1, 2)

    return in_turns(some, dy, images, kernel[0, 0, 0, 0])


def winograd_kernel_gradient(
    x: jax.Array, dy: jax.Array, *, size: Pair, padding: Padding, tiles: Pair, images: int
) -> jax.Array:
    """ConvKernelGradient's [rows, columns, channels, filters]; `size` is (rows, columns)."""
    grid = _Grid(x.shape[2:0:-1], size[::-1], padding[::-1], tiles[::-1], x.dtype)
    everywhere = (2, 3, 4)

    def some(x: jax.Array, dy: jax.Array) -> jax.Array:
        operands = (grid.tiles(x.swapaxes(1, 2)), grid.results_adjoint(dy.swapaxes(1, 2)))
        return _dot(*operands, (everywhere, everywhere), (_PLACES, _PLACES))

    return grid.kernel_adjoint(summed_in_turns(some, (x, dy), images)).swapaxes(0, 1)


class _Grid:
    """The tiles of one convolution, and the linear maps to and from them.

    Index letters: i, j are points of a transform, p, q results of a tile, and s, t tiles. The first
    of each pair is along the height, the second along the width. n are images, h, w their
    positions, and r, c the positions of a kernel.

    Args:
        size: (height, width) of the images, without padding.
        window: (rows, columns) of the kernel.
        padding, tiles: as in `winograd_conv`.
    """

    def __init__(self, size: Pair, window: Pair, padding: Padding, tiles: Pair, dtype: Any) -> None:
        sides = [low + n + high for n, (low, high) in zip(size, padding, strict=True)]
        self.shape = [side - r + 1 for side, r in zip(sides, window, strict=True)]
        self.per_tile, self.dtype = tiles, dtype
        placed = zip(tiles, window, size, padding, self.shape, strict=True)
        down, across = [placed_tiles(m, r, n, low, y) for m, r, n, (low, _), y in placed]
        self.down = jnp.asarray(down, dtype)  # [i, s, h]
        self.across = jnp.broadcast_to(  # [i, j, t, w]: the same for each i
            jnp.asarray(across, dtype), (len(down), *across.shape)
        )
        self.counts = (down.shape[1], across.shape[1])
        rows, columns = [filtering(m, r) for m, r in zip(tiles, window, strict=True)]
        self.to_kernel = self._both(rows.kernel, columns.kernel)  # [i, j, r, c]
        self.to_results = self._both(rows.results, columns.results)  # [p, q, i, j]

    def _both(self, rows: Any, columns: Any) -> jax.Array:
        return jnp.asarray(np.einsum("ar,bc->abrc", rows, columns), self.dtype)

    def tiles(self, x: jax.Array) -> jax.Array:
        """[n, h, w, channels] to [i, j, t, s, n, channels]."""
        rows = _dot(self.down, x.transpose(1, 2, 0, 3), ((2,), (0,)))  # [i, s, w, n, channels]
        return _dot(self.across, rows, ((3,), (2,)), ((0,), (0,)))

    def tiles_adjoint(self, tiles: jax.Array) -> jax.Array:
        """[i, j, t, s, n, channels] to [n, h, w, channels]."""
        rows = _dot(self.across, tiles, ((1, 2), (1, 2)), ((0,), (0,)))  # [i, w, s, n, channels]
        return _dot(self.down, rows, ((0, 1), (0, 2))).transpose(2, 0, 1, 3)

    def kernel(self, w: jax.Array) -> jax.Array:
        """[r, c, channels, filters] to [i, j, channels, filters]."""
        return _dot(self.to_kernel, w, ((2, 3), _PLACES))

    def kernel_adjoint(self, kernel: jax.Array) -> jax.Array:
        """[i, j, channels, filters] to [r, c, channels, filters]."""
        return _dot(self.to_kernel, kernel, (_PLACES, _PLACES))

    def results(self, products: jax.Array) -> jax.Array:
        """[i, j, t, s, n, filters] to [n, height, width, filters] of the convolution's result."""
        y = _dot(self.to_results, products, ((2, 3), _PLACES)).transpose(4, 3, 0, 2, 1, 5)
        n, s, p, t, q, filters = y.shape
        height, width = self.shape
        return y.reshape(n, s * p, t * q, filters)[:, :height, :width]

    def results_adjoint(self, y: jax.Array) -> jax.Array:
        """[n, height, width, filters] to [i, j, t, s, n, filters]."""
        (s, t), (p, q) = self.counts, self.per_tile
        n, height, width, filters = y.shape
        y = jnp.pad(y, ((0, 0), (0, s * p - height), (0, t * q - width), (0, 0)))
        y = y.reshape(n, s, p, t, q, filters).transpose(2, 4, 3, 1, 0, 5)
        return _dot(self.to_results, y, (_PLACES, _PLACES))


def _dot(a: jax.Array, b: jax.Array, contracted: Any, batch: Any = ((), ())) -> jax.Array:
    return lax.dot_general(a, b, (contracted, batch))
