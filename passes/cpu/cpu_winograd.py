"""Convolutions of many channels, on CPU: computed in tiles with Winograd's filtering."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from graphc.ir.dtypes import WIDE_FLOATS
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.nn.conv_rules import CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT
from graphc.ops.nn.image_turns import turns_of
from graphc.ops.nn.winograd import MOST_PLACES
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, simplify

Sizes = tuple[int, ...]

# The positions of x, w and y = conv(x, w) among the operands and the result.
_PLACES = {CONV: (0, 1, 2), CONV_INPUT_GRADIENT: (2, 1, 0), CONV_KERNEL_GRADIENT: (0, 2, 1)}
_PER_AXIS = (2, 3, 4)  # results of a tile; more would cost accuracy
# The cost of a form in addition to its products, in operations: of each byte of tiles, written and
# read once; of each byte of the transformed kernel, once and in every iteration; and of each
# operation of the transforms, whose products are thin. Rounded from a fit to 81 convolutions and
# gradients. The bytes of the kernel count more, because large kernels slow down networks (see
# RESULTS.md).
_TILE_BYTE, _KERNEL_BYTE, _KERNEL_BYTE_TURN, _TRANSFORM = 30, 45, 15, 2
# The maximum cost relative to the direct form; the fit is not more accurate.
_LEAST_GAIN = 0.9


@dataclass(frozen=True)
class CpuWinograd(Pass):
    """Computes convolutions and both their gradients in tiles, by Winograd's filtering, if an
    estimate from sizes says that this is clearly faster: kernels of 3 x 3 from about 128 channels,
    of 5 x 5 from about 64. See `ops.winograd_conv`.

    XLA:CPU computes convolutions directly, close to the peak of the machine: only fewer products
    are faster. These are XLA's own products of matrices. [32, 27, 27, 64] by 5 x 5 to 192 takes
    0.5x of the direct time, [32, 14, 14, 256] by 3 x 3 to 256 0.6x to 0.75x.

    Must not: change convolutions with strides, dilations or groups, with other ranks or dtypes, or
    with unknown sizes. Results differ by rounding: by up to 2e-5 of the largest value in float32,
    where direct sums differ by 1e-6. A NaN or an infinity spreads over its whole image.

    Attributes:
        bytes: the maximum size of the tiles of the images that are computed at a time, so that they
            stay in the caches and temporaries are small.
    """

    bytes: int = 12_000_000

    def run(self, program: Program) -> PassResult:
        return simplify(self, program, dict.fromkeys(_PLACES, self._in_tiles))

    def _in_tiles(self, rewriter: Rewriter, node: Node) -> Answer:
        types = [t.type for t in (*node.inputs, *node.outputs)]
        x, w, y = (types[place] for place in _PLACES[node.op])
        if node.attrs["tiles"] or not _can_be_tiled(node, x, w, y):
            return None
        sizes = _Sizes(x.sizes, w.sizes, y.sizes, x.dtype.itemsize)
        per_axis = [[m for m in _PER_AXIS if m + r - 1 <= MOST_PLACES] for r in sizes.window]
        forms = [_form(sizes, tiles, self.bytes) for tiles in product(*per_axis)]
        best = min(forms, key=lambda form: form.cost, default=None)
        if best is None or best.cost > _LEAST_GAIN * sizes.direct:
            return None
        attrs = {**node.attrs, "tiles": best.tiles, "images": best.images}
        return node.replace(attrs=attrs)


def _can_be_tiled(node: Node, *types: TensorType) -> bool:
    attrs = node.attrs
    return (
        len(types[0].shape) == 4
        and set(attrs["strides"]) == set(attrs["dilation"]) == {1}
        and attrs["groups"] == 1
        and types[0].dtype in WIDE_FLOATS
        and all(isinstance(dim, int) and dim > 0 for type in types for dim in type.shape)
    )


class _Sizes(NamedTuple):
    """The shapes of the images [batch, height, width, channels], the kernel [rows, columns,
    channels, filters] and the result of a convolution, and the bytes of a number."""

    x: Sizes
    w: Sizes
    y: Sizes
    itemsize: int

    @property
    def window(self) -> Sizes:
        return self.w[:2]

    @property
    def direct(self) -> int:
        """The number of operations of the direct form."""
        return 2 * prod(self.y) * prod(self.w[:3])


class _Form(NamedTuple):
    """A way to compute a convolution, and its cost in operations."""

    cost: float
    tiles: Sizes
    images: int


def _form(sizes: _Sizes, tiles: Sizes, most_bytes: int) -> _Form:
    batch, height, width, channels = sizes.x
    filters = sizes.w[-1]
    counts = [-(-n // m) for n, m in zip(sizes.y[1:3], tiles, strict=True)]
    places = [m + r - 1 for m, r in zip(tiles, sizes.window, strict=True)]
    count = prod(counts) * prod(places)  # of one image
    tile_bytes = sizes.itemsize * count * (channels + filters)
    turns = turns_of(batch, max(1, most_bytes // tile_bytes))
    kernel_bytes = sizes.itemsize * prod(places) * channels * filters
    rows = places[0] * counts[0] * width  # once the first axis is transformed
    transforms = channels * (rows * height + count * width) + filters * count * prod(tiles)
    cost = (
        2 * batch * (count * channels * filters + _TRANSFORM * transforms)
        + _TILE_BYTE * batch * tile_bytes
        + (_KERNEL_BYTE + _KERNEL_BYTE_TURN * turns) * kernel_bytes
    )
    return _Form(cost, tiles, 0 if turns == 1 else batch // turns)
