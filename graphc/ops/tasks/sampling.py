"""Reading images between their elements: at coordinates, and in boxes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import numpy as jnp
from jax.scipy import ndimage

from graphc.ir.costs import CostContext, size_of
from graphc.ir.dims import Dim
from graphc.ir.dtypes import is_floating, is_inexact, is_integer
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.broadcasting import require_one_dtype
from graphc.ops.core.checks import as_dims
from graphc.ops.core.cost_rules import times_result
from graphc.ops.core.defining import define
from graphc.ops.core.emit import convert, emit_one, promote_inexact, to_dtype
from graphc.ops.core.precision import summed, wide, wide_integer
from graphc.ops.core.ranges import in_range
from graphc.typing import TensorLike

__all__ = ["crop_and_resize", "map_coordinates"]

# -- at coordinates -------------------------------------------------------------------------

_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


def _infer_map(
    ctx: InferContext, x: TensorType, coordinates: TensorType, *, order: int, mode: str, fill: float
) -> TensorType:
    ctx.require_dtype([x], is_inexact, "floating or complex")
    words = f"coordinates must be floating, got {coordinates.dtype.name}"
    ctx.require(is_floating(coordinates.dtype), words, dtype=True)
    ctx.require(
        x.rank > 0 and coordinates.rank > 0 and coordinates.shape[0] == x.rank,
        f"coordinates must be [{x.rank}, ...], one row for each axis of x, got {coordinates}",
    )
    ctx.require(0 not in x.shape, f"x has no elements: {x}")
    if mode == "mirror":
        ctx.require(1 not in x.shape, 'mode "mirror" needs axes of two elements or more')
    return TensorType(x.dtype, coordinates.shape[1:])


def _map_layout(ctx: LayoutContext, node: Node, x: Layout, coordinates: Layout) -> LayoutPlan:
    if isinstance(coordinates, Sharded) and coordinates.axis > 0:
        return LayoutPlan([REPLICATED, coordinates], [Sharded(coordinates.axis - 1)])
    return LayoutPlan([REPLICATED, REPLICATED], [REPLICATED])


def _map_cost(ctx: CostContext, node: Node) -> int:
    """For each element around a position: an index and a weight for each axis, a product and a
    sum."""
    axes = node.inputs[0].ndim
    corners: int = (1 + node.attrs["order"]) ** axes
    return corners * (2 * axes + 2) * size_of(node.outputs[0])


MAP_COORDINATES = define(
    "MapCoordinates(x, coordinates) -> y",
    precision="wide",
    attrs={
        "order": Attr("int", default=1, check=lambda v: v in (0, 1), must="be 0 or 1"),
        "mode": Attr(
            "str",
            default="constant",
            check=lambda v: v in _MODES,
            must=f"be one of {', '.join(_MODES)}",
            doc="the values outside x",
        ),
        "fill": Attr("float", default=0.0, doc="the value outside x in the mode constant"),
    },
    infer=_infer_map,
    lower=summed(
        lambda ctx, x, coordinates, *, order, mode, fill: ndimage.map_coordinates(
            x, list(coordinates.astype(wide(coordinates.dtype))), order, mode, fill
        )
    ),
    layout=_map_layout,
    cost=_map_cost,
    doc="The values of x at coordinates [axes of x, ...], between its elements: the nearest "
    "element (order 0), or linear interpolation (order 1). x floating or complex, coordinates "
    "floating. Source: `jax.scipy.ndimage.map_coordinates`.",
)


def map_coordinates(
    x: TensorLike,
    coordinates: TensorLike,
    order: int = 1,
    mode: str = "constant",
    fill: float = 0.0,
    *,
    name: str | None = None,
) -> Tensor:
    """The values of `x` at positions between its elements.

    Args:
        x: of any rank n from 1; integers give float32.
        coordinates: [n, ...], floating (integers give float32), or a list of n tensors of one
            shape: positions along each axis, in elements from 0.
        order: 0 for the nearest element, 1 for linear interpolation.
        mode: the values outside `x`: "constant" (`fill`), "nearest" (the edge), "wrap" (`x` again),
            "mirror" (`x` reversed, without the edge) or "reflect" (`x` reversed, with the edge).
        fill: the value of "constant". Elements at the edge are interpolated with it.
        name: of the node.

    Returns:
        The shape of `coordinates` without its first axis, in the dtype of `x`. Differentiable in
        `x`, and of order 1 in the coordinates.

    Raises:
        ShapeError: coordinates for another number of axes, or an `x` without elements.
        AttributeValueError: another order or mode.
        DTypeError: complex coordinates.

    Source: `jax.scipy.ndimage.map_coordinates`; the modes "constant" and "wrap" are "grid-constant"
    and "grid-wrap" of SciPy.

    Examples:
        >>> run(gc.nn.map_coordinates([0.0, 10.0, 20.0], [[0.5, 1.5]]))
        Array([ 5., 15.], dtype=float32)
    """
    if isinstance(coordinates, list | tuple):
        coordinates = stack(promote_inexact(*coordinates))
    (x,), (places,) = promote_inexact(x), promote_inexact(coordinates)
    return emit_one(MAP_COORDINATES, (x, places), name, order=order, mode=mode, fill=float(fill))


# -- in boxes -------------------------------------------------------------------------------

_METHODS = ("bilinear", "nearest")


def _infer_crop(
    ctx: InferContext,
    x: TensorType,
    boxes: TensorType,
    images: TensorType,
    *,
    size: tuple[Dim, ...],
    method: str,
    fill: float,
) -> TensorType:
    ctx.require_dtype([x], is_floating, "floating")
    require_one_dtype(ctx, x, boxes)
    words = f"images must be integers, got {images.dtype.name}"
    ctx.require(is_integer(images.dtype), words, dtype=True)
    ctx.require(x.rank == 4, f"x must be [batch, height, width, channels], got {x}")
    ctx.require(0 not in x.shape[:3], f"x has no elements: {x}")
    ctx.require(boxes.rank == 2 and boxes.shape[1] == 4, f"boxes must be [boxes, 4], got {boxes}")
    ctx.require(images.rank == 1, f"images must be [boxes], got {images}")
    count = ctx.unify(boxes.shape[0], images.shape[0], "numbers of boxes and of images")
    return TensorType(x.dtype, (count, *size, x.shape[3]))


def _places(low: Any, high: Any, count: int, size: Any) -> Any:
    """The positions of `count` samples from `low` to `high`, in elements of `size`:
    [boxes, count]."""
    last = jnp.asarray(size - 1, low.dtype)
    if count == 1:
        return (0.5 * (low + high) * last)[:, None]
    steps = np.arange(count).astype(low.dtype)
    return (low * last)[:, None] + steps * ((high - low) * (last / (count - 1)))[:, None]


def _lower_crop(
    ctx: LowerContext, x: Any, boxes: Any, images: Any, *, size: Any, method: str, fill: float
) -> Any:
    top, left, bottom, right = boxes.T
    height, width = x.shape[1:3]
    rows = _places(top, bottom, size[0], height)
    columns = _places(left, right, size[1], width)
    on_rows, on_columns = _within(rows, top, bottom, height), _within(columns, left, right, width)
    inside = on_rows[:, :, None] & on_columns[:, None, :]
    # Positions outside, which may be NaN or infinite, must not get a gradient.
    rows, columns = jnp.where(on_rows, rows, 0), jnp.where(on_columns, columns, 0)
    images = jnp.clip(images, 0, x.shape[0] - 1)[:, None, None]

    def at(row: Any, column: Any) -> Any:
        return x[images, row[:, :, None], column[:, None, :]]

    if method == "nearest":
        found = at(_element(rows + 0.5, height), _element(columns + 0.5, width))
    else:
        (above, below, down), (before, after, along) = (
            _beside(rows, height),
            _beside(columns, width),
        )
        down, along = down[:, :, None, None], along[:, None, :, None]
        upper = at(above, before) * (1 - along) + at(above, after) * along
        lower = at(below, before) * (1 - along) + at(below, after) * along
        found = upper * (1 - down) + lower * down
    return jnp.where(inside[..., None], found, jnp.asarray(fill, x.dtype))


def _within(places: Any, low: Any, high: Any, size: Any) -> Any:
    """Which positions between the ends `low` and `high` of boxes are inside the image. An end of 1
    is the last element. If a box ends at the edge, its last position is inside even if it was
    rounded."""
    last = jnp.asarray(size - 1, places.dtype)
    ends = [(end * last)[:, None] for end in (low, high)]
    places = jnp.clip(places, jnp.minimum(*ends), jnp.maximum(*ends))
    return (places >= 0) & (places <= last)


def _element(places: Any, size: Any) -> Any:
    """The index of the last element at or before each position, in [0, size)."""
    return jnp.clip(jnp.floor(places).astype(np.int32), 0, size - 1)


def _beside(places: Any, size: Any) -> tuple[Any, Any, Any]:
    """The indices of the elements before and after each position, and the weight of the second
    one."""
    first = _element(places, size)
    return first, jnp.minimum(first + 1, size - 1), places - first.astype(places.dtype)


def _crop_layout(
    ctx: LayoutContext, node: Node, x: Layout, boxes: Layout, images: Layout
) -> LayoutPlan:
    if Sharded(0) in (boxes, images):
        return LayoutPlan([REPLICATED, Sharded(0), Sharded(0)], [Sharded(0)])
    if x == Sharded(3):
        return LayoutPlan([x, REPLICATED, REPLICATED], [x])
    return LayoutPlan([REPLICATED] * 3, [REPLICATED])


CROP_AND_RESIZE = define(
    "CropAndResize(x, boxes, images) -> y",
    precision="wide",
    attrs={
        "size": Attr(
            "ints",
            check=lambda v: len(v) == 2 and min(v) > 0,
            must="be a height and a width, both positive",
            doc="of the results",
        ),
        "method": Attr(
            "str",
            default="bilinear",
            check=lambda v: v in _METHODS,
            must=f"be one of {', '.join(_METHODS)}",
        ),
        "fill": Attr("float", default=0.0, check=math.isfinite, must="be finite", doc="outside"),
    },
    infer=_infer_crop,
    lower=summed(_lower_crop),
    layout=_crop_layout,
    cost=times_result(8),
    doc="The part of x [batch, height, width, channels] in each of the boxes [n, 4] (top, left, "
    "bottom, right; 0 is the centre of the first element, 1 that of the last), from the image "
    "with the number in images [n], scaled to one size. Floating dtypes, images integers. Source: "
    "TensorFlow's `tf.image.crop_and_resize`; He et al., 2017, arXiv:1703.06870.",
)


def crop_and_resize(
    x: TensorLike,
    boxes: TensorLike,
    images: TensorLike,
    size: int | tuple[int, int],
    method: str = "bilinear",
    fill: float = 0.0,
    *,
    name: str | None = None,
) -> Tensor:
    """The part of an image in each box, scaled to one size.

    Args:
        x: [batch, height, width, channels]; integers give float32.
        boxes: [n, 4]: top, left, bottom, right. 0 is the centre of the first row or column, 1
            that of the last. A bottom above the top flips the result.
        images: [n], integers: the index of the image of each box. An index out of range is clamped,
            and raises an error in runs with `CompileOptions(check_numerics=True)`.
        size: height and width of the results, or one int for both.
        method: "bilinear" or "nearest".
        fill: the value outside the image.
        name: of the node.

    Returns:
        [n, *size, channels]. Differentiable in `x`, and for "bilinear" in the boxes.

    Raises:
        ShapeError: wrong ranks, or different numbers of boxes and images.
        AttributeValueError: a size that is not positive, or another method.
        DTypeError: complex numbers, or images that are not integers.

    Source: TensorFlow's `tf.image.crop_and_resize`.

    Examples:
        >>> gc.nn.crop_and_resize(gc.ones((1, 8, 8, 3)), [[0.0, 0.0, 0.5, 0.5]], [0], (4, 4)).shape
        (1, 4, 4, 3)
    """
    x, boxes = promote_inexact(x, boxes)
    images = convert(images)
    if x.ndim:  # else the operator rejects it
        images = in_range(images, 0, x.shape[0], "images", of="crop_and_resize")
    if is_integer(images.dtype):  # the number of images must fit
        images = to_dtype(images, wide_integer(images.dtype))
    both = as_dims("CropAndResize", size) * (1 if np.ndim(size) else 2)
    return emit_one(
        CROP_AND_RESIZE, (x, boxes, images), name, size=both, method=method, fill=float(fill)
    )


OPS: tuple[OpDef, ...] = (MAP_COORDINATES, CROP_AND_RESIZE)
