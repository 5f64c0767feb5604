"""`Operand`: the base class of tensors and variables, with the operators of Python and the methods
of NumPy's arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

import numpy as np

from graphc.errors import ArgumentError, DTypeError, GraphError
from graphc.ir.at_index import At
from graphc.ir.calls import explain_methods
from graphc.ir.dims import Dim, DimExpr, Shape, product
from graphc.ir.dtypes import DType
from graphc.ir.name_errors import no_assignment, no_attribute
from graphc.ir.operators import CAPTURE, METHODS, Operators
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.jax_internals import ARRAY_OPERATOR

if TYPE_CHECKING:
    from graphc.ir.node import Tensor

Axes = int | Sequence[int] | None


class SupportsArray(Protocol):
    """An object that NumPy can read: an array of NumPy, JAX, pandas or torch."""

    def __array__(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array."""


OperandLike: TypeAlias = "Operand | DimExpr | complex | SupportsArray | Sequence[Any]"
"""A value that an operator converts to a tensor: `graphc.typing.TensorLike` for this layer."""

DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any]
"""`graphc.typing.DTypeLike` for this layer."""

IndexLike: TypeAlias = "OperandLike | slice | EllipsisType | tuple[Any, ...] | None"
"""An index: the text between the brackets of `x[...]`."""


class Operand(Operators):
    """A `Tensor` or a `Variable`, with the operators and methods of NumPy's arrays."""

    __slots__ = ()

    type: TensorType

    @property
    def shape(self) -> Shape:
        """The dims: ints or named sizes.

        Examples:
            >>> gc.placeholder(("batch", 3), name="x").shape
            (batch, 3)
        """
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The type of an element, a NumPy dtype.

        Examples:
            >>> gc.constant([1.5]).dtype
            dtype('float32')
        """
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes.

        Examples:
            >>> gc.zeros((2, 3)).ndim
            2
        """
        return len(self.type.shape)

    @property
    def size(self) -> Dim:
        """The number of elements: an int, or an expression of named sizes.

        Examples:
            >>> gc.zeros((2, 3)).size
            6
        """
        return product(self.type.shape)

    def __getitem__(self, index: IndexLike) -> Tensor:
        return METHODS["getitem"](self, index)

    @property
    def at(self) -> At:
        """Gives a copy with changed elements: `x.at[i].set(values)`, `.add`, `.mul`, ...

        Examples:
            >>> run(gc.constant([1, 2, 3]).at[0].set(9))
            Array([9, 2, 3], dtype=int32)
        """
        return At(self)

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

    def __getattr__(self, name: str) -> NoReturn:
        if name == "type":  # the error needs the repr, which needs the type
            raise AttributeError(name)
        raise no_attribute(self, name)

    if not TYPE_CHECKING:  # type checkers find such assignments

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "name":  # the graph finds the tensor by its name
                raise no_assignment(self, name)
            try:
                object.__setattr__(self, name, value)
            except AttributeError:
                raise no_assignment(self, name) from None

    def __len__(self) -> int:
        """The size of the first axis, if it is an int."""
        shape = self.type.shape
        if shape and isinstance(shape[0], int):
            return shape[0]
        if not shape:
            raise DTypeError(
                f"{self!r} is a scalar and has no length",
                source=current_source(),
                hint="gc.size(x) is the number of its elements, 1",
            )
        raise GraphError(
            f"len() of {self!r}: its first axis has the size {shape[0]}, which is known only when "
            "the graph runs",
            source=current_source(),
            hint="use x.shape[0]: it works in shapes and in arithmetic with tensors",
        )

    def __iter__(self) -> Iterator[Tensor]:
        """The slices along the first axis, as from `gc.unstack`. Its size must be an int."""
        shape = self.type.shape
        if shape and isinstance(shape[0], int):
            slices: Any = METHODS["unstack"](self)
            return iter(slices)
        what = f"its first axis has the size {shape[0]}" if shape else "it is a scalar"
        raise GraphError(
            f"{self!r} cannot be iterated over while the graph is built: {what}",
            source=current_source(),
            hint="gc.scan and gc.map_fn iterate over the first axis when the graph runs"
            if shape
            else "a tensor with a first axis of known size gives its slices",
        )

    def __round__(self, digits: int = 0) -> Tensor:
        return METHODS["round"](self, digits)

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        raise GraphError(
            f"{self!r} has no value to format as {spec!r} while the graph is built",
            source=current_source(),
            hint="format what session.run returns, or use gc.print in the graph",
        )

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise GraphError(
            f"{self!r}: a tensor never changes",
            source=current_source(),
            hint="x.at[index].set(value) is a changed copy, v.assign(...) changes a variable",
        )

    def __delitem__(self, index: Any) -> NoReturn:
        raise GraphError(
            f"{self!r}: a tensor never changes",
            source=current_source(),
            hint="gc.delete(x, places, axis) is a copy without them",
        )

    def __bool__(self) -> bool:
        raise GraphError(
            f"{self!r} has no truth value while the graph is built",
            source=current_source(),
            hint="gc.cond(condition, f, g) chooses when the graph runs, gc.where(condition, a, b) "
            "chooses elements, gc.maximum(a, b) is the greater one, `&` and `|` combine "
            "conditions. `==` compares elements: to ask whether two are the same tensor use "
            "`a is b`, and a set for `a in b`",
        )

    def __array_function__(
        self, function: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """`np.mean(x)` is `gc.mean(x)`."""
        return METHODS["numpy"](function, args, kwargs)

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """`np.exp(x)` is `gc.exp(x)`."""
        return METHODS["numpy_ufunc"](function, method, args, kwargs)

    @property
    def __jax_array__(self) -> Callable[[], Any]:
        """JAX looks for this attribute in `jnp.exp(x)`, and in arithmetic with a value it traces.

        Functions of JAX get an error, because JAX's own errors do not say what to do. For operators
        of JAX's arrays the attribute is absent, so that Python uses the operators of tensors.
        """
        capture = CAPTURE.get()
        if capture is not None:
            return lambda: capture(self)
        if sys._getframe(1).f_code.co_name.startswith(ARRAY_OPERATOR):
            raise AttributeError("__jax_array__", name="__jax_array__", obj=self)
        raise GraphError(
            f"a function of JAX is called with {self!r}, which has no value while the graph is "
            "built",
            source=current_source(),
            hint="most functions of jax.numpy have the same name in gc; "
            "gc.from_jax(function)(x) makes nodes of any function",
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._refuse_value()

    def __float__(self) -> float:
        self._refuse_value()

    def __int__(self) -> int:
        self._refuse_value()

    if not TYPE_CHECKING:  # type checkers reject a tensor where Python needs an int

        def __index__(self) -> NoReturn:
            # A `TypeError`, like Python's own error for objects without `__index__`.
            raise ArgumentError(
                f"{self!r} is used where Python needs an int, but it has no value while the graph "
                "is built",
                source=current_source(),
                hint="gc.fori_loop(0, n, body, init) repeats n times, gc.take(xs, i) takes one of "
                "a stack, gc.switch(i, branches) chooses; sizes are numbers or those of x.shape",
            )

    def _refuse_value(self) -> NoReturn:
        raise GraphError(
            f"{self!r} has no value while the graph is built",
            source=current_source(),
            hint="run it: session.run(tensor). In the graph, gc.exp and so on stand for functions "
            "of math, and gc.stack makes one tensor of a list",
        )


explain_methods(Operand)


def _one_sequence(values: tuple[Any, ...]) -> Any:
    """`f(2, 3)` and `f((2, 3))` mean the same."""
    if len(values) == 1 and not isinstance(values[0], int):
        return values[0]
    return values
