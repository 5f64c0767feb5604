"""Encodings of positions in a sequence: sinusoidal, added to features, and rotary, of heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import FLOAT32, DType, as_dtype
from graphc.ir.node import Tensor
from graphc.nn.layers.layer import Layer, check_rank, features_of
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.joining import concatenate, split
from graphc.ops.arrays.shape import expand_dims, reshape
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import add
from graphc.ops.elementwise.transcendental import cos, sin
from graphc.typing import DTypeLike, TensorLike

__all__ = ["SinusoidalEncoding", "rotary_encoding", "sinusoidal_encoding"]


def sinusoidal_encoding(
    positions: TensorLike,
    features: int,
    base: float = 10000.0,
    dtype: DTypeLike = FLOAT32,
    *,
    name: str | None = None,
) -> Tensor:
    """Sines and cosines of the positions, alternating, with wavelengths from 2 pi to 2 pi `base`.

    Args:
        positions: [...], numbers.
        features: the number of features; even.
        base: the ratio of the longest wavelength to the shortest.
        dtype: of the result. Narrow dtypes are calculated in float32.
        name: of the node.

    Returns:
        [..., features]: sin(position / base ** (2 i / features)) at 2 i, and its cosine at 2 i + 1.

    Raises:
        AttributeValueError: `features` is not even and positive.

    Source: Vaswani et al., "Attention is all you need", 2017.

    Examples:
        >>> run(gc.nn.sinusoidal_encoding([0, 1], 2))
        Array([[0.    , 1.    ],
               [0.8415, 0.5403]], dtype=float32)
    """
    wanted = as_dtype(dtype)
    angles = _angles("sinusoidal_encoding", positions, features, base, wide(wanted))
    waves = stack([sin(angles), cos(angles)], axis=-1)
    result = reshape(waves, (*angles.type.shape[:-1], features), name=name)
    return to_dtype(result, wanted)


def rotary_encoding(
    x: TensorLike,
    positions: TensorLike | None = None,
    base: float = 10000.0,
    *,
    name: str | None = None,
) -> Tensor:
    """Rotates pairs of features by angles that grow with the position.

    The product of a rotated query and a rotated key then depends on the distance between them, not
    on their positions. Feature i forms a pair with feature i + depth / 2.

    Args:
        x: [batch, time, heads, depth], floating; queries or keys.
        positions: [time] or [batch, time], numbers; by default 0, 1, ...
        base: the ratio of the longest wavelength to the shortest.
        name: of the node.

    Returns:
        The shape and dtype of `x`. Narrow dtypes are calculated in float32.

    Raises:
        ShapeError: `x` is not of rank 4.
        AttributeValueError: the depth is not even.

    Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021.

    Examples:
        >>> x = [[[[1.0, 0.0]], [[1.0, 0.0]]]]
        >>> run(gc.nn.rotary_encoding(x))[0, :, 0]  # cos and sin of 0 and of 1
        Array([[1.    , 0.    ],
               [0.5403, 0.8415]], dtype=float32)
    """
    x = convert(x)
    if x.type.rank != 4:
        refuse("rotary_encoding: x must be [batch, time, heads, depth]", x=x)
    dtype = x.type.dtype
    given = iota((x.type.shape[1],)) if positions is None else positions
    turns = _angles("rotary_encoding", given, x.type.shape[3], base, wide(dtype))
    turns = expand_dims(turns, -2)  # one rotation for all heads
    a, b = split(to_dtype(x, turns.type.dtype), 2, axis=-1)
    turned = [a * cos(turns) - b * sin(turns), b * cos(turns) + a * sin(turns)]
    return to_dtype(concatenate(turned, -1, name=name), dtype)


def _angles(op: str, positions: Any, features: Any, base: float, dtype: DType) -> Tensor:
    """`position / base ** (2 i / features)` for each pair of features: [..., features / 2]."""
    if type(features) is not int or features < 2 or features % 2:
        refuse(
            f"{op}: the number of features must be even and known, got {features}",
            error=AttributeValueError,
        )
    frequencies = base ** (-np.arange(0, features, 2) / features)
    return expand_dims(to_dtype(positions, dtype), -1) * frequencies.astype(dtype)


class SinusoidalEncoding(Layer):
    """Adds the `sinusoidal_encoding` of its position to each step of a sequence.

    Args:
        base: the ratio of the longest wavelength to the shortest.
        name: see `Layer`.

    Calling it takes `x` [batch, time, features] and `start`, the position of the first step (a
    number or an integer scalar; 0 by default). It gives the shape and dtype of `x`.

    Raises:
        ShapeError: `x` is not of rank 3.
        AttributeValueError: the number of features is not even.

    Examples:
        >>> run(gc.nn.SinusoidalEncoding()(gc.zeros((1, 2, 2))))  # sin and cos of 0 and of 1
        Array([[[0.    , 1.    ],
                [0.8415, 0.5403]]], dtype=float32)
    """

    def __init__(self, base: float = 10000.0, name: str | None = None) -> None:
        super().__init__(name)
        self.base = base

    def __call__(self, x: TensorLike, start: TensorLike = 0) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, (3,), "[batch, time, features] (rank 3)")
            positions = iota((x.type.shape[1],)) + start
            encoding = sinusoidal_encoding(positions, features_of(self, x), self.base, x.type.dtype)
            return add(x, encoding)
