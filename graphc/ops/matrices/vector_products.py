"""Products of vectors. No operators."""

from __future__ import annotations

from graphc.ir.node import Tensor
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.shape import expand_dims, moveaxis, ravel, squeeze
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, promote_operands
from graphc.ops.elementwise.arithmetic import multiply, subtract
from graphc.ops.elementwise.complex_parts import conj
from graphc.ops.matrices.contraction import dot_general
from graphc.ops.matrices.matrix_product import matmul
from graphc.typing import TensorLike

__all__ = ["cross", "dot", "inner", "matvec", "vdot", "vecdot", "vecmat"]


def dot(a: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """The sum over the last axis of `a` and the second to last of `b`, or its only axis.

    The other axes do not broadcast as in `matmul`: each vector of `a` is multiplied by each vector
    of `b`. A scalar operand multiplies all elements.

    Raises:
        ShapeError: sizes differ.

    Source: numpy.dot.

    Examples:
        >>> run(gc.dot([1, 2], [3, 4]))
        Array(11, dtype=int32)
    """
    a, b = promote_operands(a, b)
    return _contracted(a, b, -min(b.ndim, 2), name)


def _contracted(a: Tensor, b: Tensor, axis: int, name: str | None) -> Tensor:
    """The sum over the last axis of `a` and `axis` of `b`; a scalar multiplies all elements."""
    if not a.ndim or not b.ndim:
        return multiply(a, b, name=name)
    return dot_general(a, b, ((-1,), (axis,)), name=name)


def inner(a: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """The sum over the last axes, for each vector of `a` and each of `b`; a scalar multiplies all.

    Raises:
        ShapeError: as `dot`.

    Source: numpy.inner.

    Examples:
        >>> run(gc.inner([1, 2], [3, 4]))
        Array(11, dtype=int32)
    """
    a, b = promote_operands(a, b)
    return _contracted(a, b, -1, name)


def vdot(a: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """The sum of conj(a) * b over all elements, both raveled.

    Raises:
        ShapeError: sizes differ.

    Source: numpy.vdot.

    Examples:
        >>> run(gc.vdot([1j], [1j]))
        Array(1.+0.j, dtype=complex64)
    """
    a, b = promote_operands(a, b)
    return dot_general(_conjugated(ravel(a)), ravel(b), ((0,), (0,)), name=name)


def vecdot(a: TensorLike, b: TensorLike, axis: int = -1, *, name: str | None = None) -> Tensor:
    """The sum of conj(a) * b over `axis`; the other axes broadcast.

    Raises:
        ShapeError: sizes differ, or a scalar.
        AttributeValueError: the axis is out of range.

    Source: numpy.vecdot.

    Examples:
        >>> run(gc.vecdot([[1, 2], [3, 4]], [1, 1]))
        Array([3, 7], dtype=int32)
    """
    a, b = promote_operands(a, b)
    row = expand_dims(_conjugated(moveaxis(a, axis, -1)), -2)
    column = expand_dims(moveaxis(b, axis, -1), -1)
    return squeeze(matmul(row, column), (-2, -1), name=name)


def _conjugated(x: Tensor) -> Tensor:
    return conj(x) if x.type.dtype.kind == "c" else x


def matvec(a: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """Matrices [..., m, n] times vectors [..., n]: [..., m]. Source: numpy.matvec.

    Examples:
        >>> run(gc.matvec([[1, 2], [3, 4]], [1, 1]))
        Array([3, 7], dtype=int32)
    """
    return squeeze(matmul(a, expand_dims(b, -1)), -1, name=name)


def vecmat(a: TensorLike, b: TensorLike, *, name: str | None = None) -> Tensor:
    """Vectors [..., n], conjugated, times matrices [..., n, m]: [..., m]. Source: numpy.vecmat.

    Examples:
        >>> run(gc.vecmat([1, 1], [[1, 2], [3, 4]]))
        Array([4, 6], dtype=int32)
    """
    left = _conjugated(convert(a))
    return squeeze(matmul(expand_dims(left, -2), b), -2, name=name)


def cross(a: TensorLike, b: TensorLike, axis: int = -1, *, name: str | None = None) -> Tensor:
    """The cross products of vectors of three elements along `axis`; the other axes broadcast.

    Raises:
        ShapeError: not three elements, or shapes that do not broadcast.
        AttributeValueError: the axis is out of range.

    Source: numpy.linalg.cross.

    Examples:
        >>> run(gc.cross([1, 0, 0], [0, 1, 0]))
        Array([0, 0, 1], dtype=int32)
    """
    a, b = promote_operands(a, b)
    for label, x in (("a", a), ("b", b)):
        size = x.shape[normalize_axis("cross", x, axis)]
        if size != 3:
            refuse(
                f"cross: {label} must have 3 elements along axis {axis}, not {size}",
                hint="axis= names the axis of the three coordinates",
                a=a,
                b=b,
            )
    a, b = moveaxis(a, axis, -1), moveaxis(b, axis, -1)
    following, last = [1, 2, 0], [2, 0, 1]
    result = subtract(
        take(a, following, -1) * take(b, last, -1), take(a, last, -1) * take(b, following, -1)
    )
    return moveaxis(result, -1, axis, name=name)
