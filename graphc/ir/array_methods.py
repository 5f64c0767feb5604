"""`ArrayMethods`: the attributes and methods of NumPy's arrays, for tensors and variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.ir.calls import explain_methods
from graphc.ir.dims import Dim
from graphc.ir.operand_types import Axes, DTypeLike, OperandLike
from graphc.ir.operators import METHODS, Operators

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphc.ir.node import Tensor


class ArrayMethods(Operators):
    """The attributes and methods of NumPy's arrays that make nodes."""

    __slots__ = ()

    @property
    def T(self) -> Tensor:
        """The tensor with its axes in reverse order.

        Examples:
            >>> gc.zeros((2, 3)).T.shape
            (3, 2)
        """
        return METHODS["transpose"](self)

    @property
    def mT(self) -> Tensor:
        """The tensor with its last two axes exchanged.

        Examples:
            >>> gc.zeros((5, 2, 3)).mT.shape
            (5, 3, 2)
        """
        return METHODS["swapaxes"](self, -1, -2)

    @property
    def real(self) -> Tensor:
        """The real part, elementwise.

        Examples:
            >>> run(gc.constant(3 + 4j).real)
            Array(3., dtype=float32)
        """
        return METHODS["real"](self)

    @property
    def imag(self) -> Tensor:
        """The imaginary part, elementwise; zeros for real numbers.

        Examples:
            >>> run(gc.constant(3 + 4j).imag)
            Array(4., dtype=float32)
        """
        return METHODS["imag"](self)

    def reshape(self, *shape: Dim | Sequence[Dim]) -> Tensor:
        """`gc.reshape`: `x.reshape(2, -1)` or `x.reshape((2, -1))`.

        Examples:
            >>> gc.zeros((4, 3)).reshape(2, -1).shape
            (2, 6)
        """
        return METHODS["reshape"](self, _one_sequence(shape))

    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """`gc.transpose`: `x.transpose(1, 0)`, `x.transpose((1, 0))`; without axes, `x.T`.

        Examples:
            >>> gc.zeros((2, 3, 4)).transpose(2, 0, 1).shape
            (4, 2, 3)
        """
        return METHODS["transpose"](self, _one_sequence(axes) if axes else None)

    def astype(self, dtype: DTypeLike) -> Tensor:
        """`gc.cast`: the tensor in another dtype.

        Examples:
            >>> run(gc.constant([1.7]).astype("int32"))
            Array([1], dtype=int32)
        """
        return METHODS["cast"](self, dtype)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """`gc.swapaxes`: the tensor with two axes exchanged.

        Examples:
            >>> gc.zeros((2, 3, 4)).swapaxes(0, 2).shape
            (4, 3, 2)
        """
        return METHODS["swapaxes"](self, axis1, axis2)

    def squeeze(self, axis: Axes = None) -> Tensor:
        """`gc.squeeze`: the tensor without the given axes, or without all axes of size 1.

        Examples:
            >>> gc.zeros((2, 1, 3)).squeeze(1).shape
            (2, 3)
        """
        return METHODS["squeeze"](self, axis)

    def ravel(self) -> Tensor:
        """`gc.ravel`: the elements as one axis, in row-major order.

        Examples:
            >>> gc.zeros((2, 3)).ravel().shape
            (6,)
        """
        return METHODS["reshape"](self, (-1,))

    def flatten(self) -> Tensor:
        """The elements as one axis, in row-major order. `gc.flatten(x, 1)` keeps the batch.

        Examples:
            >>> gc.zeros((2, 3)).flatten().shape
            (6,)
        """
        return METHODS["reshape"](self, (-1,))

    def repeat(self, repeats: OperandLike, axis: int | None = None) -> Tensor:
        """`gc.repeat`: each element along `axis` several times in a row.

        Examples:
            >>> run(gc.constant([1, 2]).repeat(2))
            Array([1, 1, 2, 2], dtype=int32)
        """
        return METHODS["repeat"](self, repeats, axis)

    def take(self, indices: OperandLike, axis: int | None = None) -> Tensor:
        """`gc.take`: the slices at `indices`; by default, of the flattened tensor, as in NumPy.

        Examples:
            >>> run(gc.constant([[1, 2], [3, 4]]).take([1], 0))
            Array([[3, 4]], dtype=int32)
        """
        return METHODS["take"](self, indices, axis)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """`gc.sum` over `axis`: one, several, or None for all axes.

        Examples:
            >>> run(gc.constant([[1, 2], [3, 4]]).sum(0))
            Array([4, 6], dtype=int32)
        """
        return METHODS["sum"](self, axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """`gc.mean` over `axis`: one, several, or None for all axes.

        Examples:
            >>> run(gc.constant([[1.0, 2.0], [3.0, 4.0]]).mean(0))
            Array([2., 3.], dtype=float32)
        """
        return METHODS["mean"](self, axis, keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """`gc.prod` over `axis`: one, several, or None for all axes.

        Examples:
            >>> run(gc.constant([[1, 2], [3, 4]]).prod())
            Array(24, dtype=int32)
        """
        return METHODS["prod"](self, axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """`gc.max` over `axis`: one, several, or None for all axes.

        Examples:
            >>> run(gc.constant([[1, 2], [3, 4]]).max(1, keepdims=True))
            Array([[2],
                   [4]], dtype=int32)
        """
        return METHODS["max"](self, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """`gc.min` over `axis`: one, several, or None for all axes.

        Examples:
            >>> run(gc.constant([[1, 2], [3, 4]]).min())
            Array(1, dtype=int32)
        """
        return METHODS["min"](self, axis, keepdims)

    def any(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """`gc.any` over `axis`: one, several, or None for all axes.

        Examples:
            >>> run(gc.constant([False, True]).any())
            Array(True, dtype=bool)
        """
        return METHODS["any"](self, axis, keepdims)

    def all(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """`gc.all` over `axis`: one, several, or None for all axes.

        Examples:
            >>> run(gc.constant([False, True]).all())
            Array(False, dtype=bool)
        """
        return METHODS["all"](self, axis, keepdims)

    def std(self, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """`gc.std`: the standard deviation over `axis`.

        Examples:
            >>> run(gc.constant([1.0, 3.0]).std())
            Array(1., dtype=float32)
        """
        return METHODS["std"](self, axis, keepdims, ddof)

    def var(self, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """`gc.var`: the variance over `axis`.

        Examples:
            >>> run(gc.constant([1.0, 3.0]).var(ddof=1))
            Array(2., dtype=float32)
        """
        return METHODS["var"](self, axis, keepdims, ddof)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """`gc.argmax`: the position (int32) of the greatest element along `axis`.

        Examples:
            >>> run(gc.constant([1, 3, 2]).argmax())
            Array(1, dtype=int32)
        """
        return METHODS["argmax"](self, axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """`gc.argmin`: the position (int32) of the smallest element along `axis`.

        Examples:
            >>> run(gc.constant([3, 1, 2]).argmin())
            Array(1, dtype=int32)
        """
        return METHODS["argmin"](self, axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None) -> Tensor:
        """`gc.cumsum`: the sums of the elements up to each one.

        Examples:
            >>> run(gc.constant([1, 2, 3]).cumsum())
            Array([1, 3, 6], dtype=int32)
        """
        return METHODS["cumsum"](self, axis)

    def cumprod(self, axis: int | None = None) -> Tensor:
        """`gc.cumprod`: the products of the elements up to each one.

        Examples:
            >>> run(gc.constant([1, 2, 3]).cumprod())
            Array([1, 2, 6], dtype=int32)
        """
        return METHODS["cumprod"](self, axis)

    def clip(self, min: OperandLike | None = None, max: OperandLike | None = None) -> Tensor:
        """`gc.clip`: elements below `min` become `min`, elements above `max` become `max`.

        Examples:
            >>> run(gc.constant([-5, 1, 9]).clip(0, 3))
            Array([0, 1, 3], dtype=int32)
        """
        return METHODS["clip"](self, min, max)

    def round(self, decimals: int = 0) -> Tensor:
        """`gc.round`: rounds to this number of decimals, ties to even.

        Examples:
            >>> run(gc.constant([1.26]).round(1))
            Array([1.3], dtype=float32)
        """
        return METHODS["round"](self, decimals)

    def dot(self, other: OperandLike) -> Tensor:
        """`gc.dot`: NumPy's dot product.

        Examples:
            >>> run(gc.constant([1, 2]).dot([3, 4]))
            Array(11, dtype=int32)
        """
        return METHODS["dot"](self, other)

    def conj(self) -> Tensor:
        """`gc.conj`: the complex conjugate, elementwise.

        Examples:
            >>> run(gc.constant(3 + 4j).conj())
            Array(3.-4.j, dtype=complex64)
        """
        return METHODS["conj"](self)


explain_methods(ArrayMethods)


def _one_sequence(values: tuple[Any, ...]) -> Any:
    """`f(2, 3)` and `f((2, 3))` mean the same."""
    if len(values) == 1 and not isinstance(values[0], int):
        return values[0]
    return values
