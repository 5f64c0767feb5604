"""Max unpooling: puts each maximum back at its position."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.errors import DTypeError
from graphc.ir.dims import product
from graphc.ir.dtypes import is_integer
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import zeros
from graphc.ops.arrays.scattering import put_along_axis
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import as_dims, refuse, same_shape
from graphc.ops.core.emit import convert, dim_value, to_dtype
from graphc.ops.core.precision import wide_integer
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.comparison import less, where
from graphc.typing import TensorLike

__all__ = ["max_unpool"]


def max_unpool(
    y: TensorLike, places: TensorLike, size: int | Sequence[int], *, name: str | None = None
) -> Tensor:
    """Puts the maxima back at their positions, with 0 elsewhere: undoes `max_pool_with_argmax`.

    Args:
        y: [batch, ..., channels], any dtype, with any number of spatial axes.
        places: integers of the shape of `y`, as from `max_pool_with_argmax`: indices into the
            spatial axes of the result flattened to one axis. Elements with an index out of range
            are dropped, which is an error in runs with `CompileOptions(check_numerics=True)`. Of
            two elements with the same index, the last is used.
        size: the spatial sizes of the result, one int for all axes or one for each.
        name: of the last node.

    Returns:
        [batch, *size, channels], of the dtype of `y`.

    Raises:
        ShapeError: `y` without spatial axes, places of another shape, or another number of sizes.
        DTypeError: places that are not integers.

    Source: Zeiler, Taylor & Fergus, 2011, doi:10.1109/ICCV.2011.6126474.

    Examples:
        >>> y, places = gc.nn.max_pool_with_argmax(gc.reshape([1.0, 4.0, 3.0, 2.0], (1, 4, 1)), 2)
        >>> run(gc.nn.max_unpool(y, places, 4)[0, :, 0])
        Array([0., 4., 3., 0.], dtype=float32)
    """
    y, places = convert(y), convert(places)
    sizes = as_dims("max_unpool", size) * (1 if isinstance(size, Sequence) else y.ndim - 2)
    if y.ndim < 3 or len(sizes) != y.ndim - 2:
        refuse(
            f"max_unpool: y must be [batch, ..., channels], with a size for each axis between, got "
            f"{y.ndim} axes and the sizes {sizes}",
            y=y,
        )
    if not is_integer(places.dtype):
        refuse("max_unpool: places must be integers", error=DTypeError, y=y, places=places)
    if not same_shape(places.shape, y.shape, y):
        refuse("max_unpool: y and its places differ in shape", y=y, places=places)
    batch, *spatial, channels = y.shape
    outside = product(sizes)
    places = in_range(places, 0, outside, "places", of="max_unpool")
    rows, index = (reshape(t, (batch, product(spatial), channels)) for t in (y, places))
    index = to_dtype(index, wide_integer(index.dtype))
    # Without this, a negative index would count from the end.
    index = where(less(index, 0), dim_value(outside), index)
    empty = zeros((batch, outside, channels), y.dtype)
    return reshape(put_along_axis(empty, index, rows, 1), (batch, *sizes, channels), name=name)
