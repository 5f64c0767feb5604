"""Updates along one axis: of whole slices (scatter), and of single elements."""

from __future__ import annotations

from graphc.ir.node import Tensor
from graphc.ops.arrays.indexing import scatter_add
from graphc.ops.arrays.scattering_nd import scatter_at, updates_for
from graphc.ops.arrays.shape import broadcast_to, expand_dims, moveaxis
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import known_alike
from graphc.ops.core.emit import convert
from graphc.typing import TensorLike

__all__ = ["put_along_axis", "scatter"]


def scatter(
    operand: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    axis: int = 0,
    op: str = "set",
    mode: str = "drop",
    *,
    name: str | None = None,
) -> Tensor:
    """`operand` with its slices at `indices` along `axis` updated.

    Args:
        operand: any tensor.
        indices: integers of any shape; negative ones count from the end.
        updates: of the shape of `take(operand, indices, axis)`, or broadcast to it.
        axis: the axis that the indices refer to.
        op, mode: as in `scatter_nd`.

    Raises:
        ShapeError, DTypeError, AttributeValueError: as in `scatter_nd`.

    Source: jax.numpy.ndarray.at.

    Examples:
        >>> run(gc.scatter([1, 2, 3], [0, 2], [8, 9]))
        Array([8, 2, 9], dtype=int32)
    """
    target, where = convert(operand), convert(indices)
    place = normalize_axis("ScatterNd", target, axis)
    if op == "add":  # the form that passes know
        changes = updates_for("ScatterAdd", target, updates)
        return scatter_add(target, where, changes, place, mode, name=name)
    vectors = expand_dims(where, where.ndim)
    return scatter_at(target, vectors, updates, op, (place,), 0, mode, name=name)


def put_along_axis(
    operand: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    axis: int = -1,
    op: str = "set",
    mode: str = "drop",
    *,
    name: str | None = None,
) -> Tensor:
    """`operand` with updates of the elements that `take_along_axis` reads.

    Args:
        operand: any tensor.
        indices: integers with the rank of `operand` and the same sizes of the other axes.
        updates: of the shape of `indices`, or broadcast to it.
        axis: the axis that the indices refer to.
        op, mode: as in `scatter_nd`.

    Raises:
        ShapeError, DTypeError, AttributeValueError: as in `scatter_nd`.

    Source: numpy.put_along_axis.

    Examples:
        >>> run(gc.put_along_axis([[1, 2], [3, 4]], [[1], [0]], [[9], [9]]))
        Array([[1, 9],
               [9, 4]], dtype=int32)
    """
    target, where = convert(operand), convert(indices)
    place = normalize_axis("ScatterNd", target, axis)
    changes = updates_for("ScatterNd", target, updates)
    if not known_alike(changes.shape, where.shape, changes):
        changes = broadcast_to(changes, where.type.shape)
    batch = target.ndim - 1
    if place != batch:
        target, where, changes = (moveaxis(t, place, -1) for t in (target, where, changes))
    vectors = expand_dims(where, where.ndim)
    result = scatter_at(target, vectors, changes, op, (batch,), batch, mode, name=name)
    return result if place == batch else moveaxis(result, -1, place)
