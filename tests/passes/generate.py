"""Random valid programs for the property tests of passes: a hypothesis strategy.

The programs contain what passes look for: zeros, ones and other constants, moves of elements that
undo each other, copies of earlier nodes, named sizes, and parts that no output needs. Every
operator has a `fold`, and no value depends on the sign of a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from graphc.ir.dims import Dim, Shape, product, substitute, symbol
from graphc.ir.dtypes import as_dtype, is_floating
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.ops.arrays import joining, shape, slicing
from graphc.ops.core import emit
from graphc.ops.elementwise import arithmetic, comparison, powers, rounding
from graphc.ops.matrices import matrix_product
from graphc.ops.reductions import reduction
from graphc.ops.structure import state

T = TypeVar("T")

F32, F64, I32, I8, BOOL = (as_dtype(name) for name in ("f32", "f64", "i32", "int8", "bool"))
N = symbol("n")
SHAPES: tuple[Shape, ...] = ((), (3,), (2, 3), (N,), (N, 3), (1, 3), (N, 1), (2, N, 3))
SIZE_LIMIT = 512  # elements, with n = 3

NUMBERS = (0, 1, 2, -1, 3)
_BINARY = (arithmetic.ADD, arithmetic.MULTIPLY, arithmetic.SUBTRACT)
_ORDERED = (arithmetic.MAXIMUM, arithmetic.MINIMUM)
_UNARY = (arithmetic.NEGATIVE, arithmetic.NEGATIVE, arithmetic.ABS, rounding.FLOOR, powers.SQUARE)
_LOGICAL = (comparison.LOGICAL_AND, comparison.LOGICAL_OR)
_REDUCTIONS = (reduction.REDUCE_SUM, reduction.REDUCE_MAX, reduction.REDUCE_MEAN)


@st.composite
def programs(draw: Any, nodes: int = 16) -> Program:
    """A program of about `nodes` nodes over float, integer and bool inputs."""
    return _Builder(draw).build(nodes)


class _Builder:
    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.graph = Graph(name="generated")
        self.tensors: list[Tensor] = []

    def build(self, nodes: int) -> Program:
        for i in range(self.draw(st.integers(1, 3))):
            dtype = self.one_of((F32, I32, BOOL))
            self.tensors.append(
                self.graph.add_input(TensorType(dtype, self.one_of(SHAPES)), f"x{i}")
            )
        # A size must be the size of an input: a program cannot know others.
        self.size_of_inputs = N if any(N in t.shape for t in self.tensors) else 3
        moves = (
            self.constant, self.binary, self.with_number, self.negated, self.unary, self.power,
            self.where, self.compare, self.cast, self.identity, self.reshape, self.transpose,
            self.broadcast, self.slice, self.pad, self.reverse, self.concatenate, self.split,
            self.reduce, self.matmul, self.again, self.size,
        )  # fmt: skip
        # Few kinds of steps for each program, so that equal kinds meet.
        few = [self.one_of(moves) for _ in range(self.draw(st.integers(2, 6)))]
        for _ in range(self.draw(st.integers(1, nodes))):
            self.one_of(few)()
        outputs = self.outputs()
        return Program(
            "generated",
            tuple(Port(t.name, "feed", t) for t in self.graph.inputs),
            tuple(self.graph.nodes),
            tuple(Port(f"out{i}", "fetch", t) for i, t in enumerate(outputs)),
        )

    def outputs(self) -> list[Tensor]:
        """Any tensor, and most tensors that no node uses; the others are dead code."""
        used = {t for node in self.graph.nodes for t in node.inputs}
        unused = [t for t in self.tensors if t not in used and self.draw(st.integers(0, 3))]
        return [self.any(), *unused]

    # -- choosing ---------------------------------------------------------------------------

    def one_of(self, items: Sequence[T]) -> T:
        return items[self.draw(st.integers(0, len(items) - 1))]

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def any(self, fits: Callable[[Tensor], bool] = lambda t: True) -> Tensor:
        """A tensor that fits, in half of the cases the latest one; a constant if there is none."""
        found = [t for t in reversed(self.tensors) if fits(t)]
        if not found:
            return self.constant()
        return found[0] if self.flag() else self.one_of(found)

    def numeric(self) -> Tensor:
        return self.any(lambda t: t.dtype != BOOL)

    def add(self, op: OpDef, *inputs: Tensor, **attrs: Any) -> Node:
        node = self.graph.add(op, inputs, attrs)
        for tensor in node.outputs:
            if prod(substitute(d, {"n": 3}) for d in tensor.shape) <= SIZE_LIMIT:
                self.tensors.append(tensor)
        return node

    # -- one step each ----------------------------------------------------------------------

    def constant(self) -> Tensor:
        dtype = self.one_of((F32, I32, BOOL))
        dims = self.one_of(((), (), (3,), (2, 3)))
        value = np.full(dims, self.one_of(NUMBERS), dtype)
        if dims and self.flag():
            value = np.arange(value.size).reshape(dims).astype(dtype)
        return self.add(emit.CONSTANT, value=value).outputs[0]

    def binary(self) -> None:
        x = self.any()
        y = self.any(lambda t: t.dtype == x.dtype and _broadcast(t.shape, x.shape))
        if y.dtype != x.dtype:
            y = x
        if self.flag():
            x, y = y, x
        ops = _LOGICAL if x.dtype == BOOL else _BINARY + _ORDERED
        self.add(self.one_of(ops), x, y)

    def with_number(self) -> None:
        """x + 0, 1 * x, x - 3, x and true, ..."""
        x = self.any()
        y = self.add(emit.CONSTANT, value=np.asarray(self.one_of(NUMBERS), x.dtype)).outputs[0]
        op = self.one_of(_LOGICAL if x.dtype == BOOL else _BINARY)
        self.add(op, *((y, x) if self.flag() else (x, y)))

    def negated(self) -> None:
        """x + -y, -x * -y, ..."""
        x = self.numeric()
        if x.dtype != BOOL:
            y = self.add(arithmetic.NEGATIVE, x).outputs[0]
            self.add(self.one_of(_BINARY), self.one_of((x, y)), y)

    def unary(self) -> None:
        x = self.any()
        self.add(comparison.LOGICAL_NOT if x.dtype == BOOL else self.one_of(_UNARY), x)

    def power(self) -> None:
        x = self.numeric()
        if x.dtype == BOOL:
            return
        exponent = self.one_of((0, 1, 2, 3))
        if self.flag():
            self.add(powers.INTEGER_POWER, x, exponent=exponent)
        else:
            y = self.add(emit.CONSTANT, value=np.asarray(exponent, x.dtype)).outputs[0]
            self.add(powers.POWER, x, y)

    def where(self) -> None:
        x = self.any()
        y = self.any(lambda t: t.type == x.type)
        y = y if y.type == x.type else x
        condition = self.any(lambda t: t.dtype == BOOL and _broadcast(t.shape, x.shape))
        if condition.dtype != BOOL or not _broadcast(condition.shape, x.shape):
            condition = self.add(emit.CONSTANT, value=np.asarray(self.flag())).outputs[0]
        self.add(comparison.WHERE, condition, x, y)

    def compare(self) -> None:
        x = self.numeric()
        self.add(comparison.LESS, x, self.any(lambda t: t.type == x.type) if self.flag() else x)

    def cast(self) -> None:
        x = self.any()
        wider = (F32, F64) if is_floating(x.dtype) else (F32, F64, I32, I8, BOOL)
        self.add(emit.CAST, x, dtype=self.one_of(wider))

    def identity(self) -> None:
        self.add(self.one_of((state.IDENTITY, state.STOP_GRADIENT)), self.any())

    def reshape(self) -> None:
        x = self.any()
        total: Dim = product(x.shape)
        new = self.one_of(((total,), (1, *x.shape), (*x.shape, 1), x.shape, x.shape[::-1]))
        self.add(shape.RESHAPE, x, shape=new)

    def transpose(self) -> None:
        x = self.any(lambda t: t.ndim > 1)
        perm = tuple(self.draw(st.permutations(range(x.ndim))))
        self.add(shape.TRANSPOSE, x, perm=perm)

    def broadcast(self) -> None:
        x = self.any()
        dims = tuple(2 if d == 1 and self.flag() else d for d in x.shape)
        if self.flag():
            dims = (self.one_of((1, 2, self.size_of_inputs)), *dims)
        self.add(shape.BROADCAST_TO, x, shape=dims)

    def slice(self) -> None:
        x = self.any(lambda t: t.ndim > 0)
        starts, limits, strides = [], [], []
        for dim in x.shape:
            cut = isinstance(dim, int) and dim > 1 and self.flag()
            starts.append(1 if cut and self.flag() else 0)
            limits.append(dim - 1 if cut and self.flag() and dim > 2 else dim)
            strides.append(2 if cut and self.flag() else 1)
        self.add(
            slicing.SLICE, x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides)
        )

    def pad(self) -> None:
        x = self.any(lambda t: t.ndim > 0)
        value = self.add(emit.CONSTANT, value=np.asarray(1, x.dtype)).outputs[0]
        pads = tuple((0, 1 if self.flag() else 0, 0) for _ in x.shape)
        self.add(slicing.PAD, x, value, pads=pads)

    def reverse(self) -> None:
        x = self.any(lambda t: t.ndim > 0)
        self.add(slicing.REVERSE, x, axes=self.axes(x))

    def axes(self, x: Tensor) -> tuple[int, ...]:
        return tuple(axis for axis in range(x.ndim) if self.flag())

    def concatenate(self) -> None:
        x = self.any(lambda t: t.ndim > 0)
        if not x.ndim:
            return
        y = self.any(lambda t: t.type == x.type)
        pieces = (x,) if self.flag() or y.type != x.type else (x, y)
        self.add(joining.CONCATENATE, *pieces, axis=self.draw(st.integers(0, x.ndim - 1)))

    def split(self) -> None:
        x = self.any(lambda t: t.ndim > 0)
        if not x.ndim:
            return
        axis = self.draw(st.integers(0, x.ndim - 1))
        dim = x.shape[axis]
        sizes = (1, dim - 1) if isinstance(dim, int) and dim > 1 else (dim,)
        pieces = self.add(joining.SPLIT, x, axis=axis, sizes=sizes).outputs
        if self.flag():
            again = pieces if self.flag() else pieces[::-1]
            self.add(joining.CONCATENATE, *again, axis=axis)

    def reduce(self) -> None:
        x = self.any(lambda t: is_floating(t.dtype))
        if is_floating(x.dtype):
            op = self.one_of(_REDUCTIONS)
            self.add(op, x, axes=self.axes(x), keepdims=self.flag())

    def matmul(self) -> None:
        x = self.any(lambda t: t.ndim > 1 and is_floating(t.dtype))
        if x.ndim > 1 and is_floating(x.dtype):
            swap = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
            y = self.add(shape.TRANSPOSE, x, perm=swap).outputs[0]
            pair = (y, x) if self.flag() else (x, y)
            self.add(matrix_product.MATMUL, *pair)

    def again(self) -> None:
        """A copy of an earlier node, sometimes with exchanged operands."""
        if self.graph.nodes:
            node = self.one_of(self.graph.nodes[::-1])
            inputs = node.inputs
            if len(inputs) == 2 and node.op in _BINARY + _ORDERED + _LOGICAL and self.flag():
                inputs = inputs[::-1]
            self.add(node.op, *inputs, **node.attrs)

    def size(self) -> None:
        dtype = self.one_of((F32, I32))
        self.add(state.DIM_VALUE, dim=self.size_of_inputs, dtype=dtype)


def _broadcast(a: Shape, b: Shape) -> bool:
    """Whether the shapes broadcast together without the assumption that two sizes are equal."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(x == y or x == 1 or y == 1 for x, y in pairs)
