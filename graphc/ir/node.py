"""`Tensor` and `Node`: the two records that make up a graph and a program.

A tensor does not point to its producer (as in a jaxpr): a pass replaces a node by another with the
*same* result tensors, and nothing downstream has to be rebuilt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Number
from operator import is_
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np

from graphc.copying import Uncopied
from graphc.errors import GraphError
from graphc.ir.dims import Shape
from graphc.ir.dtypes import SHORT, DType
from graphc.ir.source import Source, current_source
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.ir.graph import Graph
    from graphc.ir.opdef import OpDef
    from graphc.ir.program import Program

# The functions behind `x + y`, `x[i]`, `v.assign(t)`. `graphc.ops`, a higher layer, fills this.
_METHODS: dict[str, Callable[..., Tensor]] = {}


def bind_methods(table: Mapping[str, Callable[..., Tensor]]) -> None:
    """Sets the operators of `Tensor` and `Variable`. Called once, by `graphc.ops`."""
    _METHODS.update(table)


class Places:
    """`x.at[index]`: positions of `x` to update. Each method returns a new tensor; `x` is
    unchanged.

    `graphc.ops.arrays.updating.update` describes repeated updates of one position.
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Operand, index: Any) -> None:
        self._x = x
        self._index = index

    def get(self) -> Tensor:
        """`x[index]`."""
        return _METHODS["getitem"](self._x, self._index)

    def set(self, values: Any) -> Tensor:
        """`x` with `values` at the positions."""
        return _METHODS["update"](self._x, self._index, values, "set")

    def add(self, values: Any) -> Tensor:
        """`x` with `values` added at the positions."""
        return _METHODS["update"](self._x, self._index, values, "add")

    def mul(self, values: Any) -> Tensor:
        """`x` with its elements at the positions multiplied by `values`."""
        return _METHODS["update"](self._x, self._index, values, "mul")

    multiply = mul

    def min(self, values: Any) -> Tensor:
        """`x` with the minimum of `values` and its elements at the positions."""
        return _METHODS["update"](self._x, self._index, values, "min")

    def max(self, values: Any) -> Tensor:
        """`x` with the maximum of `values` and its elements at the positions."""
        return _METHODS["update"](self._x, self._index, values, "max")


class At:
    """`x.at`: takes an index, as `x` does, for an update: `x.at[i].set(values)`."""

    __slots__ = ("_x",)

    def __init__(self, x: Operand) -> None:
        self._x = x

    def __getitem__(self, index: Any) -> Places:
        return Places(self._x, index)


def is_comparable(value: object) -> bool:
    """Whether `x == value` compares elements. It does if `value` is a tensor, a number, or a
    container of numbers: a list, an array, a range, a buffer (`array.array`, `memoryview`), or an
    object with `__array__`.

    None, a string, a date or another object has no such elements, and equals no tensor.
    """
    if value is None or isinstance(value, (str, bytes, type)):
        return False
    if isinstance(value, np.generic) and not isinstance(value, np.number | np.bool_):
        return value.dtype in SHORT  # True for dtypes of ml_dtypes, but not for dates and records
    if isinstance(value, np.timedelta64):  # NumPy makes it a kind of integer
        return False
    if isinstance(value, (Operand, Number, list, tuple, range)):
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


def _unary(name: str) -> Callable[[Operand], Tensor]:
    return lambda self: _METHODS[name](self)


def _binary(name: str) -> Callable[[Operand, Any], Tensor]:
    return lambda self, other: _METHODS[name](self, other)


def _reflected(name: str) -> Callable[[Operand, Any], Tensor]:
    return lambda self, other: _METHODS[name](other, self)


class Operand(Uncopied):
    """A `Tensor` or a `Variable`, with NumPy's operators."""

    __slots__ = ()
    __array_priority__ = 1000  # a NumPy array on the left leaves the operation to us
    __array_ufunc__ = None

    type: TensorType

    @property
    def shape(self) -> Shape:
        """The dims, ints or named sizes."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _binary("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _binary("divide"), _reflected("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _binary("remainder"), _reflected("remainder")
    __pow__, __rpow__ = _binary("power"), _reflected("power")
    __matmul__, __rmatmul__ = _binary("matmul"), _reflected("matmul")
    __and__, __rand__ = _binary("logical_and"), _reflected("logical_and")
    __or__, __ror__ = _binary("logical_or"), _reflected("logical_or")
    __xor__, __rxor__ = _binary("logical_xor"), _reflected("logical_xor")
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")
    __neg__ = _unary("negative")
    __abs__ = _unary("abs")
    __invert__ = _unary("logical_not")

    def __getitem__(self, index: Any) -> Tensor:
        return _METHODS["getitem"](self, index)

    @property
    def at(self) -> At:
        """Updates of elements: `x.at[i].set(values)` returns a changed copy; also `.add`, `.mul`,
        ..."""
        return At(self)

    # `==` compares elements, as in NumPy. Dictionaries and sets still find tensors by identity:
    # they use `==` only for objects with equal hashes, and two live tensors have different ones.
    # Lists and tuples do use it: inside graphc, use `is`, `is_among`, `position_of`, `same_items`.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        if self is other and _weakref_asks():
            return True
        return _METHODS["equal"](self, other) if is_comparable(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return _METHODS["not_equal"](self, other) if is_comparable(other) else NotImplemented

    def __bool__(self) -> bool:
        raise GraphError(
            f"{self!r} has no truth value while the graph is built",
            source=current_source(),
            hint="use gc.where(condition, a, b), or run the graph to see a value; `==` compares "
            "elements: to ask whether two are the same tensor use `a is b`, and a set for `a in b`",
        )

    def __iter__(self) -> Any:
        raise GraphError(
            f"{self!r} cannot be iterated over while the graph is built",
            source=current_source(),
            hint="index it (t[0]), or use gc.scan over its leading axis",
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._refuse_value()

    def __float__(self) -> float:
        self._refuse_value()

    def __int__(self) -> int:
        self._refuse_value()

    def _refuse_value(self) -> NoReturn:
        raise GraphError(
            f"{self!r} has no value while the graph is built",
            source=current_source(),
            hint="run it: session.run(tensor); or use the gc.* function in place of NumPy's",
        )


class Tensor(Operand):
    """One value of a graph or program: a type, a name (`hidden/MatMul:0`) and its graph.

    Tensors are hashed by identity; `==` creates a node that compares elements.
    """

    __slots__ = ("__weakref__", "graph", "name", "type")

    instead = (
        "send the graph, which can be pickled and copied, and find it there by its name: "
        "graph.tensor(name)"
    )

    def __init__(self, type: TensorType, name: str = "", graph: Graph | None = None) -> None:
        self.type = type
        self.name = name
        self.graph = graph

    @property
    def node(self) -> Node:
        """The node of the graph that produces this tensor."""
        if self.graph is None:
            raise GraphError(f"tensor {self.name!r} belongs to a program, not to a graph")
        return self.graph.producer(self)

    def __repr__(self) -> str:
        return f"<Tensor {self.name or '?'} {self.type}>"


C = TypeVar("C")
EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True, eq=False, slots=True)
class Node(Uncopied):
    """One application of an operator; immutable, compared by identity.

    Attributes:
        op: the operator's record.
        inputs: operands, in the operator's order.
        outputs: result tensors, which this node defines.
        attrs: attributes, including defaults; never mutated.
        regions: the bodies, for operators that have some.
        name: unique in its graph, with the name scopes: `hidden/MatMul`.
        source: the user's line; every rewrite keeps it.
        device: the requested device, or "".
        control_inputs: names of nodes that run whenever this one does.
    """

    instead: ClassVar[str] = (
        "send the graph, which can be pickled and copied, and find it there: graph.node(name)"
    )

    op: OpDef
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attrs: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    regions: tuple[Program, ...] = ()
    name: str = ""
    source: Source | None = None
    device: str = ""
    control_inputs: tuple[str, ...] = ()

    def replace(self, **changes: Any) -> Node:
        """A copy with the given fields changed."""
        return replace(self, **changes)

    def __repr__(self) -> str:
        outputs = ", ".join(str(t.type) for t in self.outputs)
        return f"<Node {self.name or '?'} = {self.op.name} -> {outputs or 'nothing'}>"


# `in`, `list.index` and `==` of sequences use `==` of the elements, which for tensors makes nodes.


def is_among(item: Any, items: Iterable[Any]) -> bool:
    """Whether `item` itself is one of `items`: `in` by identity."""
    return any(other is item for other in items)


def position_of(item: Any, items: Iterable[Any]) -> int:
    """The first position of `item` itself: `list.index` by identity. It must be there."""
    return next(i for i, other in enumerate(items) if other is item)


def same_items(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two sequences have the same items in the same order: `==` by identity."""
    return len(a) == len(b) and all(map(is_, a, b))


def by_identity(cls: type[C]) -> type[C]:
    """Makes `==` of a class of named tuples compare the tensors among the fields by identity."""

    def equal(a: Any, b: Any) -> bool:
        return type(a) is type(b) and all(
            x is y or (not isinstance(x, Operand) and bool(x == y))
            for x, y in zip(a, b, strict=True)
        )

    cls.__eq__ = equal  # type: ignore[method-assign]
    cls.__ne__ = lambda a, b: not equal(a, b)  # type: ignore[method-assign]
    cls.__hash__ = tuple.__hash__  # type: ignore[assignment, method-assign]
    return cls


def describe_tensors(tensors: Mapping[str, Tensor]) -> list[str]:
    """Rows for an error: label, name, type and user line of each tensor, in columns."""
    rows = []
    for label, tensor in tensors.items():
        name, source = _name_and_source(tensor)
        type_text = f"{tensor.type.dtype.name}[{', '.join(map(str, tensor.type.shape))}]"
        rows.append((label, name, type_text, str(source or "")))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _name_and_source(tensor: Tensor) -> tuple[str, Source | None]:
    """The name and line that users know: those of the variable for a value of a variable, and those
    of the operand for a tensor marked for `check_numerics`."""
    graph = tensor.graph
    producer = graph.find_producer(tensor) if graph is not None else None
    if producer is not None and producer.op.name == "InRange":
        return _name_and_source(producer.inputs[0])
    if graph is None or producer is None:
        return tensor.name, None
    variable = graph.root.variables.get(producer.attrs.get("variable", ""))
    if variable is not None and not producer.inputs:
        return variable.name, variable.source
    return tensor.name, producer.source
