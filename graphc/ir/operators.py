"""Python's operators for tensors and variables: `x + y`, `x == y`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.copying import Uncopied
from graphc.errors import DTypeError
from graphc.ir.dtypes import SHORT

if TYPE_CHECKING:
    from graphc.ir.node import Tensor
    from graphc.ir.operand import Operand

# The functions behind `x + y`, `x[i]`, `x.sum()` and `v.assign(t)`. `graphc.ops`, a higher layer,
# fills the table once.
METHODS: dict[str, Callable[..., Tensor]] = {}


def bind_methods(table: Mapping[str, Callable[..., Any]]) -> None:
    """Gives `Tensor` and `Variable` their methods. `graphc.ops` calls it once."""
    METHODS.update(table)


class JaxValueError(DTypeError):
    """An operand is a value that JAX traces. Only JAX's functions accept it."""


# Gives the JAX value that represents a tensor of the graph inside a function that JAX traces.
CAPTURE: ContextVar[Callable[[Operand], Any] | None] = ContextVar("capture", default=None)


@contextmanager
def capturing(capture: Callable[[Operand], Any]) -> Iterator[None]:
    """Inside the context, JAX's functions call `capture` for tensors among their operands."""
    token = CAPTURE.set(capture)
    try:
        yield
    finally:
        CAPTURE.reset(token)


def _binary(name: str, *, reflected: bool = False) -> Callable[[Any, Any], Tensor]:
    """The method of a binary operator, such as `__add__`; with `reflected`, that whose left
    operand is the other one, such as `__radd__`."""

    def method(self: Any, other: Any) -> Any:
        try:
            return METHODS[name](other, self) if reflected else METHODS[name](self, other)
        except JaxValueError:
            if CAPTURE.get() is None:
                raise
            return NotImplemented  # JAX's own operator then uses `__jax_array__`

    return method


def is_comparable(value: object) -> bool:
    """Whether `x == value` compares elements. It does if `value` is a tensor, a number, or a
    container of numbers: a list, an array, a range, a buffer (`array.array`, `memoryview`), or an
    object with `__array__`.

    None, a string, a date or another object has no such elements, and is not equal to any tensor.
    """
    if value is None or isinstance(value, (str, bytes, type)):
        return False
    if isinstance(value, np.generic) and not isinstance(value, np.number | np.bool_):
        return value.dtype in SHORT  # includes dtypes of ml_dtypes, but not dates and records
    if isinstance(value, np.timedelta64):  # in NumPy, this is a subclass of the integers
        return False
    if isinstance(value, (Operators, Number, list, tuple, range)):
        return True
    return any(hasattr(value, name) for name in _ARRAY_LIKE) or _is_buffer(value)


_ARRAY_LIKE = ("dtype", "__array__", "__array_interface__", "__dlpack__")


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True


def _weakref_asks() -> bool:
    """Whether the caller of `==` is a method of `WeakKeyDictionary` or `WeakSet`.

    A lookup there compares the tensors behind two weak references, and needs a bool.
    """
    caller = sys._getframe(2)
    return caller.f_globals.get("__name__") in ("weakref", "_weakrefset")


class Operators(Uncopied):
    """The operators of Python that tensors and variables have."""

    __slots__ = ()
    __array_priority__ = 1000  # with a NumPy array on the left, NumPy calls the methods here

    __add__ = _binary("add")
    __radd__ = _binary("add", reflected=True)
    __sub__ = _binary("subtract")
    __rsub__ = _binary("subtract", reflected=True)
    __mul__ = _binary("multiply")
    __rmul__ = _binary("multiply", reflected=True)
    __truediv__ = _binary("divide")
    __rtruediv__ = _binary("divide", reflected=True)
    __floordiv__ = _binary("floor_divide")
    __rfloordiv__ = _binary("floor_divide", reflected=True)
    __mod__ = _binary("remainder")
    __rmod__ = _binary("remainder", reflected=True)
    __pow__ = _binary("power")
    __rpow__ = _binary("power", reflected=True)
    __matmul__ = _binary("matmul")
    __rmatmul__ = _binary("matmul", reflected=True)
    __and__ = _binary("logical_and")
    __rand__ = _binary("logical_and", reflected=True)
    __or__ = _binary("logical_or")
    __ror__ = _binary("logical_or", reflected=True)
    __xor__ = _binary("logical_xor")
    __rxor__ = _binary("logical_xor", reflected=True)
    __lshift__ = _binary("left_shift")
    __rlshift__ = _binary("left_shift", reflected=True)
    __rshift__ = _binary("right_shift")
    __rrshift__ = _binary("right_shift", reflected=True)
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")

    def __neg__(self) -> Tensor:
        return METHODS["negative"](self)

    def __abs__(self) -> Tensor:
        return METHODS["abs"](self)

    def __invert__(self) -> Tensor:
        return METHODS["logical_not"](self)

    # `==` compares elements, as in NumPy. Dictionaries and sets still find tensors by identity:
    # they use `==` only for objects with equal hashes, and two live tensors have different hashes.
    # But lists and tuples use it. In graphc, use `is`, `is_among`, `position_of` or `same_items`.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        if self is other and _weakref_asks():
            return True
        return METHODS["equal"](self, other) if is_comparable(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return METHODS["not_equal"](self, other) if is_comparable(other) else NotImplemented
