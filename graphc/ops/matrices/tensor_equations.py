"""Linear equations between tensors, with several axes treated as one. No operators."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.errors import AttributeValueError
from graphc.ir.dims import product
from graphc.ir.node import Tensor
from graphc.ops.arrays.shape import moveaxis, ravel, reshape
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import refuse, same_shape
from graphc.ops.core.emit import promote_inexact
from graphc.ops.matrices.solving import inv, solve
from graphc.typing import TensorLike

__all__ = ["tensorinv", "tensorsolve"]


def tensorsolve(
    a: TensorLike, b: TensorLike, axes: Sequence[int] | None = None, *, name: str | None = None
) -> Tensor:
    """The solution x of tensordot(a, x, x.ndim) = b.

    Args:
        a: has the axes of `b`, then those of x; both groups have the same number of elements.
        b: any tensor.
        axes: axes of `a` that are moved to its end first.
        name: of the node.

    Raises:
        ShapeError: sizes that do not fit.
        AttributeValueError: an axis is out of range.
        DTypeError: floats narrower than float32.

    Source: numpy.linalg.tensorsolve.

    Examples:
        >>> run(gc.linalg.tensorsolve([[2.0, 0.0], [0.0, 4.0]], [2.0, 8.0]))
        Array([1., 2.], dtype=float32)
    """
    a, b = promote_inexact(a, b)
    if axes is not None:
        places = [normalize_axis("tensorsolve", a, axis) for axis in axes]
        a = moveaxis(a, places, range(a.ndim - len(places), a.ndim))
    shape = a.shape[b.ndim :]
    rows, columns = product(b.shape), product(shape)
    if not same_shape((*a.shape[: b.ndim], rows), (*b.shape, columns), a):
        refuse(
            "tensorsolve: a must have the sizes of b, then as many numbers again for x", a=a, b=b
        )
    return reshape(solve(reshape(a, (rows, columns)), ravel(b)), shape, name=name)


def tensorinv(a: TensorLike, ind: int = 2, *, name: str | None = None) -> Tensor:
    """The tensor that inverts tensordot(a, x, ...): the inverse of `a` as a square matrix.

    Args:
        a: its first `ind` axes have as many elements as the others.
        ind: positive.
        name: of the node.

    Returns:
        A tensor with the axes of `a` from `ind` on, then those before.

    Raises:
        ShapeError: not square.
        AttributeValueError: `ind` is not positive.
        DTypeError: floats narrower than float32.

    Source: numpy.linalg.tensorinv.

    Examples:
        >>> run(gc.linalg.tensorinv([[2.0, 0.0], [0.0, 4.0]], ind=1))
        Array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float32)
    """
    (a,) = promote_inexact(a)
    if type(ind) is not int or ind < 1:
        refuse(
            f"tensorinv: ind must be a positive int, got {ind!r}", error=AttributeValueError, a=a
        )
    first, rest = a.shape[:ind], a.shape[ind:]
    if product(first) != product(rest):
        refuse(f"tensorinv: the first {ind} axes must hold as many elements as the others", a=a)
    inverse = inv(reshape(a, (product(first), product(rest))))
    return reshape(inverse, (*rest, *first), name=name)
