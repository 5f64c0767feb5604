"""Layers that change shapes: reshaping, and larger or smaller images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.nn.functional.images import resize
from graphc.nn.layers.layer import Layer, check_rank
from graphc.nn.layers.shape_checks import check_space
from graphc.ops.arrays.padding import pad
from graphc.ops.arrays.repeating import repeat
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.emit import convert
from graphc.ops.nn.windows import Pairs, per_axis
from graphc.typing import ShapeLike, TensorLike

__all__ = [
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "Reshape",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
]


class Reshape(Layer):
    """The elements of each example under another shape: [batch, ...] to [batch, *shape].

    Args:
        shape: ints and named sizes, without the batch; one may be -1, which stands for the rest.
        name: see `Layer`.

    Raises:
        AttributeValueError: a size is invalid, or two are -1.
        ShapeError: the input has no axes, or another number of elements.

    Examples:
        >>> gc.nn.Reshape((2, -1))(gc.ones((4, 6))).shape
        (4, 2, 3)
    """

    def __init__(self, shape: ShapeLike, name: str | None = None) -> None:
        super().__init__(name)
        self.shape = as_dims("Reshape", shape)
        if sum(size == -1 for size in self.shape) > 1:
            refuse(
                f"Reshape: more than one -1 in {self.shape}; the batch is not part of the shape",
                error=AttributeValueError,
            )

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(1, 100), "[batch, ...] (rank 1 or more)")
            return reshape(x, (x.type.shape[0], *self.shape))


class _OfSpace(Layer):
    """Base of the layers that exist for one, two and three spatial axes."""

    rank: ClassVar[int]

    def _taken(self, x: Any) -> Tensor:
        tensor = convert(x)
        check_space(self, tensor, self.rank)
        return tensor


class _UpSampling(_OfSpace):
    def __init__(
        self, size: int | tuple[int, ...] = 2, method: str = "nearest", name: str | None = None
    ) -> None:
        super().__init__(name)
        kind = type(self).__name__
        self.size = per_axis(kind, "size", size, self.rank)
        if method not in ("nearest", "bilinear", "bicubic"):
            refuse(
                f'{kind}: method must be "nearest", "bilinear" or "bicubic", got {method!r}',
                error=AttributeValueError,
            )
        self.method = method

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            y = self._taken(x)
            if self.method == "nearest":  # works for unknown sizes too
                for axis, times in enumerate(self.size, 1):
                    y = y if times == 1 else repeat(y, times, axis)
                return y
            sizes = zip(y.type.shape[1:-1], self.size, strict=True)
            return resize(y, tuple(n * times for n, times in sizes), self.method)


class UpSampling1D(_UpSampling):
    """Makes sequences longer by a whole factor.

    Calling it takes `x` [batch, width, features] and gives [batch, width * size, features].
    Args and Raises: see `UpSampling2D`, for one spatial axis.

    Examples:
        >>> run(gc.nn.UpSampling1D()([[[1.0], [2.0]]]))[0, :, 0]
        Array([1., 1., 2., 2.], dtype=float32)
    """

    rank = 1


class UpSampling2D(_UpSampling):
    """Makes images larger by whole factors.

    Args:
        size: the factors of height and width, or one for both.
        method: "nearest" repeats elements; "bilinear" and "bicubic" are those of `gc.nn.resize`,
            and need known sizes.
        name: see `Layer`.

    Calling it takes `x` [batch, height, width, features] and gives
    [batch, height * size, width * size, features].

    Raises:
        AttributeValueError: an option has an invalid value.
        ShapeError: `x` is not of rank 4, or its sizes are not known where they must be.

    Examples:
        >>> run(gc.nn.UpSampling2D((1, 2))([[[[1.0], [2.0]], [[3.0], [4.0]]]]))[0, :, :, 0]
        Array([[1., 1., 2., 2.],
               [3., 3., 4., 4.]], dtype=float32)
    """

    rank = 2


class UpSampling3D(_UpSampling):
    """Makes volumes larger by whole factors.

    Calling it takes `x` [batch, depth, height, width, features] and gives
    [batch, depth * size, height * size, width * size, features].
    Args and Raises: see `UpSampling2D`, for three spatial axes.

    Examples:
        >>> gc.nn.UpSampling3D(2)(gc.ones((1, 2, 3, 4, 5))).shape
        (1, 4, 6, 8, 5)
    """

    rank = 3


class _Sides(_OfSpace):
    def __init__(
        self, amount: int | Sequence[int | Sequence[int]] = 1, name: str | None = None
    ) -> None:
        super().__init__(name)
        self.amount = _sides(type(self).__name__, amount, self.rank)


class _ZeroPadding(_Sides):
    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            return pad(self._taken(x), ((0, 0), *self.amount, (0, 0)))


class ZeroPadding1D(_ZeroPadding):
    """Zeros before and after sequences.

    Args:
        amount: how many steps at each end: one int for both ends, or (before, after).
        name: see `Layer`.

    Calling it takes `x` [batch, width, features] and gives [batch, before + width + after,
    features].

    Raises:
        AttributeValueError: an amount of another form.
        ShapeError: `x` is not of rank 3.

    Examples:
        >>> run(gc.nn.ZeroPadding1D((2, 0))([[[1.0], [2.0]]]))[0, :, 0]
        Array([0., 0., 1., 2.], dtype=float32)
    """

    rank = 1


class ZeroPadding2D(_ZeroPadding):
    """Zeros around images.

    Args:
        amount: how many rows and columns at each side: one int for all sides, one for the rows and
            one for the columns, or ((top, bottom), (left, right)).
        name: see `Layer`.

    Calling it takes `x` [batch, height, width, features] and gives
    [batch, top + height + bottom, left + width + right, features].

    Raises:
        AttributeValueError: an amount of another form.
        ShapeError: `x` is not of rank 4.

    Examples:
        >>> run(gc.nn.ZeroPadding2D((0, 1))([[[[1.0], [2.0]]]]))[0, :, :, 0]
        Array([[0., 1., 2., 0.]], dtype=float32)
    """

    rank = 2


class ZeroPadding3D(_ZeroPadding):
    """Zeros around volumes.

    Args:
        amount: how many elements at each side: one int for all sides, or for each of depth, height
            and width an int or a pair (before, after).
        name: see `Layer`.

    Calling it takes `x` [batch, depth, height, width, features] and gives the same with larger
    spatial sizes.

    Raises:
        AttributeValueError: an amount of another form.
        ShapeError: `x` is not of rank 5.

    Examples:
        >>> gc.nn.ZeroPadding3D(((0, 1), 2, 0))(gc.ones((1, 4, 4, 4, 3))).shape
        (1, 5, 8, 4, 3)
    """

    rank = 3


class _Cropping(_Sides):
    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            whole = self._taken(x)
            for size, (low, high) in zip(whole.type.shape[1:-1], self.amount, strict=True):
                if isinstance(size, int) and low + high >= size:
                    what = f"no elements are left of {size} after removing {low} and {high}"
                    refuse(f"{self}: {what}", x=whole)
            inner = [slice(low, -high or None) for low, high in self.amount]
            return whole[(slice(None), *inner)]


class Cropping1D(_Cropping):
    """Sequences without their first and last steps.

    Args:
        amount: how many steps to leave out at each end: as in `ZeroPadding1D`.
        name: see `Layer`.

    Calling it takes `x` [batch, width, features] and gives
    [batch, width - before - after, features].

    Raises:
        AttributeValueError: an amount of another form.
        ShapeError: `x` is not of rank 3, or nothing is left of it.

    Examples:
        >>> run(gc.nn.Cropping1D((1, 0))([[[1.0], [2.0], [3.0]]]))[0, :, 0]
        Array([2., 3.], dtype=float32)
    """

    rank = 1


class Cropping2D(_Cropping):
    """The inner part of images.

    Args:
        amount: how many rows and columns to leave out at each side: as in `ZeroPadding2D`.
        name: see `Layer`.

    Calling it takes `x` [batch, height, width, features] and gives
    [batch, height - top - bottom, width - left - right, features].

    Raises:
        AttributeValueError: an amount of another form.
        ShapeError: `x` is not of rank 4, or nothing is left of it.

    Examples:
        >>> gc.nn.Cropping2D(((2, 2), (0, 4)))(gc.ones((1, 8, 8, 3))).shape
        (1, 4, 4, 3)
    """

    rank = 2


class Cropping3D(_Cropping):
    """The inner part of volumes.

    Args:
        amount: how many elements to leave out at each side: as in `ZeroPadding3D`.
        name: see `Layer`.

    Calling it takes `x` [batch, depth, height, width, features] and gives the same with smaller
    spatial sizes.

    Raises:
        AttributeValueError: an amount of another form.
        ShapeError: `x` is not of rank 5, or nothing is left of it.

    Examples:
        >>> gc.nn.Cropping3D(1)(gc.ones((1, 4, 5, 6, 3))).shape
        (1, 2, 3, 4, 3)
    """

    rank = 3


def _sides(layer: str, value: Any, rank: int) -> Pairs:
    """`value` as a pair (before, after) for each spatial axis."""
    entries = value
    if type(value) is int:
        entries = (value,) * rank
    elif rank == 1 and _is_pair(value):  # (before, after), as in Keras
        entries = (value,)
    if isinstance(entries, Sequence) and len(entries) == rank:
        pairs = [(entry, entry) if type(entry) is int else entry for entry in entries]
        if all(_is_pair(pair) and min(pair) >= 0 for pair in pairs):
            return tuple((low, high) for low, high in pairs)
    refuse(
        f"{layer}: the amount must be an int of 0 or more, or an int or a pair (before, after) for "
        f"each of {rank} spatial axes, got {value!r}",
        error=AttributeValueError,
    )


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and [type(n) for n in value] == [int, int]
