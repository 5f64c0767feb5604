"""`Operand`: the base class of tensors and variables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from graphc.errors import ArgumentError, DTypeError, GraphError
from graphc.ir.array_methods import ArrayMethods
from graphc.ir.at_index import At
from graphc.ir.dims import Dim, Shape, product
from graphc.ir.dtypes import DType
from graphc.ir.name_errors import no_assignment, no_attribute
from graphc.ir.operators import CAPTURE, METHODS
from graphc.ir.types import TensorType
from graphc.jax_internals import ARRAY_OPERATOR

if TYPE_CHECKING:
    from graphc.ir.node import Tensor
    from graphc.ir.operand_types import IndexLike


class Operand(ArrayMethods):
    """A `Tensor` or a `Variable`.

    This class adds what Python and NumPy do with an object: indexing, iteration, `len`, calls of
    NumPy's functions. Where Python needs a value, it raises an error that says what to do instead.
    """

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
            raise DTypeError.here(
                f"{self!r} is a scalar and has no length",
                hint="gc.size(x) is the number of its elements, 1",
            )
        raise GraphError.here(
            f"len() of {self!r}: its first axis has the size {shape[0]}, which is known only when "
            "the graph runs",
            hint="use x.shape[0]: it works in shapes and in arithmetic with tensors",
        )

    def __iter__(self) -> Iterator[Tensor]:
        """The slices along the first axis, as from `gc.unstack`. Its size must be an int."""
        shape = self.type.shape
        if shape and isinstance(shape[0], int):
            slices: Any = METHODS["unstack"](self)
            return iter(slices)
        what = f"its first axis has the size {shape[0]}" if shape else "it is a scalar"
        raise GraphError.here(
            f"{self!r} cannot be iterated over while the graph is built: {what}",
            hint="gc.scan and gc.map_fn iterate over the first axis when the graph runs"
            if shape
            else "a tensor with a first axis of known size gives its slices",
        )

    def __round__(self, digits: int = 0) -> Tensor:
        return METHODS["round"](self, digits)

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        raise GraphError.here(
            f"{self!r} has no value to format as {spec!r} while the graph is built",
            hint="format what session.run returns, or use gc.print in the graph",
        )

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise GraphError.here(
            f"{self!r}: a tensor never changes",
            hint="x.at[index].set(value) is a changed copy, v.assign(...) changes a variable",
        )

    def __delitem__(self, index: Any) -> NoReturn:
        raise GraphError.here(
            f"{self!r}: a tensor never changes",
            hint="gc.delete(x, places, axis) is a copy without them",
        )

    def __bool__(self) -> bool:
        raise GraphError.here(
            f"{self!r} has no truth value while the graph is built",
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
        raise GraphError.here(
            f"a function of JAX is called with {self!r}, which has no value while the graph is "
            "built",
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
            raise ArgumentError.here(
                f"{self!r} is used where Python needs an int, but it has no value while the graph "
                "is built",
                hint="gc.fori_loop(0, n, body, init) repeats n times, gc.take(xs, i) takes one of "
                "a stack, gc.switch(i, branches) chooses; sizes are numbers or those of x.shape",
            )

    def _refuse_value(self) -> NoReturn:
        raise GraphError.here(
            f"{self!r} has no value while the graph is built",
            hint="run it: session.run(tensor). In the graph, gc.exp and so on stand for functions "
            "of math, and gc.stack makes one tensor of a list",
        )
