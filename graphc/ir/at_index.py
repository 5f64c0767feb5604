"""`x.at[index]`: a copy of a tensor with changed elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from graphc.errors import ArgumentError
from graphc.ir.calls import explain_methods
from graphc.ir.members import Helpful
from graphc.ir.operators import METHODS

if TYPE_CHECKING:
    from graphc.ir.node import Tensor
    from graphc.ir.operand import Operand
    from graphc.ir.operand_types import IndexLike, OperandLike


class Places(Helpful):
    """`x.at[index]`: positions of `x` to update. Each method returns a new tensor; `x` is
    unchanged.

    `graphc.ops.arrays.updating.update` describes repeated updates of one position.
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Operand, index: IndexLike) -> None:
        self._x = x
        self._index = index

    def get(self) -> Tensor:
        """`x[index]`."""
        return METHODS["getitem"](self._x, self._index)

    def set(self, values: OperandLike) -> Tensor:
        """`x` with `values` at the positions."""
        return METHODS["update"](self._x, self._index, values, "set")

    def add(self, values: OperandLike) -> Tensor:
        """`x` with `values` added at the positions."""
        return METHODS["update"](self._x, self._index, values, "add")

    def mul(self, values: OperandLike) -> Tensor:
        """`x` with its elements at the positions multiplied by `values`."""
        return METHODS["update"](self._x, self._index, values, "mul")

    multiply = mul

    def min(self, values: OperandLike) -> Tensor:
        """`x` with the minimum of `values` and its elements at the positions."""
        return METHODS["update"](self._x, self._index, values, "min")

    def max(self, values: OperandLike) -> Tensor:
        """`x` with the maximum of `values` and its elements at the positions."""
        return METHODS["update"](self._x, self._index, values, "max")


class At(Helpful):
    """`x.at`. It is indexed in the same way as `x`, for an update: `x.at[i].set(values)`."""

    __slots__ = ("_x",)

    def __init__(self, x: Operand) -> None:
        self._x = x

    def __getitem__(self, index: IndexLike) -> Places:
        return Places(self._x, index)

    if not TYPE_CHECKING:  # type checkers reject such a call

        def __call__(self, *index: IndexLike) -> NoReturn:
            raise ArgumentError.here(
                f"{self._x!r}: at is not a function", hint="write brackets: x.at[index].set(values)"
            )


explain_methods(Places)
